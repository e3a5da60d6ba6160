"""Everything that fails in the safety phase, at random times, as the options say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from tests.simulation.cluster import Cluster, Partition
from tests.simulation.injected import Injected
from tests.simulation.nominator import rogue_call
from tests.simulation.pods.astray import Misdirection
from tests.simulation.pods.disk import draw_broken
from tests.simulation.pods.replica import HostedReplica
from tests.simulation.store import Recorded

from muster_coordinator.calls import CallResult, CallStatus

__all__ = ["Api", "Caller", "Mischief"]

AWAY_MS = (1_500, 4_000)
CLEARED_MS = (400, 1_500)
DYING_MS = (100, 600)
LATE_MS = 900


class Caller(Protocol):
    """Who calls elections: a real operator, or a nominator. `wants`: what a person asks it for."""

    name: str
    wants: str

    def crash(self) -> None: ...

    def end(self) -> None:
        """For good."""
        ...


class Api(Protocol):
    """Where it records that."""

    down_until: int

    def lag(self, operator: str) -> None: ...


class Mischief:
    def __init__(self, cluster: Cluster, api: Api, stores: Sequence[Recorded], operators: Sequence[Caller]) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._random = cluster.world.random
        self._api = api
        self._stores = stores
        self._operators = operators
        self._plan()

    def _plan(self) -> None:
        options, every = self._world.options, self._world.every
        every(options.crash_every_ms, self._crash_one)
        every(options.all_crash_every_ms, self._crash_all)
        every(options.freeze_every_ms, self._freeze)
        every(options.partition_every_ms, self._cut_off)
        every(options.flip_every_ms, self._flip)
        every(options.wipe_every_ms, self._wipe)
        every(options.full_every_ms, self._fill_disk)
        every(options.broken_every_ms, self._fail_calls)
        every(options.slow_every_ms, self._slow_disk)
        every(options.jump_every_ms, self._jump_clock)
        every(options.move_every_ms, lambda: self._want("move"))
        every(options.resign_every_ms, lambda: self._want("resign"))
        every(options.change_every_ms, lambda: self._want("change"))
        every(options.rogue_every_ms, self._call_as_rogue)
        every(options.operator_crash_every_ms, self._crash_operator)
        every(options.outage_every_ms, self._outage)
        every(options.lag_every_ms, lambda: self._api.lag(self._random.choice(self._operators).name))
        for pause_ms in (options.clean_every_ms, options.checkpoint_every_ms):  # so that runs draw what they drew
            every(pause_ms, self._nothing)
        every(options.learn_every_ms, self._learn)
        every(options.errors_every_ms, self._fail_calls)
        every(options.promise_every_ms, self._damage_promise)
        every(options.slow_link_every_ms, self._slow_link)
        every(options.away_every_ms, self._send_away)
        every(options.remove_every_ms, self._remove)
        every(options.flip_every_ms, self._flip_checkpoint)
        every(options.misdirect_every_ms, self._misdirect)
        every(options.slow_death_every_ms, self._die_slowly)
        self._world.at(CLEARED_MS[1], self._look_after)

    def _nothing(self) -> None:
        """Pods clean their logs and take checkpoints by themselves, as often as these options say. Only the times are
        drawn here: without them nearly every seed would be another run, and `kept.py` and the table of planted faults
        name runs by their seeds."""

    def _any_pod(self) -> Any:
        return self._random.choice(list(self._cluster.pods.values()))

    def _any_partition(self) -> tuple[Partition, Recorded]:
        partition = self._random.choice(self._cluster.partitions)
        return partition, self._stores[self._cluster.partitions.index(partition)]

    # -- processes and machines ---------------------------------------------------------------------------------------

    def _crash_one(self) -> None:
        pod = self._any_pod()
        pod.crash(power=pod.may_lose_power and self._random.random() < self._world.options.power_loss)
        pod.start_later()

    def _start_later(self, pod: Any, within_ms: int = 0) -> None:
        self._world.at(self._random.randint(1, within_ms or self._world.options.restart_ms_max), pod.start)

    def _crash_all(self) -> None:
        self._world.injected[Injected.CRASH_OF_ALL] += 1
        power = not self._world.options.flush_os and self._random.random() < self._world.options.power_loss
        for pod in self._cluster.pods.values():
            pod.crash(power=power)
            self._start_later(pod)

    def _freeze(self) -> None:
        pod = self._any_pod()
        until_ms = self._world.now_ms + self._random.randint(1, self._world.options.freeze_ms_max)
        pod.frozen_until = max(pod.frozen_until, until_ms)
        self._world.log(f"{pod.name} freezes until {pod.frozen_until}")

    def _send_away(self) -> None:
        """Longer than what the others delete meanwhile keeps its tombstones."""
        pod = self._any_pod()
        pod.crash(power=pod.may_lose_power and self._random.random() < self._world.options.power_loss)
        self._world.at(self._random.randint(*AWAY_MS), pod.start)

    def _jump_clock(self) -> None:
        pod = self._any_pod()
        self._world.injected[Injected.CLOCK_JUMP] += 1
        pod.machine_clock.wall_offset_ms = self._random.choice((-1, 1)) * self._random.randint(0, 3_600_000)

    # -- network ------------------------------------------------------------------------------------------------------

    def _cut_off(self) -> None:
        """One pod from some of the others, in one direction or both; perhaps from the operators too."""
        random = self._random
        pod = self._any_pod()
        duration = random.randint(50, self._world.options.partition_ms_max)
        others = [*self._cluster.pods, *dict.fromkeys(one.name for one in self._operators)]
        both = random.random() < 0.5
        share = random.choice((0.5, 1.0))
        self._world.log(f"{pod.name} is cut off for {duration}")
        for other in others:
            if random.random() < share:
                self._world.block(pod.name, other, duration)
                if both:
                    self._world.block(other, pod.name, duration)

    def _slow_link(self) -> None:
        """In one direction."""
        one, other = self._random.sample(list(self._cluster.pods), 2) if len(self._cluster.pods) > 1 else ("", "")
        until_ms = self._world.now_ms + self._random.randint(200, 2_000)
        self._world.slow[one, other] = until_ms, self._random.choice((50, 300, 900))

    # -- disks --------------------------------------------------------------------------------------------------------

    def _flip(self) -> None:
        """In the log of one partition; the pod stops at it."""
        self._take_log(self._random.choice(self._any_pod().replicas), 300)

    def _take_log(self, replica: HostedReplica, away_ms: int) -> None:
        if replica.partition.may_lose(replica):
            replica.pod.crash()
            if replica.flip_bit():
                self._world.injected[Injected.BIT_FLIPPED] += 1
                self._world.log(f"{replica.name} has a flipped bit")
            self._start_later(replica.pod, away_ms)

    def _die_slowly(self) -> None:
        """A follower without which nothing is committed loses its log while what it sends is late: the first word of
        its next process overtakes that, and the leader must not count it any more. Next to nothing gets there."""
        partition, _ = self._any_partition()
        leader = next((one for one in partition.replicas.values() if one.core and one.core.leading_epoch >= 0), None)
        if leader is None or len(partition.replicas) < 3:
            return
        followers = [one for one in partition.replicas.values() if one is not leader]
        dying, *others = self._random.sample(followers, len(followers))
        dying_ms, world = self._random.randint(*DYING_MS), self._world
        for one in others[len(partition.replicas) // 2 - 1 :]:
            for name in self._cluster.pods:
                world.block(one.pod.name, name, dying_ms + LATE_MS)
                world.block(name, one.pod.name, dying_ms + LATE_MS)
        world.slow[dying.pod.name, leader.pod.name] = world.now_ms + dying_ms, LATE_MS
        world.slow[leader.pod.name, dying.pod.name] = world.now_ms + dying_ms + LATE_MS, LATE_MS // 4
        world.at(dying_ms, lambda: self._take_log(dying, 50))
        world.log(f"{dying.name} is slow for {dying_ms}, and then loses its log")

    def _misdirect(self) -> None:
        """The next write to some kind of file: nobody notices now."""
        pod = self._any_pod()
        pod.disk.astray = Misdirection(pod, self._random, lambda: self._cluster.may_lose(pod))

    def _wipe(self) -> None:
        """A volume is lost: what comes back are other replicas."""
        pod = self._any_pod()
        if self._cluster.may_lose(pod):
            pod.crash()
            for replica in pod.replicas:
                replica.partition.checker.lost_ids.add(replica.storage.log_id)
            pod.lose_volume()
            self._world.injected[Injected.VOLUME_LOST] += 1
            self._world.log(f"{pod.name} lost its volume: {' '.join(r.storage.log_id[:4] for r in pod.replicas)}")
            self._start_later(pod, 300)

    def _fill_disk(self) -> None:
        pod = self._any_pod()
        pod.faults.full = True
        self._world.log(f"{pod.name} has a full disk")

        def room() -> None:
            pod.faults.full = False

        self._world.at(self._random.randint(200, 1_500), room)

    def _fail_calls(self) -> None:
        pod = self._any_pod()
        pod.faults.broken = broken = draw_broken(self._random, self._world.now_ms)
        self._world.log(f"{pod.name}: {broken}")

    def _slow_disk(self) -> None:
        pod = self._any_pod()
        pod.faults.slow_until = self._world.now_ms + self._random.randint(100, 2_000)

    def _flip_checkpoint(self) -> None:
        pod = self._any_pod()
        replica = self._random.choice(pod.replicas)
        pod.crash()
        if replica.flip_checkpoint():
            self._world.injected[Injected.CHECKPOINT_DAMAGED] += 1
        pod.start_later(300)

    def _damage_promise(self) -> None:
        """Nobody knows any more what that replica promised: it is gone with its log, and a person clears its place."""
        pod = self._any_pod()
        replica = self._random.choice(pod.replicas)
        if replica.host is not None and replica.partition.may_lose(replica):
            pod.crash()
            replica.partition.checker.lost_ids.add(replica.storage.log_id)
            replica.damage_promise()
            self._world.injected[Injected.PROMISE_DAMAGED] += 1
            self._world.log(f"{replica.name} has a damaged promise file")
            pod.start_later(300)

            def clear() -> None:
                pod.crash()
                replica.delete()
                pod.start_later(300)

            self._world.at(self._random.randint(*CLEARED_MS), clear)

    # -- operators and people -----------------------------------------------------------------------------------------

    def _want(self, what: str) -> None:
        self._random.choice(self._operators).wants = what

    def _call_as_rogue(self) -> None:
        partition, store = self._any_partition()
        rogue_call(partition, store.record)

    def _crash_operator(self) -> None:
        name = self._random.choice(self._operators).name
        self._world.log(f"{name} crashes")
        self._world.injected[Injected.OPERATOR_CRASH] += 1
        for operator in self._operators:
            if operator.name == name:
                operator.crash()

    def _outage(self) -> None:
        self._api.down_until = self._world.now_ms + self._random.randint(100, 4_000)
        self._world.log(f"the API server is away until {self._api.down_until}")

    def _learn(self) -> None:
        """Some replicas outside of the set get the log from whoever leads."""
        partition, store = self._any_partition()
        if self._world.options.operating:
            return  # the plan names the learners
        ids = [replica.storage.log_id for replica in partition.replicas.values()]
        outside = [log_id for log_id in ids if log_id not in store.record.sets.members]
        learners = tuple(self._random.sample(outside, self._random.randint(0, len(outside))))
        for replica in partition.replicas.values():
            if replica.core is not None:
                replica.set_learners(learners)

    def _look_after(self) -> None:
        """Somebody places a replica where none is, and clears what is damaged and in no set: nobody else has to."""
        for partition, store in zip(self._cluster.partitions, self._stores, strict=True):
            for replica in partition.replicas.values():
                if not replica.pod.is_running or self._world.options.operating:
                    continue
                if replica.host is None:
                    replica.create()
                elif (
                    replica.storage.is_damaged
                    and replica.is_damaged
                    and replica.storage.log_id not in store.record.sets.members
                ):
                    replica.pod.crash()
                    replica.partition.checker.lost_ids.add(replica.storage.log_id)
                    replica.delete()
                    replica.pod.start_later(300)
        self._world.at(CLEARED_MS[1], self._look_after)

    def _remove(self) -> None:
        """A replica that is in no set of its partition, by the word of a leader that has committed that."""
        partition, store = self._any_partition()
        leader = partition.replicas[store.record.leader].core
        if leader is None or not leader.is_active or leader.log.sets is None:
            return
        sets = leader.log.sets
        if sets.previous_replicas or leader.commit_point <= leader.log.sets_offset:
            return
        outside = [one for one in partition.replicas.values() if one.storage.log_id not in sets.members]
        replica = self._random.choice(outside) if outside else None
        if replica is None or not partition.may_lose(replica):
            return  # somebody named it in a set that would lose its majority with it
        log_id, lost = replica.storage.log_id, partition.checker.lost_ids
        lost.add(log_id)

        def removed(answer: CallResult) -> None:
            if answer.status is CallStatus.ACCEPTED:
                self._world.injected[Injected.REPLICA_REMOVED] += 1
                self._world.log(f"{replica.name} is removed")
            else:
                lost.discard(log_id)
            replica.create()

        replica.remove(log_id, leader.leading_epoch, removed)
