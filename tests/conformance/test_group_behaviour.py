"""Behaviour of groups and offsets that Kafka's suites test and that no unit test or script covers by itself."""

from __future__ import annotations

import pytest
from tests.unit.groups.harness import Harness, LogEntry, protocols

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.config import GroupConfig
from muster_coordinator.groups.effects import EXPIRE_OFFSETS_TIMER, join_timer, session_timer, sync_timer
from muster_coordinator.records.decode import decode_record
from muster_coordinator.records.group_metadata import (
    GroupMember,
    GroupMetadataRecord,
    GroupMetadataValue,
    encode_group_metadata_key,
)
from muster_coordinator.records.offset_commit import encode_offset_commit_key
from muster_coordinator.records.structs import OffsetCommitRecord, OffsetCommitValue
from muster_coordinator.requests import groups as m
from muster_coordinator.state_machine import Result

RETENTION_MINUTES = 100
RETENTION_MS = RETENTION_MINUTES * 60_000
CHECK_MS = 600_000
INT32_MAX = 2**31 - 1


@pytest.fixture
def h() -> Harness:
    return Harness(GroupConfig(offsets_retention_minutes=RETENTION_MINUTES))


def topics(*partitions: tuple[str, int]) -> tuple[tuple[str, tuple[tuple[int, int, int, str], ...]], ...]:
    """For a commit of offset 5 to each partition."""
    return tuple((topic, ((partition, 5, -1, ""),)) for topic, partition in partitions)


def nothing(result: Result) -> bool:
    return not (result.records or result.replies or result.timers or result.response)


# -- static members ----------------------------------------------------------------------------------------------------


def test_follower_with_other_protocols_joins_the_rebalance_of_its_static_leader(h: Harness) -> None:
    leader, follower = h.static_group(protocols=protocols("range", "roundrobin"))
    rejoined = h.join("g", leader, group_instance_id="leader", protocols=protocols("range", "roundrobin"))
    assert rejoined.parked
    changed = h.join("g", follower, group_instance_id="follower", protocols=protocols("roundrobin"))
    for join in (rejoined, changed):
        assert (join.code, join.response.generation_id, join.response.leader) == (0, 2, leader)
        assert join.response.protocol_name == "roundrobin"
    assert {each.member_id for each in rejoined.response.members} == {leader, follower}
    assert changed.response.members == ()


@pytest.mark.parametrize(
    "changes",
    [
        {"protocols": protocols("range", "roundrobin")},
        {"session_timeout_ms": 20_000, "rebalance_timeout_ms": 90_000},
    ],
    ids=["protocols", "timeouts"],
)
def test_static_restart_that_was_not_stored_has_not_happened(h: Harness, changes: dict[str, object]) -> None:
    old, follower = h.static_group(protocols=protocols("range"))
    before = h.group().durable
    restarted = h.join("g", group_instance_id="leader", **{"protocols": protocols("range"), **changes})
    new = restarted.response.member_id
    h.lose_records(1)
    assert h.group().durable == before
    assert h.heartbeat("g", 1, old, "leader") == ErrorCode.NONE
    assert h.heartbeat("g", 1, new, "leader") == ErrorCode.FENCED_INSTANCE_ID
    assert h.heartbeat("g", 1, follower, "follower") == ErrorCode.NONE
    member = h.group().members[old]
    assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (10_000, 60_000)


# -- members that leave ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unknown", [(), ("nobody",)], ids=["all known", "one unknown"])
def test_joined_and_pending_members_leave_in_one_batch(h: Harness, unknown: tuple[str, ...]) -> None:
    members = h.stable_group(members=2)
    pending = h.join("g").response.member_id
    left = h.leave("g", *members, pending, *unknown)
    assert left.code == ErrorCode.NONE
    assert [(each.member_id, each.error_code) for each in left.response.members] == [
        *((member, ErrorCode.NONE) for member in (*members, pending)),
        *((member, ErrorCode.UNKNOWN_MEMBER_ID) for member in unknown),
    ]
    assert (h.state(), h.group().pending_members) == ("Empty", set())


# -- timers that come too late -----------------------------------------------------------------------------------------


def test_session_that_ends_after_its_member_has_left_changes_nothing(h: Harness) -> None:
    stays, leaves = h.stable_group(members=2)
    h.leave("g", leaves)
    assert nothing(h.coordinator.on_timer(session_timer("g", leaves), h.now_ms))
    assert list(h.group().members) == [stays]


@pytest.mark.parametrize(
    "key", [session_timer("g", "client-001"), join_timer("g"), sync_timer("g")], ids=lambda key: key[0]
)
def test_timer_of_a_group_that_is_gone_changes_nothing(h: Harness, key: tuple[str, str, str]) -> None:
    members = h.stable_group(members=1)
    h.leave("g", *members)
    assert h.delete() == ErrorCode.NONE
    written = len(h.log)
    assert nothing(h.coordinator.on_timer(key, h.now_ms))
    assert (len(h.log), h.group_ids()) == (written, [])


@pytest.mark.parametrize("key", [join_timer("g"), sync_timer("g")], ids=lambda key: key[0])
def test_timer_of_a_phase_that_is_over_changes_nothing(h: Harness, key: tuple[str, str, str]) -> None:
    h.stable_group(members=2)
    assert nothing(h.coordinator.on_timer(key, h.now_ms))
    assert (h.state(), h.group().generation) == ("Stable", 1)


