"""SyncGroup and the pending-sync timer. Origin: testSyncGroup* and testRebalanceTimesOutWhenSync* of
GroupCoordinatorTest."""

from __future__ import annotations

import pytest
from tests.unit.groups.harness import Harness

from muster_coordinator.errors import ErrorCode


@pytest.fixture
def h() -> Harness:
    return Harness()


def completing(h: Harness, members: int = 2, **fields: object) -> list[str]:
    """A group that waits for the leader's assignment; the first id leads."""
    joins = [h.join_dynamic(**fields) for _ in range(members)]
    h.finish_initial_delay()
    return [join.response.member_id for join in joins]


@pytest.mark.parametrize("fields", [{"protocol_type": None}, {"protocol_name": None}], ids=["type", "name"])
def test_protocol_is_mandatory_from_version_5_before_any_other_check(h: Harness, fields: dict[str, object]) -> None:
    assert h.sync("", 1, "m", **fields).code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert h.sync("", 1, "m", api_version=4, **fields).code == ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize("fields", [{"protocol_type": "connect"}, {"protocol_name": "sticky"}], ids=["type", "name"])
def test_inconsistent_protocol_is_refused(h: Harness, fields: dict[str, object]) -> None:
    """[ReturnsAnErrorWhenProtocolType/NameIsInconsistent]"""
    leader, _ = completing(h)
    assert h.sync("g", 1, leader, **fields).code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_protocol_may_be_left_out_before_version_5(h: Harness) -> None:
    """[SucceedWhenProtocolTypeAndNameAreNotProvided]"""
    leader, _ = completing(h)
    sync = h.sync("g", 1, leader, protocol_type=None, protocol_name=None, api_version=4)
    assert sync.code == ErrorCode.NONE


def test_unknown_group_member_and_generation_are_told_apart(h: Harness) -> None:
    """[FromUnknownGroup, FromUnknownMember, FromIllegalGeneration]"""
    assert h.sync("g", 1, "m").code == ErrorCode.UNKNOWN_MEMBER_ID
    leader, _ = completing(h)
    assert h.sync("g", 1, "ghost").code == ErrorCode.UNKNOWN_MEMBER_ID
    assert h.sync("g", 2, leader).code == ErrorCode.ILLEGAL_GENERATION


def test_follower_waits_for_the_leader(h: Harness) -> None:
    """[FollowerAfterLeader, LeaderAfterFollower]"""
    leader, follower = completing(h)
    early = h.sync("g", 1, follower)
    assert early.parked
    own = h.sync("g", 1, leader, {leader: b"L", follower: b"F", "nobody": b"N"})
    assert (own.response.assignment, early.response.assignment) == (b"L", b"F")
    assert (early.response.protocol_type, early.response.protocol_name) == ("consumer", "range")
    assert h.state() == "Stable"
    assert h.sync("g", 1, follower).response == early.response


def test_member_without_assignment_gets_an_empty_one(h: Harness) -> None:
    """[EmptyAssignment]"""
    leader, follower = completing(h)
    assert h.sync("g", 1, leader, {leader: b"L"}).response.assignment == b"L"
    assert h.sync("g", 1, follower).response.assignment == b""


def test_assignment_is_one_record_with_all_members(h: Harness) -> None:
    leader, follower = completing(h)
    entered_ms = h.group().state_timestamp_ms
    h.advance(100)
    h.sync("g", 1, leader, {leader: b"L", follower: b"F"})
    assert len(h.last.records) == 1
    durable = h.group().durable
    assert durable is not None
    assert (durable.protocol_type, durable.protocol, durable.leader) == ("consumer", "range", leader)
    assert (durable.generation, durable.current_state_timestamp_ms) == (1, entered_ms)
    assert {member.member_id: member.assignment for member in durable.members} == {leader: b"L", follower: b"F"}
    assert durable.members[0].client_host == "/127.0.0.1"


def test_assignments_survive_a_reload(h: Harness) -> None:
    leader, follower = completing(h)
    h.sync("g", 1, leader, {leader: b"L", follower: b"F"})
    h.reload()
    assert h.state() == "Stable"
    assert h.sync("g", 1, follower).response.assignment == b"F"


