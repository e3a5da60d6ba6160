"""The state machine of a mirror on the shard runtime: what it takes over, answers, refuses and takes back."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.groups.consumer.consumer_harness import ConsumerHarness
from tests.unit.groups.harness import CONSUMER
from tests.unit.mirror.harness import DAY_MS, MemoryWriter, MirrorShard, Upstream, new_groups, new_machine, replay

from muster_coordinator.errors import ErrorCode
from muster_coordinator.mirror.coordinator import TAKEN_BACK_AT_ONCE, MirrorCoordinator
from muster_coordinator.mirror.following import ReadAgain
from muster_coordinator.mirror.requests import TakeBackRequest, TakeInRequest
from muster_coordinator.mirror.routes import Routes
from muster_coordinator.records.batch import encode_batch, read_batch
from muster_coordinator.records.control import Fence, encode_fence
from muster_coordinator.records.mirror_position import MirrorPosition, encode_position
from muster_coordinator.requests import consumer_groups as c
from muster_coordinator.requests import groups as m


def mirror_of(upstream: Upstream, *prefixes: str) -> MirrorShard:
    mirror = MirrorShard(MemoryWriter(), serves=lambda group_id: group_id.startswith(prefixes))
    mirror.follow_to_end(upstream)
    return mirror


def fetch(group: str, *, stable: bool = False) -> m.OffsetFetchRequest:
    return m.OffsetFetchRequest(group, None, -1, None if not stable else (("t", (0,)),), stable)


def join(group: str) -> m.JoinGroupRequest:
    return m.JoinGroupRequest(group, 10_000, 10_000, "", None, "consumer", CONSUMER, None, "client", "/1", 0)


def a_commit(group: str, offset: int) -> m.OffsetCommitRequest:
    return m.OffsetCommitRequest(group, -1, "", None, -1, (("t", ((0, offset, -1, ""),)),), 8)


def test_reads_are_refused_until_the_end_was_reached_once() -> None:
    upstream = Upstream()
    upstream.commit("g", 7)
    mirror = MirrorShard(MemoryWriter())
    loading = int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert mirror.ask(fetch("g")).error_code == loading
    assert mirror.ask(m.DescribeGroupRequest("g", 5)).error_code == loading
    assert mirror.ask(m.ListGroupsRequest()).error_code == loading
    assert mirror.ask(c.DescribeConsumerGroupRequest("g")).error_code == loading
    mirror.follow_to_end(upstream)
    assert mirror.ask(fetch("g")).topics == (("t", ((0, 7, -1, "", 0),)),)
    assert mirror.ask(m.DescribeGroupRequest("g", 5)).group_state == "Empty"
    assert [group.group_id for group in mirror.ask(m.ListGroupsRequest()).groups] == ["g"]


def test_member_of_the_consumer_protocol_waits_until_the_topics_are_known() -> None:
    known: list[bool] = []
    machine = MirrorCoordinator(new_groups(lambda _: True), Routes(lambda _: True), lambda: bool(known))

    def beat(epoch: int) -> int:
        asked = c.ConsumerGroupHeartbeatRequest("g", "a", epoch, None, None, 1, ("t",), None, None, (), "c", "/1", 1)
        result = machine.operations[c.ConsumerGroupHeartbeatRequest](asked, object(), 0)
        for record in result.records:
            machine.replay(record[2], 0, 0)  # type: ignore[index]
        return int(result.response.error_code)  # type: ignore[union-attr]

    assert beat(c.JOINING_EPOCH) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    known.append(True)
    assert beat(c.JOINING_EPOCH) == 0
    known.clear()
    assert beat(2) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    joins = machine.operations[m.JoinGroupRequest](join("g"), object(), 0).response
    assert joins.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "a classic member would lose all as well"
    syncs = machine.operations[m.SyncGroupRequest](
        m.SyncGroupRequest("g", 1, "a", None, None, None, (), 3), object(), 0
    )
    assert syncs.response.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert beat(c.LEAVING_EPOCH) == 0, "who leaves needs no topics"
    parked = machine.operations[m.JoinGroupRequest](join("g"), object(), 0)
    assert parked.response is None, "nobody needs them in a classic group"


@pytest.mark.parametrize(
    "request_of_kafkas_group",
    [
        join("g"),
        m.SyncGroupRequest("g", 1, "a", None, None, None, (), 3),
        m.HeartbeatRequest("g", 1, "a", None),
        m.LeaveGroupRequest("g", (m.LeavingMember("a", None),)),
        m.DeleteGroupRequest("g"),
        m.OffsetDeleteRequest("g", (("t", (0,)),)),
        c.ConsumerGroupHeartbeatRequest("g", "a", 0, None, None, 1, ("t",), None, None, (), "c", "/h", 1),
    ],
    ids=lambda request: type(request).__name__,
)
def test_writes_are_kafkas(request_of_kafkas_group: object) -> None:
    upstream = Upstream()
    upstream.generation("g", 1, "a")
    mirror = mirror_of(upstream)
    end = mirror.writer.end_offset
    assert mirror.ask(request_of_kafkas_group).error_code == ErrorCode.NOT_COORDINATOR
    assert mirror.writer.end_offset == end


def test_commits_are_kafkas() -> None:
    mirror = mirror_of(Upstream())
    assert mirror.ask(a_commit("g", 1)).topics == (("t", ((0, int(ErrorCode.NOT_COORDINATOR)),)),)


def test_members_are_shown_as_the_last_record_has_them_and_have_no_sessions() -> None:
    upstream = Upstream()
    upstream.generation("g", 1, "a", "b")
    mirror = mirror_of(upstream)
    described = mirror.ask(m.DescribeGroupRequest("g", 5))
    assert (described.group_state, [each.member_id for each in described.members]) == ("Stable", ["a", "b"])
    upstream.generation("g", 2, "b", "c")
    mirror.follow_to_end(upstream)
    assert [each.member_id for each in mirror.ask(m.DescribeGroupRequest("g", 5)).members] == ["b", "c"]
    mirror.pod.now_ms += 10 * DAY_MS  # all sessions would be over, and all offsets expired
    mirror.shard.fire_timers()
    mirror.pod.turn()
    again = MirrorShard(mirror.writer, epoch=2)
    again.pod.now_ms = mirror.pod.now_ms
    again.shard.fire_timers()
    again.pod.turn()
    for each in (mirror, again):
        assert [member.member_id for member in each.ask(m.DescribeGroupRequest("g", 5)).members] == ["b", "c"]
    upstream.generation("g", 3)
    mirror.follow_to_end(upstream)
    assert mirror.ask(m.DescribeGroupRequest("g", 5)).group_state == "Empty"
    assert mirror.machine.groups.group_counts() == MirrorShard(mirror.writer, epoch=3).machine.groups.group_counts()


def test_what_kafka_has_not_expired_stays() -> None:
    upstream = Upstream()
    upstream.commit("g", 7)
    mirror = mirror_of(upstream, "muster-")
    assert mirror.ask(a_commit("muster-a", 3)) == m.OffsetCommitResponse((("t", ((0, 0),)),))
    mirror.pod.now_ms = upstream.now_ms + 100 * DAY_MS
    mirror.shard.fire_timers()
    mirror.pod.turn()
    assert mirror.ask(fetch("muster-a")).topics == ()
    assert mirror.ask(fetch("g")).topics == (("t", ((0, 7, -1, "", 0),)),)
    upstream.remove("g")
    upstream.remove_group("g")
    mirror.follow_to_end(upstream)
    assert mirror.ask(m.ListGroupsRequest()).groups == ()


def test_offsets_of_an_open_transaction_wait_for_its_marker() -> None:
    upstream = Upstream()
    upstream.commit("g", 1)
    upstream.commit("g", 2, producer=(9, 0))
    mirror = mirror_of(upstream)
    unstable = int(ErrorCode.UNSTABLE_OFFSET_COMMIT)
    assert mirror.ask(fetch("g", stable=True)).topics == (("t", ((0, -1, -1, "", unstable),)),)
    upstream.end_transaction((9, 0), commit=True)
    mirror.follow_to_end(upstream)
    assert mirror.ask(fetch("g", stable=True)).topics == (("t", ((0, 2, -1, "", 0),)),)


def test_a_marker_of_kafka_ends_the_offsets_of_a_group_of_musters() -> None:
    upstream = Upstream()
    mirror = mirror_of(upstream, "muster-")
    for offset, commit in ((5, True), (6, False)):
        request = m.TxnOffsetCommitRequest(
            "txn", "muster-a", 9, 0, -1, "", None, (("t", ((0, offset, -1, ""),)),), api_version=3
        )
        assert mirror.ask(request).topics == (("t", ((0, 0),)),)
        upstream.end_transaction((9, 0), commit=commit)
        mirror.follow_to_end(upstream)
    assert mirror.ask(fetch("muster-a", stable=True)).topics == (("t", ((0, 5, -1, "", 0),)),)


def test_records_of_kafka_about_a_group_of_musters_are_left_out() -> None:
    upstream = Upstream()
    mirror = mirror_of(upstream, "muster-")
    mirror.ask(a_commit("muster-a", 3))
    upstream.append(*_both("muster-a", "g"))
    mirror.follow_to_end(upstream)
    assert mirror.ask(fetch("muster-a")).topics == (("t", ((0, 3, -1, "", 0),)),)
    assert mirror.ask(fetch("g")).topics == (("t", ((0, 77, -1, "", 0),)),)
    counts = mirror.machine.event_counts
    assert (counts["mirror_records_taken_in"], counts["mirror_records_left_out"]) == (1, 1)
    assert MirrorShard(mirror.writer, 2).state() == mirror.state()


def _both(*groups: str) -> list[tuple[bytes, bytes | None]]:
    other = Upstream()
    for group in groups:
        other.commit(group, 77)
    return [(record.key or b"", record.value) for batch in other.batches for record in batch.records()]


def test_control_records_of_musters_own_are_not_taken_from_elsewhere() -> None:
    upstream = Upstream()
    upstream.commit("g", 1)
    fence = encode_batch(
        [(*encode_fence(Fence(1, closed=True)), None)], base_offset=1, leader_epoch=3, timestamp_ms=1, control=True
    )
    upstream.batches.append(read_batch(fence))
    upstream.end = 2
    upstream.append(encode_position(MirrorPosition(b"another mirror's", 99, complete=True)))
    upstream.commit("h", 2)
    mirror = mirror_of(upstream)
    assert mirror.machine.position.offset == upstream.end
    assert mirror.state() == upstream.state()
    assert MirrorShard(mirror.writer, 2).shard.replayed.fence is None


def test_a_record_that_could_not_be_loaded_again_is_not_taken_in() -> None:
    upstream = Upstream()
    upstream.commit("g", 1)
    mirror = mirror_of(upstream)
    upstream.append((b"\x00\x01cut", b"off"))
    end = mirror.writer.end_offset
    position = mirror.machine.position
    response = mirror.ask(TakeInRequest(position.offset, tuple(upstream.batches[1:]), position))
    assert "at or after offset 1" in response.problem
    assert mirror.writer.end_offset == end


def test_what_was_read_at_another_position_is_not_taken_in() -> None:
    upstream = Upstream()
    upstream.commit("g", 1)
    mirror = mirror_of(upstream)
    end = mirror.writer.end_offset
    response = mirror.ask(TakeInRequest(0, tuple(upstream.batches), mirror.machine.position))
    assert "position is offset 1" in response.problem
    assert mirror.writer.end_offset == end


@pytest.mark.parametrize("groups", [3, TAKEN_BACK_AT_ONCE, TAKEN_BACK_AT_ONCE + 1])
def test_a_new_topic_takes_the_place_of_all_that_was_read(groups: int) -> None:
    upstream = Upstream()
    for number in range(groups // 2):
        upstream.commit(f"g-{number}", number)
    upstream.commit("g-0", 5, producer=(3, 0))  # and never ends
    mirror = mirror_of(upstream, "muster-")
    mirror.ask(a_commit("muster-a", 3))
    created_again = Upstream(b"another topic id")
    created_again.commit("new", 1)
    assert isinstance(mirror.follow(created_again), ReadAgain)
    assert mirror.ask(m.ListGroupsRequest()).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert mirror.ask(fetch("muster-a")).topics == (("t", ((0, 3, -1, "", 0),)),)
    mirror.follow_to_end(created_again)
    assert {group.group_id for group in mirror.ask(m.ListGroupsRequest()).groups} == {"new", "muster-a"}
    assert not mirror.state()["pending"]


def test_a_leader_that_ends_while_it_takes_back_is_followed_by_one_that_goes_on() -> None:
    upstream = Upstream()
    for number in range(TAKEN_BACK_AT_ONCE):
        upstream.commit(f"g-{number}", number)
    mirror = mirror_of(upstream)
    assert not mirror.ask(TakeBackRequest()).done
    again = MirrorShard(mirror.writer, epoch=2)
    assert again.machine.position.clearing
    assert again.ask(fetch("g-5")).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    while not again.ask(TakeBackRequest()).done:
        pass
    again.follow_to_end(upstream)
    assert again.state() == upstream.state()


def test_a_checkpoint_has_the_position() -> None:
    upstream = Upstream()
    upstream.commit("g", 1)
    mirror = mirror_of(upstream)
    parts = list(mirror.machine.snapshot(10))
    loaded = new_machine()
    for part in parts:
        loaded.check(part)
    for part in parts:
        loaded.restore(part)
    assert loaded.position == mirror.machine.position
    assert loaded.groups.durable_state() == mirror.machine.groups.durable_state()
    assert loaded.snapshot_version != loaded.groups.snapshot_version


def test_a_pod_without_an_upstream_reads_the_log_of_a_mirror() -> None:
    """The position is a record of a type that it does not know, which a load skips."""
    upstream = Upstream()
    upstream.commit("g", 1)
    mirror = mirror_of(upstream)
    groups: Any = new_machine(lambda _: True).groups
    replay(groups, mirror.writer.batches)
    assert groups.durable_state() == mirror.machine.groups.durable_state()


def test_consumer_groups_are_shown_with_their_members_and_have_no_sessions_here() -> None:
    kafka = ConsumerHarness(t=1)
    kafka.join("a", "t")
    upstream = Upstream()
    upstream.append(*kafka.log)
    mirror = mirror_of(upstream)
    (listed,) = mirror.ask(m.ListGroupsRequest()).groups
    assert (listed.group_id, listed.group_state, listed.group_type) == ("g", "Stable", "consumer")
    described = mirror.ask(c.DescribeConsumerGroupRequest("g"))
    assert [(member.member_id, member.member_epoch) for member in described.members] == [("a", 2)]
    again = MirrorShard(mirror.writer, epoch=2)
    again.pod.now_ms += 10 * DAY_MS
    again.shard.fire_timers()
    again.pod.turn()
    assert len(again.ask(c.DescribeConsumerGroupRequest("g")).members) == 1