def test_pending_member_that_stays_silent_ends_the_initial_rebalance_early() -> None:
    """The initial rebalance waits for its delay whoever joins or leaves, but not when a session ends in it."""
    h = Harness(GroupConfig(initial_rebalance_delay_ms=60_000))
    h.join("g", session_timeout_ms=6_000)
    joined = h.join_dynamic("g", session_timeout_ms=30_000)
    h.advance(5_999)
    assert joined.parked
    h.advance(1)
    assert (joined.code, joined.response.generation_id) == (ErrorCode.NONE, 1)
    assert h.group().pending_members == set()


# -- offsets -----------------------------------------------------------------------------------------------------------


def test_instance_id_of_a_commit_to_a_simple_group_is_ignored(h: Harness) -> None:
    assert h.commit(group_instance_id="instance") == ErrorCode.NONE
    assert h.offset() == 5


def test_commit_without_member_and_generation_to_a_group_that_rebalances_is_refused(h: Harness) -> None:
    members = h.stable_group(members=2)
    h.join("g", members[0])
    assert h.commit() == ErrorCode.UNKNOWN_MEMBER_ID


def test_largest_retention_never_ends() -> None:
    h = Harness(GroupConfig(offsets_retention_minutes=INT32_MAX))
    h.commit()
    h.now_ms += INT32_MAX * 60_000 - 1
    h.fire(EXPIRE_OFFSETS_TIMER)
    assert h.offset() == 5
    h.now_ms += 1
    h.fire(EXPIRE_OFFSETS_TIMER)
    assert h.offset() == -1


def test_deleted_group_takes_committed_and_pending_offsets_along_once_each(h: Harness) -> None:
    h.commit(topics=topics(("bar-0", 0), ("bar-0", 1), ("bar-1", 0)))
    h.txn_commit(10, topics=topics(("bar-1", 0), ("bar-2", 0)))
    written = len(h.log)
    assert h.delete() == ErrorCode.NONE
    tombstones = [decode_record(each.key, each.value) for each in h.log[written:] if isinstance(each, LogEntry)]
    assert {(each.topic, each.partition) for each in tombstones if isinstance(each, OffsetCommitRecord)} == {
        ("bar-0", 0),
        ("bar-0", 1),
        ("bar-1", 0),
        ("bar-2", 0),
    }
    assert len(tombstones) == 5  # the group's own is the last one
    assert tombstones[-1] == GroupMetadataRecord("g", None)
    assert h.coordinator.event_counts["offset_deletions"] == 4
    assert h.end_txn(10, committed=True) == ErrorCode.NONE
    assert h.coordinator.offset_count == 0


def test_search_for_expired_offsets_finds_nothing_where_there_are_no_groups(h: Harness) -> None:
    h.advance(CHECK_MS)
    assert (h.log, h.timers[EXPIRE_OFFSETS_TIMER]) == ([], h.now_ms + CHECK_MS)


# -- metrics -----------------------------------------------------------------------------------------------------------


def test_offset_counts_once_whatever_number_of_transactions_wrote_it(h: Harness) -> None:
    for producer, partition in ((4, 0), (5, 0), (6, 1)):
        h.txn_commit(producer, topics=topics(("bar", partition)))
    assert h.coordinator.offset_count == 0
    for producer in (4, 5, 6):
        h.end_txn(producer, committed=True)
    assert h.coordinator.offset_count == 2


def test_deleted_and_expired_offsets_are_counted(h: Harness) -> None:
    h.commit(topics=topics(("bar", 0), ("bar", 1), ("foo", 0)))
    h.send(m.OffsetDeleteRequest("g", (("bar", (0, 1, 2)),)))
    assert (h.coordinator.event_counts["offset_deletions"], h.coordinator.event_counts["offset_expirations"]) == (2, 0)
    h.advance(RETENTION_MS + CHECK_MS)
    assert (h.coordinator.event_counts["offset_deletions"], h.coordinator.event_counts["offset_expirations"]) == (2, 1)
    assert (h.coordinator.offset_count, h.group_ids()) == (0, [])


# -- records of a later Kafka ------------------------------------------------------------------------------------------

# Two tagged fields that nobody knows yet: 8 with three bytes, 9 with four.
FUTURE_TAGS = bytes((2, 8, 3)) + b"foo" + bytes((9, 4)) + (4000).to_bytes(4, "big")


def compact(text: bytes) -> bytes:
    return bytes((len(text) + 1,)) + text


def test_tagged_fields_of_a_later_offset_value_are_skipped() -> None:
    value = (
        (4).to_bytes(2, "big")
        + (1000).to_bytes(8, "big")
        + (100).to_bytes(4, "big")
        + compact(b"metadata")
        + (2000).to_bytes(8, "big")
        + FUTURE_TAGS
    )
    assert decode_record(encode_offset_commit_key("g", "t", 0), value) == OffsetCommitRecord(
        "g", "t", 0, OffsetCommitValue(1000, 100, "metadata", 2000)
    )


def test_tagged_fields_of_a_later_group_value_and_its_members_are_skipped() -> None:
    member = (
        b"".join(compact(text) for text in (b"member", b"instance", b"client", b"/host"))
        + (1).to_bytes(4, "big")
        + (2).to_bytes(4, "big")
        + compact(b"subscription")
        + compact(b"assignment")
        + FUTURE_TAGS
    )
    value = (
        (4).to_bytes(2, "big")
        + compact(b"consumer")
        + (10).to_bytes(4, "big")
        + compact(b"range")
        + compact(b"member")
        + (1000).to_bytes(8, "big")
        + bytes((2,))
        + member
        + FUTURE_TAGS
    )
    expected = GroupMember("member", "instance", "client", "/host", 1, 2, b"subscription", b"assignment")
    assert decode_record(encode_group_metadata_key("g"), value) == GroupMetadataRecord(
        "g", GroupMetadataValue("consumer", 10, "range", "member", 1000, (expected,))
    )