def test_group_that_had_not_synced_is_back_at_its_last_record_after_a_reload(h: Harness) -> None:
    (leader,) = h.stable_group()
    new = h.join_dynamic()
    h.join("g", leader)
    h.sync("g", 2, new.response.member_id)
    h.reload()
    assert (h.state(), h.group().generation, list(h.group().members)) == ("Stable", 1, [leader])


def test_sync_while_members_join_is_told_to_rejoin(h: Harness) -> None:
    leader, follower = h.stable_group(members=2)
    h.join("g", leader)
    assert h.sync("g", 1, follower).code == ErrorCode.REBALANCE_IN_PROGRESS


def test_member_that_syncs_twice_gets_an_answer_to_both_requests(h: Harness) -> None:
    leader, follower = completing(h)
    first = h.sync("g", 1, follower)
    second = h.sync("g", 1, follower)
    assert first.code == ErrorCode.REBALANCE_IN_PROGRESS
    h.sync("g", 1, leader, {follower: b"F"})
    assert second.response.assignment == b"F"


def test_sync_in_stable_does_not_reset_the_session(h: Harness) -> None:
    """Reference, section 11"""
    (leader,) = h.stable_group()
    h.advance(9_000)
    h.sync("g", 1, leader)
    h.advance(1_000)
    assert h.state() == "Empty"


def test_parked_sync_stands_for_a_heartbeat_and_the_session_starts_again(h: Harness) -> None:
    leader, follower = completing(h, session_timeout_ms=10_000)
    parked = h.sync("g", 1, follower)
    for _ in range(3):
        h.advance(8_000)
        h.heartbeat("g", 1, leader)
    assert parked.parked
    h.sync("g", 1, leader, {follower: b"F"})
    assert parked.code == ErrorCode.NONE
    assert h.timers["session", "g", follower] == h.now_ms + 10_000


def test_leader_that_fails_before_it_syncs_causes_a_rebalance(h: Harness) -> None:
    """[testLeaderFailureInSyncGroup]"""
    leader, follower = completing(h)
    parked = h.sync("g", 1, follower)
    h.advance(10_000)
    assert parked.code == ErrorCode.REBALANCE_IN_PROGRESS
    again = h.join("g", follower)
    assert again.response.leader == follower
    assert leader not in h.group().members


def keep_alive(h: Harness, generation: int, ids: list[str], until_ms: int) -> None:
    while h.now_ms < until_ms:
        h.advance(min(5_000, until_ms - h.now_ms))
        for member in ids:
            h.heartbeat("g", generation, member)


def test_members_that_never_sync_are_dropped_at_the_rebalance_timeout(h: Harness) -> None:
    """[testRebalanceTimesOutWhenSyncRequestIsNotReceivedFromFollowers]"""
    leader, lazy = completing(h, rebalance_timeout_ms=30_000)
    began_ms = h.now_ms
    h.sync("g", 1, leader, {leader: b"L"})
    keep_alive(h, 1, [leader, lazy], began_ms + 29_000)
    assert h.state() == "Stable"
    keep_alive(h, 1, [leader], began_ms + 30_000)
    assert h.state() == "PreparingRebalance"
    assert list(h.group().members) == [leader]


def test_leader_that_never_syncs_is_dropped_at_the_rebalance_timeout(h: Harness) -> None:
    """[testRebalanceTimesOutWhenSyncRequestIsNotReceivedFromLeaders]"""
    leader, follower = completing(h, rebalance_timeout_ms=30_000)
    began_ms = h.now_ms
    parked = h.sync("g", 1, follower)
    keep_alive(h, 1, [leader], began_ms + 30_000)
    assert parked.code == ErrorCode.REBALANCE_IN_PROGRESS
    assert list(h.group().members) == [follower]


def test_group_that_never_syncs_becomes_empty(h: Harness) -> None:
    """[testRebalanceTimesOutWhenSyncRequestIsNotReceived]"""
    ids = completing(h, rebalance_timeout_ms=30_000)
    keep_alive(h, 1, ids, h.now_ms + 30_000)
    assert (h.state(), h.group().generation) == ("Empty", 2)


def test_group_in_which_all_have_synced_stays(h: Harness) -> None:
    """[testRebalanceDoesNotTimeOutWhenAllSyncAreReceived]"""
    ids = h.stable_group(members=2, rebalance_timeout_ms=30_000)
    assert ("sync", "g", "") not in h.timers
    keep_alive(h, 1, ids, h.now_ms + 60_000)
    assert h.state() == "Stable"
