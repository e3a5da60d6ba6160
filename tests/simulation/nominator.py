"""Who calls elections where no real operator runs. The protocol must be safe whoever calls what: a nominator is a
client of the pods as others are, with a script that gives partitions leaders, moves them and changes their sets.

It stays beside the real operators of every tenth seed: one of those takes the time of five others, and calls only what
its plan finds right. A nominator elects at once, from less, and into more of what a pod must refuse.

Several may run at once, each with views that are late or missing; a crash between any two actions loses all that one
of them knows. Also a rogue, who makes calls that no operator of ours would make: they must do no harm.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tests.simulation.cluster import Partition
from tests.simulation.injected import Injected
from tests.simulation.pods.replica import HostedReplica
from tests.simulation.store import Record, Store

from muster_coordinator.calls import CallResult, CallStatus
from muster_coordinator.replication.core import ReplicaCore
from muster_coordinator.replication.election import ElectionCall
from muster_coordinator.replication.sets import Sets

__all__ = ["Nominator", "rogue_call"]

STEP_MS = 80
FRESH_MS = 700
CALL_MS = 1_500
LOSS_CALL_MS = 5_000


@dataclass(frozen=True)
class Status:
    """What a pod said of its replica."""

    at_ms: int
    log_id: str
    epoch: int
    leading_epoch: int
    active: bool
    rank: tuple[int, int]
    rebuilding: bool
    used: bool
    sets: Sets | None  # of its log, once the record that names them is committed
    needs_higher_epoch: bool


class Nominator:
    """For one partition. Each start is a run of its own, by number: what an earlier run has scheduled does nothing any
    more. All with one name crash together. `wants`: "move", "resign" or "change", asked for by the simulation.
    """

    def __init__(self, name: str, partition: Partition, store: Store) -> None:
        self.name = name
        self.world = partition.world
        self.partition = partition
        self.store = store
        self.wants = ""
        self._run = 0
        self._ended = False
        self.start()

    def start(self) -> None:
        if self._ended:
            return
        self._run += 1
        self._forget()
        self._step(self._run)

    def crash(self) -> None:
        self._run += 1
        self.world.at(self.world.random.randint(1, 1_500), self.start)

    def end(self) -> None:
        """It holds the lease no more, and hears of that."""
        self._ended = True
        self._run += 1

    def _forget(self) -> None:
        self._view: dict[str, Status] = {}
        self._calling_until = -1
        self._seen = -1
        self._failures = 0
        self._again_at = 0
        self._record_seen = (-1, 0)  # (version, since when)
        self.wants = ""

    def _step(self, run: int) -> None:
        if run != self._run:
            return
        self._poll()
        if self.world.now_ms >= max(self._calling_until, self._again_at):
            record = self.store.read(self.name)
            if record is not None:
                self._plan(record)
        self.world.at(STEP_MS + self.world.random.randint(0, STEP_MS), lambda: self._step(run))

    def _poll(self) -> None:
        for replica in self.partition.replicas.values():
            self.world.send(self.name, replica.pod.name, lambda replica=replica: self._status_of(replica))  # type: ignore[misc]

    def _status_of(self, replica: HostedReplica) -> None:
        core, pod = replica.core, replica.pod
        if core is None or self.world.now_ms < pod.frozen_until:
            return
        core.operator_heard(pod.now_ms())
        status = Status(
            self.world.now_ms,
            core.log_id,
            max(core.promise.epoch, core.highest_epoch),
            core.leading_epoch,
            core.is_active,
            (core.log.last_epoch, core.log.end),
            core.promise.rebuilding or bool(pod.cannot_write),
            core.log.end > 0,
            _sets_of(core) if core.commit_point > core.log.sets_offset else None,
            core.needs_higher_epoch,
        )
        run = self._run

        def take() -> None:
            if run == self._run:
                self._view[pod.name] = status
                self._seen = max(self._seen, status.epoch)

        self.world.send(pod.name, self.name, take)

    # -- plan ---------------------------------------------------------------------------------------------------------

    def _fresh(self) -> dict[str, Status]:
        return {n: s for n, s in self._view.items() if self.world.now_ms - s.at_ms < FRESH_MS}

    def _plan(self, record: Record) -> None:
        fresh = self._fresh()
        leader = fresh.get(record.leader)
        if leader is None or not leader.active or leader.leading_epoch != record.epoch:
            self._fail_over(record, fresh)
            return
        self._failures = 0
        if not record.opened or record.allow_loss:
            self._swap(record, replace(record, opened=True, allow_loss=False))
        elif leader.sets is not None and leader.sets != record.sets:
            self._swap(record, replace(record, sets=leader.sets))  # the log holds the set
        elif record.sets.previous_replicas:
            if self.world.random.random() < 0.02:
                self._elect(record, record.leader, record.sets, force=True)  # repeats both
        elif leader.epoch > record.epoch or leader.needs_higher_epoch:
            self._elect(record, record.leader, record.sets, force=True)
        elif lost := self._lost(record, fresh):
            self._change(record, fresh, lost)
        elif self.wants:
            self._do_what_is_wanted(record, fresh)

    def _fail_over(self, record: Record, fresh: dict[str, Status]) -> None:
        loss = record.allow_loss
        may_lead = record.sets.replicas if loss else record.sets.members
        members = [n for n, s in fresh.items() if s.log_id in may_lead and (loss or not s.rebuilding)]
        if not members or (loss and not self._is_old(record)):
            return
        best = max(members, key=lambda name: fresh[name].rank)
        if self._failures % 4 == 3:
            best = self.world.random.choice(members)
        self._elect(record, best, record.sets, force=self._failures >= 2)

    def _is_old(self, record: Record) -> bool:
        """An election that takes what it can reach needs time: another operator's is not disturbed."""
        if record.version != self._record_seen[0]:
            self._record_seen = record.version, self.world.now_ms
        return self.world.now_ms - self._record_seen[1] >= LOSS_CALL_MS

    def _lost(self, record: Record, fresh: dict[str, Status]) -> str:
        """A replica of the set that is on no pod any more; only while all pods are heard."""
        if len(fresh) < len(self.partition.replicas):
            return ""
        here = {status.log_id for status in fresh.values()}
        return next((one for one in record.sets.replicas if one not in here), "")

    def _change(self, record: Record, fresh: dict[str, Status], leaving: str) -> None:
        spare = [status for status in fresh.values() if status.log_id not in record.sets.members]
        unused = [status.log_id for status in spare if not status.rebuilding]
        if unused:
            new = self.world.random.choice(unused)
            replicas = tuple(new if one == leaving else one for one in record.sets.replicas)
            self._elect(record, record.leader, Sets(replicas, record.sets.replicas), force=True)
        elif spare:  # nobody else would send them what they lack
            learners, leader = tuple(status.log_id for status in spare), self.partition.replicas[record.leader]
            self.world.send(self.name, leader.pod.name, lambda: leader.set_learners(learners))

    def _do_what_is_wanted(self, record: Record, fresh: dict[str, Status]) -> None:
        wants, self.wants = self.wants, ""
        members = [n for n, s in fresh.items() if s.log_id in record.sets.replicas and not s.rebuilding]
        if wants == "move" and members:
            self._elect(record, self.world.random.choice(members), record.sets, force=True)
        elif wants == "resign":
            self._resign(record)
        elif wants == "change":
            self._change(record, fresh, self.world.random.choice(record.sets.replicas))

    # -- actions ------------------------------------------------------------------------------------------------------

    def _swap(self, seen: Record, value: Record) -> bool:
        return self.store.swap(seen, value, self.name)

    def _dies_here(self) -> bool:
        """Between two actions."""
        if not self.world.faults or self.world.random.random() >= self.world.options.operator_crash_in_steps:
            return False
        self.world.injected[Injected.OPERATOR_CRASH_IN_STEPS] += 1
        self.crash()
        return True

    def _elect(self, record: Record, pod_name: str, sets: Sets, *, force: bool) -> None:
        """Record first, then call."""
        replica = self.partition.replicas[pod_name]
        epoch = max(self._seen, record.epoch) + 1
        if sets != record.sets and not self.partition.may_name(sets):
            return
        value = replace(record, epoch=epoch, leader=pod_name, sets=sets)
        if not self._swap(record, value):
            return
        if self._dies_here():
            return
        view = self._view.get(pod_name)
        call = ElectionCall(
            epoch,
            sets,
            bootstrap=not record.opened and view is not None and not view.used,
            force=force,
            allow_data_loss=record.allow_loss,
        )
        self._calling_until = self.world.now_ms + CALL_MS
        self._failures += 1
        run = self._run

        def answered(answer: CallResult) -> None:
            self.world.send(pod_name, self.name, lambda: self._answered(run, answer))

        self.world.log(f"{self.name} elects {pod_name} in {epoch} {_short(sets)}{' force' if force else ''}")
        self.world.send(self.name, pod_name, lambda: replica.elect(call, answered))

    def _answered(self, run: int, answer: CallResult) -> None:
        if run != self._run:
            return
        self.world.log(f"{self.name} hears {answer.status} {answer.epoch} {answer.message}")
        self._calling_until = -1
        self._seen = max(self._seen, answer.epoch)
        if answer.status is CallStatus.ACCEPTED:
            self._failures = 0
            self._again_at = self.world.now_ms + 2 * STEP_MS
            return
        self._again_at = self.world.now_ms + self.world.random.randint(0, 100 * min(self._failures, 8))
        if answer.status is CallStatus.SET_CONFLICT:
            self._swap(
                self.store.record, replace(self.store.record, sets=Sets(answer.replicas, answer.previous_replicas))
            )

    def _resign(self, record: Record) -> None:
        replica = self.partition.replicas[record.leader]
        epoch = max(self._seen, record.epoch) + 1
        if self._swap(record, replace(record, epoch=epoch)) and not self._dies_here():
            self.world.log(f"{self.name} lets {record.leader} resign for {epoch}")
            self.world.send(self.name, record.leader, lambda: replica.resign(epoch, lambda answer: None))


