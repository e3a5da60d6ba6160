"""Heartbeat and sessions. Origin: testHeartbeat*, testSessionTimeout*, testCommitMaintainsSession of
GroupCoordinatorTest."""

from __future__ import annotations

import pytest
from tests.unit.groups.harness import Harness

from muster_coordinator.errors import ErrorCode


@pytest.fixture
def h() -> Harness:
    return Harness()


def test_heartbeat_errors(h: Harness) -> None:
    """[UnknownGroup, UnknownConsumerExistingGroup, IllegalGeneration, EmptyGroup, InvalidGroupId]"""
    assert h.heartbeat("", 1, "m") == ErrorCode.INVALID_GROUP_ID
    assert h.heartbeat("g", 1, "m") == ErrorCode.UNKNOWN_MEMBER_ID
    (member,) = h.stable_group()
    assert h.heartbeat("g", 1, "ghost") == ErrorCode.UNKNOWN_MEMBER_ID
    assert h.heartbeat("g", 2, member) == ErrorCode.ILLEGAL_GENERATION
    assert h.heartbeat("g", 1, member) == ErrorCode.NONE
    h.leave("g", member)
    assert h.heartbeat("g", 2, member) == ErrorCode.UNKNOWN_MEMBER_ID


def test_pending_member_has_no_heartbeat(h: Harness) -> None:
    member = h.join().response.member_id
    assert h.heartbeat("g", 0, member) == ErrorCode.UNKNOWN_MEMBER_ID


def test_heartbeat_in_completing_is_accepted_and_keeps_the_session(h: Harness) -> None:
    """[KAFKA-10134]"""
    join = h.join_dynamic()
    h.finish_initial_delay()
    h.advance(6_000)
    assert h.heartbeat("g", 1, join.response.member_id) == ErrorCode.NONE
    h.advance(6_000)
    assert join.response.member_id in h.group().members


def test_heartbeat_while_members_join_keeps_the_session(h: Harness) -> None:
    """[testHeartbeatDuringRebalanceCausesRebalanceInProgress]"""
    leader, follower = h.stable_group(members=2)
    h.join("g", leader)
    h.advance(9_000)
    assert h.heartbeat("g", 1, follower) == ErrorCode.REBALANCE_IN_PROGRESS
    h.advance(9_000)
    assert follower in h.group().members


def test_silent_member_is_removed_and_the_others_rebalance(h: Harness) -> None:
    """[testSessionTimeout]"""
    leader, follower = h.stable_group(members=2)
    h.advance(5_000)
    h.heartbeat("g", 1, leader)
    h.advance(4_999)
    assert h.state() == "Stable"
    h.advance(1)
    assert h.heartbeat("g", 1, leader) == ErrorCode.REBALANCE_IN_PROGRESS
    assert h.heartbeat("g", 1, follower) == ErrorCode.UNKNOWN_MEMBER_ID
    assert h.coordinator.event_counts["sessions_ended"] == 1


def test_last_silent_member_leaves_an_empty_group_of_the_next_generation(h: Harness) -> None:
    h.stable_group()
    h.advance(10_000)
    durable = h.group().durable
    assert durable is not None
    assert (h.state(), durable.generation, durable.protocol, durable.leader) == ("Empty", 2, None, None)
    assert (durable.protocol_type, durable.members, durable.current_state_timestamp_ms) == ("consumer", (), h.now_ms)


def test_heartbeat_maintains_the_session(h: Harness) -> None:
    """[testHeartbeatMaintainsSession]"""
    (member,) = h.stable_group()
    for _ in range(5):
        h.advance(9_999)
        assert h.heartbeat("g", 1, member) == ErrorCode.NONE


def test_commit_maintains_the_session(h: Harness) -> None:
    """[testCommitMaintainsSession]"""
    (member,) = h.stable_group()
    for _ in range(5):
        h.advance(9_999)
        assert h.commit(generation_id=1, member_id=member) == ErrorCode.NONE


def test_transactional_commit_does_not_maintain_the_session(h: Harness) -> None:
    (member,) = h.stable_group()
    h.advance(9_999)
    assert h.txn_commit(1, generation_id=1, member_id=member) == ErrorCode.NONE
    h.advance(1)
    assert h.state() == "Empty"


def test_silent_member_during_a_rebalance_lets_it_complete(h: Harness) -> None:
    """[testSessionTimeoutDuringRebalance]"""
    leader, _ = h.stable_group(members=2)
    again = h.join("g", leader)
    h.advance(10_000)
    assert (again.code, again.response.generation_id) == (ErrorCode.NONE, 2)
    assert len(again.response.members) == 1


def test_rejoin_after_the_rebalance_completed_without_the_member(h: Harness) -> None:
    """[testRebalanceCompletesBeforeMemberJoins]"""
    leader, follower = h.stable_group(members=2, session_timeout_ms=30_000, rebalance_timeout_ms=6_000)
    h.join("g", leader, session_timeout_ms=30_000, rebalance_timeout_ms=6_000)
    h.advance(6_000)
    assert h.group().generation == 2
    assert h.join("g", follower).code == ErrorCode.UNKNOWN_MEMBER_ID
