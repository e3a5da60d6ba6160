"""Load and unload: replay of logs that Kafka or we wrote, in every order that compaction leaves. Origin: the load
cases of GroupMetadataManagerTest.scala, testOnLoaded*, testOnUnloaded*, testReplay* of the Java suites (names in
brackets)."""

from __future__ import annotations

import itertools

import pytest
from tests.unit.groups.harness import START_MS, Harness, LogEntry, Marker, replay, subscription

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.config import GroupConfig
from muster_coordinator.groups.coordinator import DurableState, GroupCoordinator
from muster_coordinator.records.decode import Change, UnknownRecord
from muster_coordinator.records.group_metadata import GroupMember, GroupMetadataRecord, GroupMetadataValue
from muster_coordinator.records.structs import OffsetCommitRecord, OffsetCommitValue


def offset_of(group_id: str, value: int | None, partition: int = 0) -> OffsetCommitRecord:
    stored = None if value is None else OffsetCommitValue(value, -1, "", START_MS)
    return OffsetCommitRecord(group_id, "t", partition, stored)


def member(member_id: str = "m", instance: str | None = None, rebalance_timeout_ms: int = 60_000) -> GroupMember:
    return GroupMember(
        member_id, instance, "client", "/127.0.0.1", rebalance_timeout_ms, 10_000, subscription(["t"]), b"assigned"
    )


def group_of(*members: GroupMember, generation: int = 3, timestamp_ms: int = START_MS) -> GroupMetadataValue:
    protocol, leader = ("range", members[0].member_id) if members else (None, None)
    return GroupMetadataValue("consumer", generation, protocol, leader, timestamp_ms, members)


def load(*changes: Change | tuple[Change, int]) -> Harness:
    """A harness that has loaded these changes; (change, producer id) is transactional."""
    h = Harness(check=False)
    h.coordinator = h._new()
    for offset, item in enumerate(changes):
        change, producer_id = item if isinstance(item, tuple) else (item, -1)
        h.coordinator.replay(change, offset, START_MS, producer_id, 0 if producer_id >= 0 else -1)
    h.timers.clear()
    h._apply(h.coordinator.on_loaded(h.now_ms), None)
    return h


# -- load --------------------------------------------------------------------------------------------------------------


def test_offsets_without_group_make_a_simple_group() -> None:
    """[LoadOffsetsWithoutGroup]"""
    h = load(offset_of("g", 5))
    assert (h.state(), h.describe().protocol_type, h.offset()) == ("Empty", "", 5)
    assert h.commit(offset=6) == ErrorCode.NONE


def test_group_with_members_loads_as_stable_with_running_sessions() -> None:
    """[LoadConsumerGroup, testOnLoaded]"""
    h = load(GroupMetadataRecord("g", group_of(member())))
    assert h.state() == "Stable"
    assert h.timers == {
        ("session", "g", "m"): START_MS + 10_000,
        ("expire-offsets", "", ""): START_MS + 600_000,
    }
    assert h.heartbeat("g", 3, "m") == ErrorCode.NONE
    assert h.sync("g", 3, "m").response.assignment == b"assigned"
    h.advance(10_000)
    assert (h.state(), h.group().generation) == ("Empty", 4)


def test_leader_is_the_one_of_the_record() -> None:
    value = GroupMetadataValue("consumer", 3, "range", "b", START_MS, (member("a"), member("b")))
    h = load(GroupMetadataRecord("g", value))
    assert h.join("g", "a").response.leader == "b"


def test_group_without_members_loads_as_empty() -> None:
    """[LoadEmptyGroupWithOffsets]"""
    h = load(GroupMetadataRecord("g", group_of(generation=15)), offset_of("g", 5))
    assert (h.state(), h.group().generation, h.describe().protocol_type) == ("Empty", 15, "consumer")
    assert h.offset() == 5


def test_last_record_of_a_group_counts() -> None:
    h = load(
        GroupMetadataRecord("g", group_of(member("a"))), GroupMetadataRecord("g", group_of(member("b"), generation=4))
    )
    assert (h.group().generation, list(h.group().members)) == (4, ["b"])


def test_static_members_are_known_by_their_instance() -> None:
    """[LoadGroupMetadataWithStaticMember]"""
    h = load(GroupMetadataRecord("g", group_of(member("m", "inst"))))
    assert h.heartbeat("g", 3, "other", "inst") == ErrorCode.FENCED_INSTANCE_ID
    assert h.join(group_instance_id="inst").code == ErrorCode.NONE


