"""The shard's promises, with a state machine and a log that the test controls."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.replicas import AnyTopic
from tests.unit.shard.fake_world import Break, FakeMachine, Park, Poison, Read, Release, Timer, World, Write, WriteRun

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.config import GroupConfig
from muster_coordinator.groups.coordinator import GroupCoordinator
from muster_coordinator.records.batch import HEADER_BYTES, RECORD_OVERHEAD_BYTES, batch_bytes, count_of
from muster_coordinator.records.control import Fence
from muster_coordinator.requests import configs as f
from muster_coordinator.requests import groups as m
from muster_coordinator.shard.shard import MAX_BATCH_RECORDS
from muster_coordinator.states import LEGAL_PREDECESSORS, ShardState


@pytest.fixture
def world() -> World:
    world = World()
    world.activate()
    return world


def test_write_is_answered_only_when_its_records_are_committed(world: World) -> None:
    asked = world.ask(Write(("a",)))
    world.turn()
    assert asked.got == []
    world.commit()
    assert asked.got == ["written"]


def test_read_waits_for_the_uncommitted_records_that_it_shows(world: World) -> None:
    world.ask(Write(("a",)))
    read = world.ask(Read())
    world.turn()
    assert read.got == []
    world.commit()
    assert read.got == [("read", ("a",))]


def test_read_of_committed_state_is_answered_in_its_turn(world: World) -> None:
    read = world.ask(Read())
    world.turn()
    assert read.got == [("read", ())]


def test_read_waits_until_its_round_is_confirmed_and_a_write_does_not(world: World) -> None:
    world.writer.read_round = 7
    written, read = world.ask(Write(("a",))), world.ask(Read())
    world.turn()
    world.commit()
    assert (written.got, read.got) == (["written"], [])
    world.shard.parked.reads_confirmed(6)
    assert read.got == []
    world.shard.parked.reads_confirmed(7)
    assert read.got == [("read", ("a",))]


def test_read_that_is_not_confirmed_in_time_is_refused(world: World) -> None:
    world.writer.read_round = 3
    read = world.ask(Read())
    world.turn()
    world.pod.now_ms += 501
    world.shard.refuse_overdue()
    assert read.got == [ErrorCode.COORDINATOR_NOT_AVAILABLE]


def test_read_of_the_epoch_before_waits_for_the_next_leader_change_record(world: World) -> None:
    world.writer.read_round = 3
    read = world.ask(Read())
    world.turn()
    world.shard.hold()
    world.open_epoch(5)
    world.turn()
    assert read.got == []
    world.commit()
    assert read.got == [("read", ())]


def test_operations_of_one_turn_share_one_batch(world: World) -> None:
    before = len(world.writer.batches)
    for text in "abc":
        world.ask(Write((text, text)))
    world.turn()
    assert [len(batch) for batch in world.writer.batches[before:]] == [6]
    assert world.machine.state == ["a", "a", "b", "b", "c", "c"]


def batch_texts(world: World) -> list[list[str]]:
    """What was written behind the leader-change record, batch by batch."""
    return [[record[2] for record in batch] for batch in world.writer.batches[1:]]


def world_with_batches_of(max_batch_bytes: int) -> World:
    machine = FakeMachine()
    machine.max_batch_bytes = max_batch_bytes
    world = World(machine)
    world.activate()
    return world


def test_no_batch_of_a_turn_is_larger_than_allowed_and_no_operation_is_torn() -> None:
    texts = [(f"{number}-" + "x" * 150, f"{number}+" + "x" * 150) for number in range(6)]
    world = world_with_batches_of(HEADER_BYTES + 4 * (RECORD_OVERHEAD_BYTES + 1 + 152))
    asked = [world.ask(Write(pair)) for pair in texts]
    world.turn()
    assert batch_texts(world) == [[*texts[0], *texts[1]], [*texts[2], *texts[3]], [*texts[4], *texts[5]]]
    assert all(batch_bytes(batch) <= world.machine.max_batch_bytes for batch in world.writer.batches[1:])
    world.commit()
    assert [each.got for each in asked] == [["written"]] * 6


def test_operation_that_no_batch_can_hold_gets_several() -> None:
    small, large = ("a",), tuple(f"{number:02}" + "y" * 198 for number in range(10))
    world = world_with_batches_of(HEADER_BYTES + 3 * (RECORD_OVERHEAD_BYTES + 1 + 200))
    first, second, third = (world.ask(Write(texts)) for texts in (small, large, small))
    world.turn()
    assert [len(batch) for batch in batch_texts(world)] == [1, 3, 3, 3, 1, 1]
    assert [text for batch in batch_texts(world) for text in batch] == [*small, *large, *small]
    assert all(batch_bytes(batch) <= world.machine.max_batch_bytes for batch in world.writer.batches[1:])
    world.shard.parked.committed(1 + 1 + 3)
    assert (first.got, second.got) == (["written"], []), "an answer waits for the last of its batches"
    world.commit()
    assert (second.got, third.got) == (["written"], ["written"])


def test_run_takes_as_many_offsets_as_it_has_records(world: World) -> None:
    end = world.writer.end_offset
    asked = [world.ask(request) for request in (Write(("a",)), WriteRun(7), WriteRun(3), Write(("b",)))]
    world.turn()
    assert world.machine.state == ["a", f"7 at {end + 1}", f"3 at {end + 8}", "b"]
    assert (world.writer.end_offset, len(world.writer.batches[-1])) == (end + 12, 4)
    world.shard.parked.committed(end + 10)
    assert [each.got for each in asked] == [["written"], ["written"], [], []]
    world.commit()
    assert [each.got for each in asked] == [["written"]] * 4


def test_batch_closes_at_its_largest_number_of_records_in_runs_too() -> None:
    world = world_with_batches_of(10 * MAX_BATCH_RECORDS)
    before = len(world.writer.batches)
    for _ in range(5):
        world.ask(WriteRun(MAX_BATCH_RECORDS // 2))
    world.turn()
    assert [count_of(batch) for batch in world.writer.batches[before:]] == [
        MAX_BATCH_RECORDS,
        MAX_BATCH_RECORDS,
        MAX_BATCH_RECORDS // 2,
    ]


def test_batch_is_full_of_the_bytes_of_runs_too() -> None:
    world = world_with_batches_of(HEADER_BYTES + 10)
    before = len(world.writer.batches)
    for count in (6, 4, 5, 6):
        world.ask(WriteRun(count))
    world.turn()
    assert [[run.count for run in batch] for batch in world.writer.batches[before:]] == [[6, 4], [5], [6]]


def test_commit_point_inside_the_log_answers_only_what_is_below_it(world: World) -> None:
    first, second = world.ask(Write(("a",))), world.ask(Write(("b",)))
    world.turn()
    world.commit(world.writer.end_offset - 1)
    assert (first.got, second.got) == (["written"], [])


def test_parked_request_is_answered_by_the_later_operation(world: World) -> None:
    parked = world.ask(Park())
    world.turn()
    world.ask(Write(("a",)))
    world.ask(Release())
    world.turn()
    assert parked.got == [], "it depends on a record that is not committed"
    world.commit()
    assert parked.got == ["at last"]


def test_defect_of_a_handler_costs_its_own_request(world: World) -> None:
    broken, fine = world.ask(Break()), world.ask(Write(("a",)))
    world.turn()
    world.commit()
    assert broken.got == [ErrorCode.UNKNOWN_SERVER_ERROR]
    assert fine.got == ["written"]
    assert world.metrics.operation_errors == 1
    assert world.shard.state is ShardState.ACTIVE


def test_record_that_cannot_be_replayed_fails_the_shard_and_answers_everything(world: World) -> None:
    written = world.ask(Write(("a",)))
    poisoned, queued, parked = world.ask(Poison()), world.ask(Read()), world.ask(Park())
    world.turn()
    assert world.shard.state is ShardState.FAILED
    assert world.shard.reason == "OperationFailed"
    for asked in (written, poisoned, queued, parked):
        assert asked.got == [ErrorCode.COORDINATOR_NOT_AVAILABLE]


def test_failed_append_fails_the_shard_and_tells_the_pod(world: World) -> None:
    asked = world.ask(Write(("a",)))
    world.writer.error = OSError(28, "No space left on device")
    world.turn()
    assert world.shard.state is ShardState.FAILED
    assert world.shard.reason == "CannotWrite"
    assert asked.got == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert world.pod.storage_errors == [world.writer.error]


def test_resigned_shard_answers_parked_queued_and_uncommitted_requests_once(world: World) -> None:
    parked = world.ask(Park())
    world.turn()
    uncommitted = world.ask(Write(("a",)))
    world.turn()
    queued = world.ask(Read())
    world.shard.close("resigned")
    world.turn()
    world.commit()
    for asked in (parked, uncommitted, queued):
        assert asked.got == [ErrorCode.NOT_COORDINATOR]
    late = world.ask(Read())
    assert late.got == [ErrorCode.NOT_COORDINATOR]


def test_requests_while_loading_are_told_so_except_heartbeats() -> None:
    world = World()
    world.shard.start_loading()
    commit = m.OffsetCommitRequest("g", -1, "", None, -1, (("t", ((0, 1, -1, None),)),), 7)
    heartbeat = m.HeartbeatRequest("g", 1, "m", None)
    answers = [world.ask(commit), world.ask(heartbeat)]
    assert [a.got for a in answers] == [[ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]] * 2


def test_request_that_is_wrong_in_itself_is_told_so_even_while_loading() -> None:
    world = World()
    world.shard.start_loading()
    assert world.ask(Break()).got == ["broken in itself"]


def test_shard_is_loading_until_its_epoch_is_open() -> None:
    world = World()
    world.shard.start_loading()
    world.open_epoch(4)
    assert world.shard.state is ShardState.LOADING
    world.shard.activate()
    assert world.shard.state is ShardState.ACTIVE


def test_request_runs_behind_the_record_that_opens_the_epoch_and_is_answered_when_both_are_committed() -> None:
    world = World()
    world.shard.start_loading()
    world.open_epoch(4)
    opened = world.writer.end_offset
    written, read = world.ask(Write(("a",))), world.ask(Read())
    world.turn()
    assert world.machine.state == ["a"]
    world.shard.parked.committed(opened)
    world.shard.activate()
    world.turn()
    assert (written.got, read.got) == ([], [])
    world.commit()
    assert (written.got, read.got) == (["written"], [("read", ("a",))])
    assert world.machine.loaded == 1


def test_request_that_ran_in_an_epoch_that_failed_is_refused() -> None:
    world = World()
    world.shard.start_loading()
    world.open_epoch(4)
    ran = world.ask(Write(("a",)))
    world.turn()
    queued = world.ask(Read())
    world.shard.close("no majority was heard")
    world.commit()
    assert (ran.got, queued.got) == ([ErrorCode.NOT_COORDINATOR],) * 2


def test_nothing_runs_before_the_epoch_is_committed_where_a_reshard_has_closed_the_partition() -> None:
    world = World()
    world.replayed.fence = Fence(1, closed=True)
    world.shard.start_loading()
    world.open_epoch(4)
    early = world.ask(Write(("a",)))
    world.shard.activate()
    late = world.ask(Write(("b",)))
    world.turn()
    assert (early.got, late.got) == ([ErrorCode.COORDINATOR_LOAD_IN_PROGRESS], [ErrorCode.COORDINATOR_NOT_AVAILABLE])
    assert (world.shard.state, world.machine.state, world.machine.loaded) == (ShardState.FENCED, [], 0)


def test_higher_epoch_keeps_the_state_and_what_was_queued(world: World) -> None:
    uncommitted = world.ask(Write(("a",)))
    world.turn()
    world.shard.hold()
    queued = world.ask(Write(("b",)))
    world.turn()
    assert world.machine.state == ["a"], "nothing runs between the promise and the new epoch"
    world.open_epoch(5)
    world.turn()
    world.commit()
    assert (uncommitted.got, queued.got) == (["written"], ["written"])
    assert world.machine.state == ["a", "b"]
    assert [("leader-change", 5)] in world.writer.batches


def test_request_whose_records_do_not_commit_in_time_is_told_so_once(world: World) -> None:
    asked = world.ask(Write(("a",)))
    world.turn()
    world.shard.refuse_overdue()
    assert asked.got == []
    world.pod.now_ms += 501
    world.shard.refuse_overdue()
    assert asked.got == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    world.commit()
    assert asked.got == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert world.metrics.commit_timeouts == 1


def test_timer_fires_in_the_order_of_the_queue_and_not_after_it_was_cancelled(world: World) -> None:
    world.ask(Timer(50))
    world.turn()
    world.pod.now_ms += 50
    cancel = world.ask(Timer(-1))  # is in the queue before the timer is due
    world.shard.fire_timers()
    world.turn()
    assert cancel.got == ["ok"]
    assert world.machine.fired == []
    world.ask(Timer(10))
    world.turn()
    world.pod.now_ms += 10
    world.shard.fire_timers()
    world.turn()
    assert world.machine.fired == [("t", "", "")]


def test_timer_that_was_set_before_a_fence_never_fires_after_it(world: World) -> None:
    """The members whose sessions it guards were sent away by the fence; the groups began anew since."""
    world.ask(Timer(50))
    world.turn()
    world.shard.append_fence(Fence(1, closed=True))
    assert world.shard.state is ShardState.FENCED
    world.shard.append_fence(Fence(1, closed=False))
    assert world.shard.state is ShardState.ACTIVE
    world.pod.now_ms += 50
    world.shard.fire_timers()
    world.turn()
    assert world.machine.fired == []


@pytest.mark.parametrize(
    "request_",
    [
        m.DescribeGroupRequest("g", 5),
        m.ListGroupsRequest(),
        f.ListConfigResourcesRequest(),
        m.OffsetFetchRequest("g", None, -1, (("t", (0,)),), False),
        m.OffsetFetchRequest("g", None, -1, None, False),
        m.HeartbeatRequest("g", 1, "member", None),
        m.DeleteGroupRequest("g"),
        m.OffsetDeleteRequest("g", (("t", (0,)),)),
    ],
    ids=lambda request: type(request).__name__,
)
def test_what_a_group_coordinator_answers_without_a_record_waits_for_its_round(request_: Any) -> None:
    """The answer shows state, though it may be an error: that there is no such group, for instance."""
    world = World(GroupCoordinator(GroupConfig(), AnyTopic(), lambda: "suffix"))
    world.activate()
    world.turn()
    end_offset = world.writer.end_offset
    world.writer.read_round = 7
    asked = world.ask(request_)
    world.turn()
    assert world.writer.end_offset == end_offset
    world.commit()
    world.shard.parked.reads_confirmed(6)
    assert asked.got == []
    world.shard.parked.reads_confirmed(7)
    [answer] = asked.got
    assert not isinstance(answer, ErrorCode)


def test_event_of_the_pod_runs_in_the_order_of_the_queue(world: World) -> None:
    world.ask(Write(("a", "b")))
    world.shard.notify("a")
    read = world.ask(Read())
    world.turn()
    world.commit()
    assert read.got == [("read", ("a", "b", "-a"))]
    world.shard.close("resigned")
    world.shard.notify("b")
    world.turn()
    assert world.machine.state == ["a", "b", "-a"]


@pytest.mark.parametrize("new", list(ShardState))
@pytest.mark.parametrize("old", list(ShardState))
def test_every_step_of_the_state_table_is_either_taken_or_refused(old: ShardState, new: ShardState) -> None:
    world = World()
    world.shard.state = old
    if old in LEGAL_PREDECESSORS[new]:
        world.shard._enter(new)
        assert world.shard.state is new
    else:
        with pytest.raises(AssertionError, match="no step"):
            world.shard._enter(new)
