"""A group whose route says Muster is served here as it was at Kafka: by this leader, and by every later one."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from tests.unit.mirror.harness import DAY_MS, HOUR_MS, MemoryWriter, MirrorShard, Upstream, new_machine, replay

from muster_coordinator.errors import ErrorCode
from muster_coordinator.log.cleaning.compaction import Compaction
from muster_coordinator.mirror.moving.at_kafka import GroupAtKafka
from muster_coordinator.mirror.moving.deciding import BeginSessionsRequest, BeginSessionsResponse, DecideRequest
from muster_coordinator.mirror.moving.differences import difference_of
from muster_coordinator.mirror.moving.leases import Leases
from muster_coordinator.mirror.moving.move import Move, Step, Task
from muster_coordinator.records.batch import encode_batch, read_batch
from muster_coordinator.records.errors import RecordDecodeError, UnsupportedValueVersionError
from muster_coordinator.records.group_route import GroupRoute, decode_route, encode_route
from muster_coordinator.requests import groups as m

GROUP = "orders"
SESSION_MS = 6_000


def kafka() -> Upstream:
    """A group of two members in generation 4, with an offset."""
    upstream = Upstream()
    upstream.generation(GROUP, 4, "a", "b")
    upstream.commit(GROUP, 7)
    upstream.commit("stays", 1)
    return upstream


def comparing(mirror: MirrorShard, upstream: Upstream, group: str = GROUP) -> Move:
    """A move of which nothing but the comparison is left."""
    move, leases = Move(group, 1, 60_000, 60_000, 0), Leases(1, 1_000, -10_000)
    for _ in range(3):
        if move.look(leases, mirror.machine.position.offset, True, False, 1) is Task.READ_END:
            move.end_read(upstream.end)
    assert move.step is Step.COMPARING
    return move


def answers(mirror: MirrorShard, group: str = GROUP) -> GroupAtKafka:
    """What Kafka would say, if the mirror has all of it."""
    describe, fetch = m.DescribeGroupRequest(group, 5), m.OffsetFetchRequest(group, None, -1, None, False)
    return GroupAtKafka(mirror.ask(describe), mirror.ask(fetch))


def moved(upstream: Upstream) -> MirrorShard:
    mirror = MirrorShard(MemoryWriter())
    mirror.follow_to_end(upstream)
    move = comparing(mirror, upstream)
    assert not mirror.ask(DecideRequest(GROUP, move, answers(mirror))).reason
    assert move.step is Step.DECIDING
    assert mirror.ask(BeginSessionsRequest(GROUP)) == BeginSessionsResponse(True)
    return mirror


def beat(mirror: MirrorShard, member: str = "a", generation: int = 4) -> int:
    return int(mirror.ask(m.HeartbeatRequest(GROUP, generation, member, None)).error_code)


def a_commit(offset: int) -> m.OffsetCommitRequest:
    return m.OffsetCommitRequest(GROUP, 4, "a", None, -1, (("t", ((0, offset, -1, ""),)),), 8)


def offset_of(mirror: MirrorShard) -> int:
    ((_, ((_, offset, *_),)),) = mirror.ask(m.OffsetFetchRequest(GROUP, None, -1, None, False)).topics
    return int(offset)


def pass_time(mirror: MirrorShard, ms: int) -> None:
    mirror.pod.now_ms += ms
    mirror.shard.fire_timers()
    mirror.pod.turn()
    mirror.shard.parked.committed(mirror.writer.end_offset)


# -- the record --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("route", [GroupRoute(GROUP, 1, True), GroupRoute("grüße", 2**31 - 1, False)])
def test_record_says_what_was_written(route: GroupRoute) -> None:
    assert decode_route(*encode_route(route)) == route


def test_damaged_record_is_no_route() -> None:
    key, value = encode_route(GroupRoute(GROUP, 1, True))
    for damaged in (None, value[:-1], value[:-1] + b"\x02"):
        with pytest.raises(RecordDecodeError):
            decode_route(key, damaged)
    with pytest.raises(RecordDecodeError):
        decode_route(key[:-1], value)
    with pytest.raises(UnsupportedValueVersionError):
        decode_route(key, b"\x00\x01" + value[2:])


# -- the group is Muster's ---------------------------------------------------------------------------------------------


def test_group_goes_on_in_its_generation_with_its_members_and_offsets() -> None:
    mirror = moved(kafka())
    assert (beat(mirror, "a"), beat(mirror, "b")) == (0, 0)
    assert beat(mirror, "a", 3) == ErrorCode.ILLEGAL_GENERATION
    assert beat(mirror, "c") == ErrorCode.UNKNOWN_MEMBER_ID
    synced = mirror.ask(m.SyncGroupRequest(GROUP, 4, "b", None, "consumer", "range", (), 5))
    assert (synced.error_code, synced.assignment) == (0, b"parts")
    assert mirror.ask(a_commit(8)).topics == (("t", ((0, 0),)),)
    assert offset_of(mirror) == 8
    stays = m.HeartbeatRequest("stays", 1, "a", None)
    assert mirror.ask(stays).error_code == ErrorCode.NOT_COORDINATOR


def test_member_has_its_session_from_the_move_on() -> None:
    mirror = moved(kafka())
    pass_time(mirror, SESSION_MS - 1)
    assert beat(mirror, "a") == 0
    pass_time(mirror, 2)
    assert beat(mirror, "a") == ErrorCode.REBALANCE_IN_PROGRESS, "b is gone"
    assert beat(mirror, "b") == ErrorCode.UNKNOWN_MEMBER_ID


def test_later_leader_has_the_group_and_begins_its_sessions() -> None:
    first = moved(kafka())
    first.ask(a_commit(9))
    again = MirrorShard(first.writer, epoch=2)
    assert offset_of(again) == 9
    assert beat(again, "b") == 0
    pass_time(again, SESSION_MS + 1)
    assert beat(again, "b") == ErrorCode.UNKNOWN_MEMBER_ID
    assert again.machine.routes.by_group == first.machine.routes.by_group


def test_snapshot_has_the_route_and_what_came_after() -> None:
    mirror = moved(kafka())
    mirror.ask(a_commit(9))
    loaded = new_machine()
    for part in mirror.machine.snapshot(1):
        loaded.check(part)
        loaded.restore(part)
    assert loaded.routes.by_group == {GROUP: GroupRoute(GROUP, 1, True)}
    assert loaded.groups.durable_state() == mirror.machine.groups.durable_state()
    assert (loaded.position, loaded.has_strays) == (mirror.machine.position, False)


@pytest.mark.parametrize("leader", ["the same", "a later one"])
def test_what_kafka_says_later_changes_nothing(leader: str) -> None:
    upstream = kafka()
    mirror = moved(upstream)
    mirror.ask(a_commit(9))
    upstream.commit(GROUP, 8)  # of a gateway that was frozen
    upstream.generation(GROUP, 5)  # its sessions are over there
    upstream.now_ms += 8 * DAY_MS
    upstream.remove(GROUP)
    upstream.remove_group(GROUP)
    upstream.commit("stays", 2)
    if leader != "the same":
        mirror = MirrorShard(mirror.writer, epoch=2)
    mirror.follow_to_end(upstream)
    assert (offset_of(mirror), beat(mirror)) == (9, 0)
    assert mirror.state()["committed"]["stays", "t", 0].offset == 2
    assert mirror.machine.event_counts["mirror_records_left_out"] == 4
    assert not mirror.machine.has_strays


def test_client_that_goes_on_at_kafka_is_noticed() -> None:
    upstream = kafka()
    mirror = moved(upstream)
    assert not mirror.machine.bypasses.news()
    upstream.generation(GROUP, 5, "c")
    mirror.follow_to_end(upstream)
    (bypass,) = mirror.machine.bypasses.news()
    assert (bypass.group_id, bypass.also_here) == (GROUP, True)
    assert GROUP in mirror.machine.bypasses.with_members


def test_group_stays_when_the_mirror_reads_all_again() -> None:
    upstream = kafka()
    mirror = moved(upstream)
    mirror.ask(a_commit(9))
    created_again = Upstream(b"another topic id")
    created_again.commit(GROUP, 1)
    created_again.commit("new", 1)
    mirror.follow_to_end(created_again)
    assert (offset_of(mirror), beat(mirror)) == (9, 0)
    assert set(mirror.state()["committed"]) == {(GROUP, "t", 0), ("new", "t", 0)}
    assert MirrorShard(mirror.writer, epoch=2).state() == mirror.state()


def test_a_route_that_stands_in_kafkas_topic_is_none() -> None:
    upstream = kafka()
    upstream.append(encode_route(GroupRoute("stays", 9, True)))
    mirror = MirrorShard(MemoryWriter())
    mirror.follow_to_end(upstream)
    assert not mirror.machine.routes.by_group


def test_group_that_went_back_is_kafkas() -> None:
    mirror = moved(kafka())
    route = GroupRoute(GROUP, 2, False)
    mirror.writer.append([(*encode_route(route), route)], 1, 0)
    again = MirrorShard(mirror.writer, epoch=2)
    assert beat(again) == ErrorCode.NOT_COORDINATOR


def test_offsets_expire_when_muster_says_so() -> None:
    upstream = kafka()
    mirror = moved(upstream)
    pass_time(mirror, HOUR_MS)
    pass_time(mirror, HOUR_MS)
    assert mirror.machine.groups.group(GROUP) is not None
    for _ in range(9 * 24):
        pass_time(mirror, HOUR_MS)
    assert mirror.machine.groups.group(GROUP) is None
    assert "stays" in {group.group_id for group in mirror.ask(m.ListGroupsRequest()).groups}


# -- the decision ------------------------------------------------------------------------------------------------------


def test_members_are_compared_in_any_order() -> None:
    upstream = kafka()
    mirror = MirrorShard(MemoryWriter())
    mirror.follow_to_end(upstream)
    kafkas = answers(mirror)
    other = replace(kafkas.described, members=kafkas.described.members[::-1])
    assert difference_of(GroupAtKafka(other, kafkas.fetched), kafkas) == ""


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("state", "the state is 'PreparingRebalance' there and 'Stable' here"),
        ("assignment", "member 'b' is another one there than here"),
        ("member", "member 'b' is here and not there"),
        ("offset", "the offset of t-0 is another one there than here"),
        ("offsets", "the offset of t-0 is here and not there"),
        ("right", "the error code of DescribeGroups is 30 there and 0 here"),
    ],
)
def test_any_difference_leaves_the_group_at_kafka(what: str, said: str) -> None:
    upstream = kafka()
    mirror = MirrorShard(MemoryWriter())
    mirror.follow_to_end(upstream)
    kafkas = answers(mirror)
    described: Any = kafkas.described
    fetched = kafkas.fetched
    a, b = described.members
    changed: dict[str, dict[str, Any]] = {
        "state": {"group_state": "PreparingRebalance"},
        "assignment": {"members": (a, replace(b, assignment=b"other"))},
        "member": {"members": (a,)},
        "right": {"error_code": 30},
    }
    described = replace(described, **changed.get(what, {}))
    if what == "offset":
        fetched = m.OffsetFetchResponse(GROUP, 0, (("t", ((0, 8, -1, "", 0),)),))
    if what == "offsets":
        fetched = m.OffsetFetchResponse(GROUP, 0)
    move, end = comparing(mirror, upstream), mirror.writer.end_offset
    assert said in mirror.ask(DecideRequest(GROUP, move, GroupAtKafka(described, fetched))).reason
    assert (move.step, mirror.writer.end_offset) == (Step.GIVEN_UP, end)
    assert beat(mirror) == ErrorCode.NOT_COORDINATOR
    assert mirror.ask(BeginSessionsRequest(GROUP)) == BeginSessionsResponse(False)


def test_what_the_mirror_reads_after_the_comparison_was_asked_for_counts() -> None:
    upstream = kafka()
    mirror = MirrorShard(MemoryWriter())
    mirror.follow_to_end(upstream)
    move, kafkas = comparing(mirror, upstream), answers(mirror)
    upstream.generation(GROUP, 5)
    mirror.follow_to_end(upstream)
    assert "Stable" in mirror.ask(DecideRequest(GROUP, move, kafkas)).reason


def test_nothing_is_decided_while_the_mirror_reads_again() -> None:
    upstream = kafka()
    mirror = MirrorShard(MemoryWriter())
    mirror.follow_to_end(upstream)
    move, kafkas = comparing(mirror, upstream), answers(mirror)
    mirror.follow(Upstream(b"another topic id"))
    assert "read again" in mirror.ask(DecideRequest(GROUP, move, kafkas)).reason


def test_group_that_was_given_up_is_not_decided() -> None:
    upstream = kafka()
    mirror = MirrorShard(MemoryWriter())
    mirror.follow_to_end(upstream)
    move = comparing(mirror, upstream)
    move.give_up("a test")
    assert mirror.ask(DecideRequest(GROUP, move, answers(mirror))).reason == "a test"
    assert not mirror.machine.routes.by_group


def test_obstacles_are_named() -> None:
    upstream = kafka()
    upstream.commit("open", 1, producer=(9, 0))
    mirror = MirrorShard(MemoryWriter(), serves=lambda group_id: group_id == "own")
    assert list(mirror.machine.moves.obstacles(GROUP)) == ["the mirror has not read all of Kafka's partition yet"]
    mirror.follow_to_end(upstream)
    assert list(mirror.machine.moves.obstacles(GROUP)) == []
    assert list(mirror.machine.moves.obstacles("own")) == ["Muster serves it already"]
    assert list(mirror.machine.moves.obstacles("none")) == ["there is no such group"]
    assert list(mirror.machine.moves.obstacles("open")) == ["it has offsets in a transaction that is open"]


def test_a_second_move_has_a_higher_epoch() -> None:
    upstream = kafka()
    mirror = moved(upstream)
    back = GroupRoute(GROUP, 2, False)
    mirror.writer.append([(*encode_route(back), back)], 1, 0)
    again = MirrorShard(mirror.writer, epoch=2)
    move = comparing(again, upstream)
    assert not again.ask(DecideRequest(GROUP, move, answers(again))).reason
    assert again.machine.routes.by_group[GROUP] == GroupRoute(GROUP, 3, True)


def test_compacted_log_says_the_same() -> None:
    upstream = kafka()
    mirror = moved(upstream)
    for offset in range(8, 12):
        mirror.ask(a_commit(offset))
    compaction = Compaction(mirror.pod.now_ms, DAY_MS)
    for batch in mirror.writer.batches:
        compaction.note(batch)
    kept = [data for batch in mirror.writer.batches if (data := compaction.keep(batch))]
    loaded = new_machine()
    replay(loaded, [read_batch(data) for data in kept])
    assert len(kept) < len(mirror.writer.batches)
    assert loaded.routes.by_group == mirror.machine.routes.by_group
    assert loaded.groups.durable_state() == mirror.machine.groups.durable_state()


def test_a_pod_without_an_upstream_skips_the_record() -> None:
    mirror = moved(kafka())
    route = encode_route(GroupRoute(GROUP, 2, True))
    batch = read_batch(encode_batch([(*route, None)], base_offset=99, leader_epoch=1, timestamp_ms=0))
    groups: Any = new_machine().groups
    replay(groups, [*mirror.writer.batches, batch])
    assert groups.durable_state() == mirror.machine.groups.durable_state()