def test_group_without_rebalance_timeout_takes_the_session_timeout() -> None:
    """[ReadFromOldGroupMetadata]: value version 0"""
    h = load(GroupMetadataRecord("g", group_of(member(rebalance_timeout_ms=-1))))
    assert h.group().members["m"].rebalance_timeout_ms == 10_000


def test_empty_group_of_unknown_age_expires_by_its_commits() -> None:
    """[CurrentStateTimestampForAllVersions]: value versions 0 and 1"""
    h = load(GroupMetadataRecord("g", group_of(timestamp_ms=-1)), offset_of("g", 5))
    h.advance(7 * 24 * 3_600_000)
    assert h.group_ids() == []


def test_unparsable_or_malformed_subscription_loads() -> None:
    """[LoadGroupWithFaultyConsumerProtocol]"""
    for metadata in (b"", b"\x00\x00\xff\xff\xff\xff"):
        stored = GroupMember("m", None, "client", "/127.0.0.1", 60_000, 10_000, metadata, b"")
        h = load(GroupMetadataRecord("g", group_of(stored)))
        assert h.state() == "Stable"
        assert h.group().subscribed_topics is None


def test_member_of_loaded_group_keeps_its_protocol_through_a_rebalance() -> None:
    h = load(GroupMetadataRecord("g", group_of(member())))
    join = h.join("g", "m")
    assert (join.code, join.response.generation_id, join.response.protocol_name) == (ErrorCode.NONE, 4, "range")


def test_oversized_group_rebalances_after_the_load() -> None:
    """[testLoadGroup with group.max.size]"""
    h = Harness()
    h.stable_group(members=3)
    h.config = GroupConfig(max_size=2)
    h.reload()
    assert h.state() == "PreparingRebalance"


@pytest.mark.parametrize("change", [UnknownRecord(11, "ShareGroupMetadata"), UnknownRecord(99, "")])
def test_unknown_record_types_change_nothing(change: Change) -> None:
    assert load(change).group_ids() == []


def test_tombstones_of_what_is_not_there_are_ignored() -> None:
    """[LoadGroupWithTombstone, LoadOffsetsWithTombstones]"""
    h = load(GroupMetadataRecord("g", None), offset_of("g", None), offset_of("h", 5), offset_of("h", None))
    assert h.group_ids() == ["h"]
    assert h.coordinator.offset_count == 0


def test_offsets_after_the_removal_of_their_group_count() -> None:
    """[OffsetWriteAfterGroupRemoved]"""
    h = load(GroupMetadataRecord("g", group_of(member())), GroupMetadataRecord("g", None), offset_of("g", 5))
    assert (h.state(), h.describe().protocol_type, h.offset()) == ("Empty", "", 5)


def test_transactional_offsets_wait_for_their_marker() -> None:
    """[LoadTransactionalOffsetsWithoutGroup, DoNotLoadAbortedTransactionalOffsetCommits, mixes]"""
    h = load((offset_of("g", 5), 1), (offset_of("g", 6, partition=1), 2))
    assert h.fetch(topics=None) == {}
    h.end_txn(1, committed=True)
    h.end_txn(2, committed=False)
    assert h.fetch(topics=None) == {("t", 0): (5, 0)}


# -- order -------------------------------------------------------------------------------------------------------------


def scripted() -> Harness:
    """A log with everything in it: members, offsets, tombstones, transactions, a deleted and a recreated group."""
    h = Harness()
    ids = h.stable_group("g", members=2)
    for offset in (1, 2, 3):
        h.commit("g", offset, generation_id=1, member_id=ids[0])
    h.commit("simple", 1)
    h.txn_commit(1, "g", offset=50)
    h.txn_commit(2, "simple", offset=60)
    h.commit("simple", 2)
    h.end_txn(1, committed=True)
    h.end_txn(2, committed=False)
    h.commit("gone", 1)
    h.delete("gone")
    h.commit("again", 1)
    h.delete("again")
    h.commit("again", 2)
    h.txn_commit(3, "g", topics=(("t", ((7, 70, -1, ""),)),))
    h.leave("g", ids[0])
    h.join("g", ids[1])
    return h


def state_of(log: list[LogEntry | Marker]) -> DurableState:
    coordinator = GroupCoordinator(GroupConfig(), Harness().topics, lambda: "x")
    replay(coordinator, log)
    return coordinator.durable_state()


