"""DeleteGroups, OffsetDelete, expiry and topic deletion. Origin: testDeleteGroup*, testDeleteOffset*,
testCleanupExpiredOffsets*, testIsSubscribedToTopic, testOffsetExpirationCondition* of GroupCoordinatorTest,
OffsetMetadataManagerTest, ClassicGroupTest."""

from __future__ import annotations

import pytest
from tests.unit.groups.harness import Harness, protocols

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.config import GroupConfig
from muster_coordinator.groups.effects import DELETE_PARTITIONS_TIMER
from muster_coordinator.requests import groups as m

RETENTION_MINUTES = 100
RETENTION_MS = RETENTION_MINUTES * 60_000
CHECK_MS = 600_000
LONG = 1_800_000


@pytest.fixture
def h() -> Harness:
    return Harness(GroupConfig(offsets_retention_minutes=RETENTION_MINUTES))


def delete_offsets(h: Harness, *topics: str) -> object:
    return h.send(m.OffsetDeleteRequest("g", tuple((topic, (0,)) for topic in topics))).response


def commit_to(h: Harness, *topics: str, **fields: object) -> None:
    assert h.commit(topics=tuple((topic, ((0, 5, -1, ""),)) for topic in topics), **fields) == 0


# -- DeleteGroups ------------------------------------------------------------------------------------------------------


def test_unknown_group_cannot_be_deleted(h: Harness) -> None:
    assert h.delete() == ErrorCode.GROUP_ID_NOT_FOUND


def test_group_with_members_cannot_be_deleted(h: Harness) -> None:
    h.stable_group()
    assert h.delete() == ErrorCode.NON_EMPTY_GROUP


def test_empty_group_is_deleted_with_its_offsets(h: Harness) -> None:
    """[testDeleteEmptyGroupWithStoredOffsets]"""
    (member,) = h.stable_group()
    commit_to(h, "t", "u", generation_id=1, member_id=member)
    h.leave("g", member)
    assert h.delete() == ErrorCode.NONE
    assert [value for _, value, _ in h.last.records] == [None] * 3
    assert h.group_ids() == []
    assert h.coordinator.offset_count == 0
    assert h.delete() == ErrorCode.GROUP_ID_NOT_FOUND
    h.reload()
    assert h.group_ids() == []


def test_deleted_group_forgets_its_pending_members(h: Harness) -> None:
    member = h.join().response.member_id
    assert h.delete() == ErrorCode.NONE
    assert ("session", "g", member) not in h.timers
    assert h.join("g", member).code == ErrorCode.UNKNOWN_MEMBER_ID


def test_group_can_be_created_again_after_its_deletion(h: Harness) -> None:
    h.commit(offset=1)
    h.delete()
    h.commit(offset=2)
    h.reload()
    assert h.offset() == 2


# -- OffsetDelete ------------------------------------------------------------------------------------------------------


def test_offset_delete_refuses_empty_and_unknown_groups(h: Harness) -> None:
    assert h.send(m.OffsetDeleteRequest("", ())).code == ErrorCode.INVALID_GROUP_ID
    assert delete_offsets(h, "t") == m.OffsetDeleteResponse(ErrorCode.GROUP_ID_NOT_FOUND)


def test_offsets_of_empty_group_are_deleted(h: Harness) -> None:
    """[testDeleteOffsetsWithEmptyGroup]; a partition without an offset is answered the same and writes nothing"""
    commit_to(h, "t", "u")
    assert delete_offsets(h, "t", "v") == m.OffsetDeleteResponse(0, (("t", ((0, 0),)), ("v", ((0, 0),))))
    assert len(h.last.records) == 1
    assert h.fetch(topics=None) == {("u", 0): (5, 0)}


def test_group_whose_offsets_are_all_deleted_stays_until_the_next_check(h: Harness) -> None:
    commit_to(h, "t")
    delete_offsets(h, "t")
    assert h.state() == "Empty"
    h.advance(CHECK_MS)
    assert h.group_ids() == []


def test_group_with_members_of_another_type_refuses(h: Harness) -> None:
    """[testDeleteOffsetsNonEmptyNonConsumerGroup]"""
    h.stable_group(protocol_type="connect")
    assert delete_offsets(h, "t") == m.OffsetDeleteResponse(ErrorCode.NON_EMPTY_GROUP)


def test_consumer_group_refuses_topics_that_it_is_subscribed_to(h: Harness) -> None:
    """[testDeleteOffsetsWithConsumerGroup, subscribed topic]"""
    (member,) = h.stable_group()
    commit_to(h, "t", "u", generation_id=1, member_id=member)
    assert delete_offsets(h, "t", "u") == m.OffsetDeleteResponse(0, (("t", ((0, 86),)), ("u", ((0, 0),))))
    assert h.fetch(topics=None) == {("t", 0): (5, 0)}


def test_subscription_is_known_after_a_reload(h: Harness) -> None:
    h.stable_group()
    h.reload()
    assert delete_offsets(h, "t", "u") == m.OffsetDeleteResponse(0, (("t", ((0, 86),)), ("u", ((0, 0),))))


