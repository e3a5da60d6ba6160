"""Each checked property has a negative: planted faults and canaries are most of them, these are the others."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.simulation.cluster import Cluster, Partition
from tests.simulation.disk_log import DiskLog
from tests.simulation.history import History
from tests.simulation.machine import leader_change, make_batch
from tests.simulation.members import LiveGroups, Members
from tests.simulation.options import Options
from tests.simulation.pods.replica import HostedReplica
from tests.simulation.world import Violation, World
from tests.simulation.written import commit_record, log_of

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.classic.states import GroupState
from muster_coordinator.records.group_metadata import GroupMember, GroupMetadataValue
from muster_coordinator.replication.effects import Promise
from muster_coordinator.replication.messages import Batch
from muster_coordinator.replication.sets import Sets
from muster_coordinator.requests import groups as m


@pytest.fixture
def partition() -> Partition:
    world = World(Options(0))
    cluster = Cluster(world)
    world.run_until(200)  # the logs are open
    return cluster.partitions[0]


def _replica(partition: Partition) -> HostedReplica:
    return partition.replicas["pod-0"]


def _follow(partition: Partition, log: DiskLog) -> None:
    partition.checker._compare(log, "a log", 0, log.end)


def test_promise_that_goes_back(partition: Partition) -> None:
    storage = _replica(partition).storage
    storage.promise = Promise(5, "a")
    partition.checker.promised(storage, Promise(6, "b"))
    with pytest.raises(Violation, match="promises 4 after 5"):
        partition.checker.promised(storage, Promise(4, "a"))


def test_epoch_that_is_active_and_was_not_opened(partition: Partition) -> None:
    replica = _replica(partition)
    with pytest.raises(Violation, match="is ACTIVE in epoch 3, which None opened"):
        partition.checker.active(replica, 3)


def test_loss_that_nobody_allowed(partition: Partition) -> None:
    with pytest.raises(Violation, match="accepts a loss that nobody allowed"):
        partition.checker.accepts_loss(3)
    partition.checker.loss_allowed = True
    partition.checker.accepts_loss(3)


def test_gap_in_the_committed_log(partition: Partition) -> None:
    with pytest.raises(Violation, match="the committed log ends at 1"):
        _follow(partition, log_of((0, 1, commit_record(1)), (5, 1, commit_record(2))))


def test_log_that_lacks_a_committed_batch_which_nobody_has_cleaned(partition: Partition) -> None:
    batches = [(0, 1, commit_record(1)), (1, 1, commit_record(2)), (2, 1, commit_record(3))]
    _follow(partition, log_of(*batches))
    partition.checker._compare(log_of(*batches[1:]), "one that is damaged", 0, 3, whole=False)
    with pytest.raises(Violation, match="lacks what is committed between 0 and 1"):
        _follow(partition, log_of(*batches[1:]))
    partition.checker.cleaned(1)
    _follow(partition, log_of(*batches[1:]))


def test_epochs_that_decrease_along_the_log(partition: Partition) -> None:
    with pytest.raises(Violation, match="epochs go back"):
        _follow(partition, log_of((0, 2, commit_record(1)), (1, 1, commit_record(2))))


def test_offset_that_goes_back_along_the_log(partition: Partition) -> None:
    with pytest.raises(Violation, match="goes back to 4 from 5"):
        _follow(partition, log_of((0, 1, commit_record(5)), (1, 1, commit_record(4))))


def test_commit_before_any_record_names_a_set(partition: Partition) -> None:
    replica = _replica(partition)
    replica.log = log_of((0, 1, commit_record(1)))
    with pytest.raises(Violation, match="no record before it names a set"):
        partition.checker.committed(replica, 1)


def test_sets_that_follow_one_another_illegally(partition: Partition) -> None:
    def opening(offset: int, sets: Sets) -> Batch:
        return make_batch([leader_change("a", sets)], offset, 1, 0, control=True)

    partition.checker._follow_sets(opening(0, Sets(("a", "b", "c"))))
    partition.checker._follow_sets(opening(1, Sets(("a", "b", "d"), ("a", "b", "c"))))
    with pytest.raises(Violation, match="are followed by"):
        partition.checker._follow_sets(opening(2, Sets(("a", "e", "d"), ("a", "b", "d"))))


def _members(*names: str, generation: int) -> GroupMetadataValue:
    members = tuple(GroupMember(name, None, "", "", 0, 0, b"", b"") for name in names)
    return GroupMetadataValue("consumer", generation, "range", names[0], 0, members)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (_members("a", generation=2), "forgot"),
        (None, "is removed with"),
        (_members("a", "b", generation=0), "went from generation 1"),
        (_members("a", "b", "c", generation=1), "two memberships in generation 1"),
    ],
)
def test_group_that_forgets(value: GroupMetadataValue | None, reason: str) -> None:
    members = Members()
    members.committed("g", _members("a", "b", generation=1), epoch=1)

    def commit() -> None:
        members.committed("g", value, epoch=2)
        members.batch_ends(2)

    with pytest.raises(Violation, match=reason):
        commit()


def test_member_that_was_removed_may_be_missing_and_no_other() -> None:
    members = Members()
    members.committed("g", _members("a", "b", generation=1), epoch=1)
    members.removed.add(("g", "b", 2))
    members.committed("g", _members("a", generation=2), epoch=2)


@pytest.mark.parametrize(
    ("code", "reason"),
    [(ErrorCode.UNKNOWN_MEMBER_ID, "turned b of generation 1 away"), (ErrorCode.ILLEGAL_GENERATION, "is over")],
)
def test_member_that_is_turned_away_for_no_reason(code: ErrorCode, reason: str) -> None:
    members = Members()
    members.committed("g", _members("a", "b", generation=1), epoch=1)
    members.turned_away("g", "b", 0, 1, code, live_generation=1)  # of an old generation
    with pytest.raises(Violation, match=reason):
        members.turned_away("g", "b", 1, 1, code, live_generation=1)


@pytest.mark.parametrize(
    ("message", "timer", "reason"),
    [
        (m.HeartbeatRequest("g", 1, "a", None), (), "removes b in epoch 1 by HeartbeatRequest"),
        (None, ("join", "g"), "removes b in epoch 1"),
        (None, ("session", "g", "b"), "ends the session of b after 0 ms"),
    ],
)
def test_member_that_goes_for_no_reason(message: Any, timer: Any, reason: str) -> None:
    dynamic = SimpleNamespace(group_instance_id=None, join_token=None)
    group = SimpleNamespace(state=GroupState.STABLE, members={"a": dynamic, "b": dynamic})
    coordinator = SimpleNamespace(group=lambda group_id: group)
    consumers = SimpleNamespace(groups={})
    shard = SimpleNamespace(monotonic_ms=lambda: 1_000, coordinator=coordinator, consumers=consumers)
    live = LiveGroups(cast("Any", shard), Members())
    live.lead(1)
    was = live.before("g")
    live.after("g", was, message, timer)
    del group.members["b"]
    with pytest.raises(Violation, match=reason):
        live.after("g", was, message, timer)


def _nobody_wrote(history: History) -> None:
    history.tries(1)
    history.read(2, history.start())


def _back(history: History) -> None:
    history.tries(2)
    history.acknowledged(2, history.start())
    history.read(1, history.start())


def _gone(history: History) -> None:
    history.tries(1)
    history.acknowledged(1, history.start())
    history.read(0, history.start())


@pytest.mark.parametrize(
    ("happens", "reason"), [(_nobody_wrote, "nobody wrote"), (_back, "went back to 1"), (_gone, "is gone")]
)
def test_history_that_is_not_linearizable(happens: Callable[[History], None], reason: str) -> None:
    with pytest.raises(Violation, match=reason):
        happens(History("g"))