def compacted(log: list[LogEntry | Marker], upto: int, keep_tombstones: bool) -> list[LogEntry | Marker]:
    """The log after a cleaner has been over its first `upto` entries: the last record of a key and everything
    transactional survives; offsets of records stay what they were."""
    last = {entry.key: entry.offset for entry in log if isinstance(entry, LogEntry)}
    cleaned: list[LogEntry | Marker] = []
    for entry in log:
        if (
            isinstance(entry, Marker)
            or entry.offset >= upto
            or entry.producer[0] >= 0
            or (last[entry.key] == entry.offset and (keep_tombstones or entry.value is not None))
        ):
            cleaned.append(entry)
    return cleaned


@pytest.mark.parametrize("keep_tombstones", [True, False])
def test_compacted_log_loads_to_the_same_state_wherever_the_cleaner_stopped(keep_tombstones: bool) -> None:
    """[GroupMetadataManagerCompactionReplayTest]. Groups that only removed offsets implied may be forgotten."""
    log = scripted().log
    whole = state_of(log)
    for upto in range(len(log) + 1):
        state = state_of(compacted(log, upto, keep_tombstones))
        assert (state.groups, state.committed, state.pending) == (whole.groups, whole.committed, whole.pending)
        assert state.implied_groups <= whole.implied_groups


def test_every_prefix_of_the_log_is_what_the_leader_had_then() -> None:
    h = scripted()
    follower = GroupCoordinator(GroupConfig(), h.topics, lambda: "x")
    for end, entry in enumerate(h.log, 1):
        replay(follower, [entry])
        assert follower.durable_state() == state_of(h.log[:end])


def test_group_and_its_offsets_may_come_in_any_order() -> None:
    changes: list[Change] = [
        GroupMetadataRecord("g", group_of(member())),
        offset_of("g", 5),
        offset_of("g", 6, partition=1),
    ]
    states = []
    for order in itertools.permutations(range(3)):
        h = load(*(changes[index] for index in order))
        states.append((h.describe(), h.fetch(topics=None)))
    assert all(state == states[0] for state in states)


# -- unload ------------------------------------------------------------------------------------------------------------


def test_unload_answers_parked_joins_and_syncs_and_nothing_twice() -> None:
    """[testOnGroupUnloaded, testUnload]"""
    h = Harness()
    leader, _ = h.stable_group("joining", members=2)
    join = h.join("joining", leader)
    first = h.join_dynamic("initial")
    joins = [h.join_dynamic("syncing") for _ in range(2)]
    h.finish_initial_delay("syncing")
    sync = h.sync("syncing", 1, joins[1].response.member_id)
    first_parked = first if first.parked else None
    h.reload()
    assert (join.code, join.response.member_id) == (ErrorCode.NOT_COORDINATOR, leader)
    assert sync.code == ErrorCode.NOT_COORDINATOR
    assert first_parked is None or first_parked.code == ErrorCode.NOT_COORDINATOR


def test_unload_drops_live_state_and_keeps_the_durable_one() -> None:
    h = Harness()
    ids = h.stable_group(members=2)
    again = h.join("g", ids[0])
    h.join("pending-only")
    before = h.coordinator.durable_state()
    assert h.coordinator.on_unloaded() == (again,)
    assert h.coordinator.durable_state() == before
    assert h.coordinator.on_unloaded() == ()


def test_unload_keeps_groups_that_offsets_imply_and_forgets_those_without_a_record() -> None:
    h = Harness()
    h.commit("implied")
    h.commit("nothing-written", topics=(("t", ((0, 5, -1, "x" * 5_000),)),))
    assert h.coordinator.durable_state().implied_groups == {"implied"}
    h.coordinator.on_unloaded()
    assert h.coordinator.durable_state().implied_groups == {"implied"}
    assert h.group_ids() == ["implied"]


def test_unloaded_state_can_follow_and_lead_again() -> None:
    h = Harness()
    ids = h.stable_group(members=2)
    h.join("g", ids[0])
    h.coordinator.on_unloaded()
    replay(h.coordinator, [])
    h.timers.clear()
    h._apply(h.coordinator.on_loaded(h.now_ms), None)
    assert (h.state(), h.group().generation, set(h.group().members)) == ("Stable", 1, set(ids))
    assert h.heartbeat("g", 1, ids[0]) == ErrorCode.NONE