def test_unparsable_subscription_refuses_every_topic(h: Harness) -> None:
    """Reference, section 11"""
    h.stable_group(protocols=(("range", b""),))
    assert delete_offsets(h, "t", "u") == m.OffsetDeleteResponse(0, (("t", ((0, 86),)), ("u", ((0, 86),))))


def test_unknown_topic_is_told(h: Harness) -> None:
    commit_to(h, "t")
    h.topics.missing.add(("u", 0))
    assert delete_offsets(h, "u") == m.OffsetDeleteResponse(0, (("u", ((0, 3),)),))


def test_pending_offset_alone_is_deleted(h: Harness) -> None:
    h.txn_commit(1)
    delete_offsets(h, "t")
    assert len(h.last.records) == 1
    assert h.fetch(require_stable=True) == {("t", 0): (-1, 0)}
    h.end_txn(1, committed=True)
    assert h.offset() == -1


# -- expiry ------------------------------------------------------------------------------------------------------------


def test_offset_of_simple_group_expires_after_its_commit_and_the_group_with_it(h: Harness) -> None:
    commit_to(h, "t")
    h.advance(RETENTION_MS - CHECK_MS)
    assert h.offset() == 5
    h.advance(CHECK_MS)
    assert h.offset() == -1
    assert h.group_ids() == []
    assert h.coordinator.event_counts["offset_expirations"] == 1