def rogue_call(partition: Partition, record: Record) -> None:
    """Some pod, some epoch, perhaps a set that nobody wants: refused, or harmless."""
    world = partition.world
    random = world.random
    replicas = list(partition.replicas.values())
    replica = random.choice(replicas)
    promised = max(one.storage.promise.epoch for one in replicas)
    epoch = max(promised + random.randint(-2, 2), 0)
    if random.random() < 0.15:
        for one in random.sample(replicas, random.randint(1, len(replicas))):
            one.resign(epoch, lambda answer: None)
        for one in random.sample(replicas, min(2, len(replicas))):  # who is first?
            call = ElectionCall(epoch, record.sets, force=True)
            world.at(random.randint(5, 60), lambda one=one, call=call: one.elect(call, lambda answer: None))  # type: ignore[misc]
        return
    sets = record.sets
    if random.random() < world.options.rogue_sets:
        ids = [one.storage.log_id for one in replicas]
        some = tuple(random.sample(ids, random.randint(1, len(ids))))
        core = replica.core
        own = core.log.sets if core is not None and core.log.sets is not None else record.sets
        sets = random.choice((Sets(some), Sets(some, own.replicas), own, own, Sets(own.replicas)))
        if not partition.may_name(sets):
            return
    if random.random() < 0.2:  # what was recorded, once more: perhaps the pod was restarted since
        replica, epoch = partition.replicas[record.leader], max(record.epoch, 0)
    world.log(f"rogue elects {replica.name} in {epoch} {_short(sets)}")
    replica.elect(ElectionCall(epoch, sets, force=random.random() < 0.8), lambda answer: None)


def _sets_of(core: ReplicaCore) -> Sets | None:
    """As a record names them, which knows of no loss."""
    sets = core.log.sets
    return Sets(sets.replicas, sets.previous_replicas) if sets is not None else None


def _short(sets: Sets) -> str:
    return "/".join(",".join(one[:4] for one in each) for each in sets.each)
