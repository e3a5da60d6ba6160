"""One run: build the world from options, let things fail, then let everything heal and see that it does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.simulation.checker import Checker, History
from tests.simulation.client import Client
from tests.simulation.operator import Operator, Record, Store, rogue_call
from tests.simulation.options import Options
from tests.simulation.pod import Cluster, Pod
from tests.simulation.world import Violation, World

from muster_coordinator.replication.rules import Rules
from muster_coordinator.replication.sets import Sets
from muster_coordinator.replication.settings import ReplicationSettings

__all__ = ["Failure", "Outcome", "simulate"]

LIVENESS_MS = 20_000


@dataclass(frozen=True)
class Outcome:
    """What a clean run did."""

    epochs: int  # in which some leader was ACTIVE
    highest_epoch: int
    committed: int
    answered: int
    healed_ms: int  # from the end of the faults until all was well


class Failure(Exception):
    """A run that broke a promise. ``trace``: the last things that happened."""

    def __init__(self, options: Options, reason: str, trace: list[str]) -> None:
        super().__init__(reason)
        self.options = options
        self.reason = reason
        self.trace = trace


class Simulation:
    def __init__(self, options: Options, rules: Rules, pod_class: type[Pod]) -> None:
        self.world = World(options)
        self.checker = Checker()
        settings = ReplicationSettings(append_bytes_max=options.append_bytes_max)
        self.cluster = Cluster(self.world, self.checker, rules, settings)
        for index in range(options.replicas + options.spares):
            name = f"pod-{index}"
            self.cluster.pods[name] = pod_class(name, self.cluster)
        pods = list(self.cluster.pods.values())
        first = Sets(tuple(pod.storage.log_id for pod in pods[: options.replicas]))
        self.cluster.named.add(first.replicas)
        self.store = Store(self.cluster, Record(-1, pods[0].name, first))
        self.operators = [Operator(f"op-{i}", self.cluster, self.store) for i in range(options.operators)]
        self.histories = [History(f"g{i}") for i in range(options.groups)]
        self.clients = [
            Client(f"c{i}", self.cluster, self.store, self.histories[i % options.groups], writes=i < options.groups)
            for i in range(max(options.clients, options.groups))
        ]
        self._plan_faults()

    # -- safety: anything may fail ------------------------------------------------------------------------------------

    def _plan_faults(self) -> None:
        options, every = self.world.options, self.world.every
        every(options.crash_every_ms, self._crash_one)
        every(options.all_crash_every_ms, self._crash_all)
        every(options.freeze_every_ms, self._freeze)
        every(options.partition_every_ms, self._cut_off)
        every(options.flip_every_ms, self._flip)
        every(options.wipe_every_ms, self._wipe)
        every(options.full_every_ms, self._fill_disk)
        every(options.slow_every_ms, self._slow_disk)
        every(options.move_every_ms, lambda: self._want("move"))
        every(options.resign_every_ms, lambda: self._want("resign"))
        every(options.change_every_ms, lambda: self._want("change"))
        every(options.rogue_every_ms, lambda: rogue_call(self.cluster, self.store))
        every(options.operator_crash_every_ms, lambda: self.world.random.choice(self.operators).crash())
        every(options.clean_every_ms, lambda: self._any_pod().clean())
        every(options.checkpoint_every_ms, lambda: self._any_pod().publish_checkpoint())

    def _any_pod(self) -> Pod:
        return self.world.random.choice(list(self.cluster.pods.values()))

    def _want(self, what: str) -> None:
        self.world.random.choice(self.operators).wants = what

    def _crash_one(self, pod: Pod | None = None) -> None:
        random = self.world.random
        pod = pod or self._any_pod()
        power = random.random() < self.world.options.power_loss
        if self.world.options.flush_os and power and not self._may_lose(pod):
            power = False
        pod.crash(power=power)
        self.world.at(random.randint(1, self.world.options.restart_ms_max), pod.start_again)

    def _crash_all(self) -> None:
        for pod in self.cluster.pods.values():
            pod.crash()
            self.world.at(self.world.random.randint(1, self.world.options.restart_ms_max), pod.start_again)

    def _freeze(self) -> None:
        pod = self._any_pod()
        pod.frozen_until = self.world.now_ms + self.world.random.randint(1, self.world.options.freeze_ms_max)
        self.world.log(f"{pod.name} freezes until {pod.frozen_until}")

    def _cut_off(self) -> None:
        """One pod from some of the others, in one direction or both; perhaps from the operators too."""
        random = self.world.random
        pod = self._any_pod()
        duration = random.randint(50, self.world.options.partition_ms_max)
        others = [*self.cluster.pods, *(one.name for one in self.operators)]
        both = random.random() < 0.5
        share = random.choice((0.5, 1.0))
        self.world.log(f"{pod.name} is cut off for {duration}")
        for other in others:
            if random.random() < share:
                self.world.block(pod.name, other, duration)
                if both:
                    self.world.block(other, pod.name, duration)

    def _may_lose(self, pod: Pod) -> bool:
        """The fault budget: of every set that anybody ever named, a majority keeps its data, and of all pods."""
        if 2 * len(self.cluster.damaged(pod) - self.checker.lost_ids) >= self.world.options.replicas:
            return False
        return all(self.cluster.is_whole(each, pod) for each in self.cluster.named)

    def _flip(self) -> None:
        pod = self._any_pod()
        if self._may_lose(pod):
            pod.crash()
            if pod.storage.flip_bit():
                self.world.log(f"{pod.name} has a flipped bit")
            self.world.at(self.world.random.randint(1, 300), pod.start_again)

    def _wipe(self) -> None:
        """A volume is lost: what comes back is another replica."""
        pod = self._any_pod()
        if self._may_lose(pod):
            pod.crash()
            self.checker.lost_ids.add(pod.storage.log_id)
            pod.storage = pod.new_storage()
            self.world.log(f"{pod.name} lost its volume, and comes back as {pod.storage.log_id[:4]}")
            self.world.at(self.world.random.randint(1, 300), pod.start_again)

    def _fill_disk(self) -> None:
        pod = self._any_pod()
        pod.full = True
        self.world.log(f"{pod.name} has a full disk")

        def room() -> None:
            pod.full = False

        self.world.at(self.world.random.randint(200, 1_500), room)

    def _slow_disk(self) -> None:
        pod = self._any_pod()
        pod.slow_until = self.world.now_ms + self.world.random.randint(100, 2_000)

    # -- liveness: everything is whole again --------------------------------------------------------------------------

    def _heal(self) -> None:
        self.world.log("the faults stop")
        self.world.faults = False
        self.world.blocked.clear()
        for pod in self.cluster.pods.values():
            pod.frozen_until = pod.slow_until = -1
            pod.full = False
            pod.start_again()
        self._answered_at_heal = [client.answered for client in self.clients]

    def _pending(self) -> str:
        """What is not well yet: a leader, its set final and recorded, every replica caught up, every client served."""
        record = self.store.record
        leader = self.cluster.pods[record.leader]
        if leader.core is None or not leader.core.is_active or leader.core.leading_epoch != record.epoch:
            return f"{leader.name} does not lead in epoch {record.epoch}"
        if record.sets.previous_replicas:
            return "the change of the set is not final"
        for log_id in record.sets.replicas:
            pod = self.cluster.pod_of(log_id)
            if pod is None or pod.core is None or pod.core.promise.rebuilding:
                return f"replica {log_id} is not there, or rebuilding"
            if leader.core.commit_point - pod.core.commit_point > 100:
                return f"{pod.name} is behind"
        for client, before in zip(self.clients, self._answered_at_heal, strict=True):
            if client.answered <= before + 2:
                return f"{client.name} is not served"
        return ""

    def run(self) -> Outcome:
        options = self.world.options
        self.world.run_until(options.safety_ms)
        self._heal()
        healed_at = self.world.now_ms
        self.world.run_until(healed_at + LIVENESS_MS, lambda: not self._pending())
        pending = self._pending()
        if pending:
            raise Violation(f"{LIVENESS_MS} ms after the faults stopped {pending}: {self._state()}")
        healed_ms = self.world.now_ms - healed_at
        for pod in self.cluster.pods.values():
            if pod.core is not None and pod.core.leading_epoch < 0:
                self.checker.compare_state(pod)
        return Outcome(
            len(self.checker.active_epochs),
            max(self.checker.active_epochs, default=-1),
            self.checker.committed_end,
            sum(client.answered for client in self.clients),
            healed_ms,
        )

    def _state(self) -> str:
        lines = [str(self.store.record)]
        for pod in self.cluster.pods.values():
            core = pod.core
            if core is not None:
                lines.append(
                    f"{pod.name} {core.log_id[:4]} promise={core.promise} leads={core.leading_epoch} "
                    f"active={core.is_active} log={core.log.last_epoch},{core.log.end} durable={core.log.durable_end} "
                    f"commit={core.commit_point} waits={core.waiting_for_storage}"
                )
        return "\n  ".join(lines)


def simulate(options: Options, rules: Rules | None = None, pod_class: type[Pod] = Pod) -> Outcome:
    """Raises Failure. Equal arguments, equal run."""
    with _failing(options) as trace:
        simulation = Simulation(options, rules or Rules(), pod_class)
        trace.append(simulation.world)
        return simulation.run()
    raise AssertionError("not reached")


@contextmanager
def _failing(options: Options) -> Iterator[list[World]]:
    worlds: list[World] = []
    try:
        yield worlds
    except Exception as error:  # a crash of the core is a failure like any other
        trace = worlds[0].trace if worlds else []
        raise Failure(options, f"{type(error).__name__}: {error}", trace) from error