def test_simple_group_stays_while_one_offset_stays(h: Harness) -> None:
    commit_to(h, "t")
    h.advance(RETENTION_MS // 2)
    commit_to(h, "u")
    h.advance(RETENTION_MS // 2)
    assert h.fetch(topics=None) == {("u", 0): (5, 0)}
    assert h.state() == "Empty"


def test_offsets_of_emptied_group_expire_after_it_became_empty(h: Harness) -> None:
    """[testOffsetExpirationSemantics]"""
    (member,) = h.stable_group(session_timeout_ms=LONG)
    commit_to(h, "t", generation_id=1, member_id=member)
    h.advance(LONG - 1)
    h.leave("g", member)
    h.reload()
    h.advance(RETENTION_MS - CHECK_MS)
    assert h.offset() == 5
    h.advance(CHECK_MS)
    assert h.group_ids() == []


def test_stable_consumer_group_keeps_what_it_is_subscribed_to(h: Harness) -> None:
    (member,) = h.stable_group(session_timeout_ms=LONG)
    commit_to(h, "t", "u", generation_id=1, member_id=member)
    keep(h, member)
    assert h.fetch(topics=None) == {("t", 0): (5, 0)}
    assert h.state() == "Stable"


def test_stable_group_of_another_type_keeps_everything(h: Harness) -> None:
    (member,) = h.stable_group(session_timeout_ms=LONG, protocol_type="connect")
    commit_to(h, "t", generation_id=1, member_id=member)
    keep(h, member)
    assert h.offset() == 5


def test_group_with_unparsable_subscription_keeps_everything(h: Harness) -> None:
    (member,) = h.stable_group(session_timeout_ms=LONG, protocols=(("range", b""),))
    commit_to(h, "u", generation_id=1, member_id=member)
    keep(h, member)
    assert h.offset(topic="u") == 5


def test_rebalancing_group_keeps_everything(h: Harness) -> None:
    """[KAFKA-13636]"""
    timeouts = {"session_timeout_ms": LONG, "rebalance_timeout_ms": 10 * RETENTION_MS}
    leader, follower = h.stable_group(members=2, **timeouts)
    commit_to(h, "u", generation_id=1, member_id=leader)
    h.join("g", leader, **timeouts)
    keep(h, follower, expected=ErrorCode.REBALANCE_IN_PROGRESS)
    assert h.state() == "PreparingRebalance"
    assert h.offset(topic="u") == 5


def keep(h: Harness, member: str, expected: ErrorCode = ErrorCode.NONE) -> None:
    """Keep a member alive past the retention."""
    for _ in range(RETENTION_MS // CHECK_MS + 1):
        h.advance(CHECK_MS)
        assert h.heartbeat("g", 1, member) == expected


def test_subscription_changes_with_the_members(h: Harness) -> None:
    (member,) = h.stable_group(session_timeout_ms=LONG)
    commit_to(h, "t", "u", generation_id=1, member_id=member)
    h.join("g", member, session_timeout_ms=LONG, protocols=protocols("range", topics=["u"]))
    h.sync("g", 2, member, {member: b""})
    for _ in range(RETENTION_MS // CHECK_MS + 1):
        h.advance(CHECK_MS)
        h.heartbeat("g", 2, member)
    assert h.fetch(topics=None) == {("u", 0): (5, 0)}


def test_explicit_retention_beats_that_of_the_group(h: Harness) -> None:
    """[testOffsetExpirationOfSimpleConsumer with expire timestamp, LoadOffsetFromOldCommit]"""
    commit_to(h, "t", retention_time_ms=CHECK_MS, api_version=4)
    commit_to(h, "u", retention_time_ms=10 * RETENTION_MS, api_version=4)
    h.advance(CHECK_MS)
    assert h.fetch(topics=None) == {("u", 0): (5, 0)}
    h.advance(2 * RETENTION_MS)
    assert h.fetch(topics=None) == {("u", 0): (5, 0)}


def test_offset_with_open_transaction_is_kept(h: Harness) -> None:
    commit_to(h, "t", "u")
    h.txn_commit(1)
    h.advance(RETENTION_MS)
    assert h.fetch(topics=None) == {("t", 0): (5, 0)}
    h.end_txn(1, committed=False)
    h.advance(CHECK_MS)
    assert h.group_ids() == []


def test_group_with_only_an_open_transaction_is_kept(h: Harness) -> None:
    h.txn_commit(1)
    h.advance(RETENTION_MS)
    assert h.group_ids() == ["g"]


def test_search_goes_through_many_groups_in_slices() -> None:
    h = Harness(GroupConfig(offsets_retention_minutes=1, expiry_slice=3))
    for number in range(10):
        h.commit(f"g{number}")
    h.check = False
    h.now_ms = h.timers.pop(("expire-offsets", "", ""))
    steps = 0
    while (due := h.timers.pop(("expire-offsets", "", ""), h.now_ms)) == h.now_ms:
        h._apply(h.coordinator.on_timer(("expire-offsets", "", ""), h.now_ms), None)
        assert len(h.last.records) <= 6
        steps += 1
    assert steps == 5
    assert due == h.now_ms + CHECK_MS
    assert h.group_ids() == []


# -- topic deletion ----------------------------------------------------------------------------------------------------


def test_offsets_of_deleted_topics_go_in_every_group(h: Harness) -> None:
    """[testOnPartitionsDeleted]"""
    commit_to(h, "t", "u")
    h.commit("other")
    h.txn_commit(1, topics=(("t", ((1, 5, -1, ""),)),))
    h.topics.missing |= {("t", 0), ("t", 1)}
    assert len(h.partitions_deleted().records) == 3
    assert h.fetch(topics=None) == {("u", 0): (5, 0)}
    h.end_txn(1, committed=True)
    assert h.fetch(topics=None) == {("u", 0): (5, 0)}


def test_search_for_offsets_of_deleted_topics_goes_through_many_groups_in_slices() -> None:
    h = Harness(GroupConfig(expiry_slice=4))
    for number in range(7):
        commit_to(h, "t", "u", group_id=f"g{number}")
    h.topics.missing.add(("t", 0))
    assert len(h.partitions_deleted().records) == 2, "the first slice"
    h.check = False  # the others come by a timer of the partition
    slices = 0
    while h.timers.pop(DELETE_PARTITIONS_TIMER, None) is not None:
        h.fire(DELETE_PARTITIONS_TIMER)
        assert len(h.last.records) <= 2
        slices += 1
    assert slices == 3
    assert {h.offset(f"g{number}", "t") for number in range(7)} == {-1}
    assert {h.offset(f"g{number}", "u") for number in range(7)} == {5}


def test_deletion_of_further_topics_begins_the_search_anew() -> None:
    h = Harness(GroupConfig(expiry_slice=1))
    for number in range(3):
        commit_to(h, "t", "u", group_id=f"g{number}")
    h.check = False
    h.topics.missing.add(("t", 0))
    h.partitions_deleted()
    h.topics.missing.add(("u", 0))
    h.partitions_deleted()
    while h.timers.pop(DELETE_PARTITIONS_TIMER, None) is not None:
        h.fire(DELETE_PARTITIONS_TIMER)
    assert h.coordinator.offset_count == 0


def test_offset_of_another_topic_with_the_same_name_stays(h: Harness) -> None:
    """[testOnPartitionsDeleted with the id of a topic that was made anew]"""
    h.topics.ids["t"] = b"the former topic"
    h.commit("committed")
    h.txn_commit(1, "pending")
    h.txn_commit(2, "both", topics=(("t", ((0, 9, -1, ""),)),))
    h.topics.ids.clear()
    h.commit("both")
    h.commit("named")
    h.topics.missing.add(("t", 0))
    assert len(h.partitions_deleted().records) == 1
    h.end_txn(1, committed=True)
    h.end_txn(2, committed=True)
    assert {group: h.offset(group) for group in ("committed", "pending", "both", "named")} == {
        "committed": 5,
        "pending": 5,
        "both": 5,
        "named": -1,
    }
    h.topics.ids["t"] = b"the former topic"
    h.partitions_deleted()
    assert (h.offset("committed"), h.offset("pending")) == (-1, -1)


def test_offset_without_a_topic_id_goes_with_the_topic(h: Harness) -> None:
    h.commit(api_version=4, retention_time_ms=RETENTION_MS)  # the record of such a commit has no room for the id
    h.topics.missing.add(("t", 0))
    assert len(h.partitions_deleted().records) == 1
    assert h.offset() == -1
