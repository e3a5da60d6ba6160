"""Static membership (KIP-345, KIP-814). Origin: the staticMember* cases of GroupCoordinatorTest and
GroupMetadataManagerTest (names in brackets, condensed)."""

from __future__ import annotations

import pytest
from tests.unit.groups.harness import Harness, protocols

from muster_coordinator.errors import ErrorCode


@pytest.fixture
def h() -> Harness:
    return Harness()


@pytest.fixture
def ids(h: Harness) -> tuple[str, str]:
    leader, follower = h.static_group()
    return leader, follower


def test_first_static_member_is_added_without_a_second_request(h: Harness) -> None:
    """[JoinAsFirstMember]"""
    join = h.join(group_instance_id="leader")
    h.advance(3_000)
    assert (join.code, join.response.leader, join.response.member_id) == (0, "leader-001", "leader-001")
    assert join.response.members[0].group_instance_id == "leader"


# -- coming back without the member id ---------------------------------------------------------------------------------


def test_restarted_follower_gets_a_new_id_without_rebalance(h: Harness, ids: tuple[str, str]) -> None:
    """[RejoinWithFollowerId.., RejoinAsFollower unknown id, SelectedProtocolUnchanged]"""
    leader, follower = ids
    join = h.join(group_instance_id="follower")
    assert (join.code, join.response.generation_id, join.response.leader) == (0, 1, leader)
    assert join.response.member_id not in ids
    assert (join.response.skip_assignment, join.response.members) == (False, ())
    assert h.state() == "Stable"
    sync = h.sync("g", 1, join.response.member_id, group_instance_id="follower")
    assert sync.response.assignment == f"a-{follower}".encode()


def test_restarted_leader_is_told_to_skip_the_assignment(h: Harness, ids: tuple[str, str]) -> None:
    """[RejoinWithLeaderIdAndUnknownMemberId], version 9 and later"""
    join = h.join(group_instance_id="leader")
    new = join.response.member_id
    assert (join.response.leader, join.response.skip_assignment) == (new, True)
    assert {member.member_id for member in join.response.members} == {new, ids[1]}
    assert h.group().leader == new


def test_restarted_leader_of_an_older_client_is_told_of_the_old_leader(h: Harness, ids: tuple[str, str]) -> None:
    """[RejoinWithLeaderIdAndUnknownMemberId], before version 9: it must not take itself for the leader"""
    join = h.join(group_instance_id="leader", api_version=8)
    assert (join.response.leader, join.response.skip_assignment, join.response.members) == (ids[0], False, ())


def test_replaced_id_survives_a_reload(h: Harness, ids: tuple[str, str]) -> None:
    new = h.join(group_instance_id="follower").response.member_id
    h.reload()
    assert h.heartbeat("g", 1, new, "follower") == ErrorCode.NONE
    assert h.heartbeat("g", 1, ids[1], "follower") == ErrorCode.FENCED_INSTANCE_ID


def test_each_restart_gives_another_id(h: Harness) -> None:
    """[shouldGetDifferentStaticMemberIdAfterEachRejoin]"""
    h.static_group()
    assert len({h.join(group_instance_id="leader").response.member_id for _ in range(4)}) == 4


def test_restart_with_a_change_of_the_selected_protocol_rebalances(h: Harness) -> None:
    """[RejoinWithUnknownMemberIdAndChangeOfProtocol, SelectedProtocolChanged]"""
    both = protocols("range", "roundrobin")
    h.static_group(protocols=both)
    join = h.join(group_instance_id="follower", protocols=protocols("roundrobin"))
    assert join.parked
    assert h.state() == "PreparingRebalance"


def test_restart_with_other_protocols_and_same_selection_does_not_rebalance(h: Harness) -> None:
    h.static_group(protocols=protocols("range", "roundrobin"))
    join = h.join(group_instance_id="follower", protocols=protocols("range"))
    assert (join.code, join.response.protocol_name) == (0, "range")
    assert h.state() == "Stable"


def test_restart_takes_the_new_timeouts(h: Harness, ids: tuple[str, str]) -> None:
    """[RejoinWithUpdatedSessionAndRebalanceTimeouts]. The first session still has the old length."""
    new = h.join(
        group_instance_id="follower", session_timeout_ms=30_000, rebalance_timeout_ms=90_000
    ).response.member_id
    member = h.group().members[new]
    assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (30_000, 90_000)
    assert h.timers["session", "g", new] == h.now_ms + 10_000
    h.heartbeat("g", 1, new, "follower")
    assert h.timers["session", "g", new] == h.now_ms + 30_000


def test_restart_keeps_the_client_id_of_the_first_life(h: Harness, ids: tuple[str, str]) -> None:
    new = h.join(group_instance_id="follower", client_id="other").response.member_id
    assert h.group().members[new].client_id == "client"


def test_restart_in_completing_rebalances(h: Harness) -> None:
    """[KAFKA-9801]"""
    joins = [h.join(group_instance_id=instance) for instance in ("leader", "follower")]
    h.finish_initial_delay()
    parked = h.sync("g", 1, joins[1].response.member_id, group_instance_id="follower")
    assert h.join(group_instance_id="leader").parked
    assert parked.code == ErrorCode.REBALANCE_IN_PROGRESS
    assert h.state() == "PreparingRebalance"


def test_restart_in_completing_fences_the_parked_sync(h: Harness) -> None:
    """[FenceDuplicateSyncingFollowerAfterMemberIdChanged]"""
    joins = [h.join(group_instance_id=instance) for instance in ("leader", "follower")]
    h.finish_initial_delay()
    parked = h.sync("g", 1, joins[1].response.member_id, group_instance_id="follower")
    h.join(group_instance_id="follower")
    assert parked.code == ErrorCode.FENCED_INSTANCE_ID


def test_restart_in_preparing_fences_the_parked_join(h: Harness, ids: tuple[str, str]) -> None:
    """[FenceDuplicateRejoinedFollower, FenceDuplicateRejoiningFollowerAfterMemberIdChanged]"""
    old = h.join("g", ids[0], group_instance_id="leader")
    assert old.parked
    new = h.join(group_instance_id="leader")
    assert (old.code, old.response.member_id) == (ErrorCode.FENCED_INSTANCE_ID, ids[0])
    assert new.parked
    assert h.group().awaiting_join_count == 1


def test_restarts_of_all_complete_the_rebalance(h: Harness, ids: tuple[str, str]) -> None:
    h.join("g", ids[0], group_instance_id="leader")
    joins = [h.join(group_instance_id=instance) for instance in ("leader", "follower")]
    assert [join.code for join in joins] == [0, 0]
    assert joins[0].response.leader == joins[0].response.member_id


def test_static_member_joins_a_group_that_has_become_empty(h: Harness) -> None:
    """[ReJoinWithIllegalStateAsUnknownMember cannot arise: an empty group has no static members]"""
    (member,) = h.static_group(instances=("leader",))
    h.advance(10_000)
    assert h.state() == "Empty"
    join = h.join(group_instance_id="leader")
    h.finish_initial_delay()
    assert join.response.generation_id == 3
    assert join.response.member_id != member


# -- coming back with the member id ------------------------------------------------------------------------------------


def test_known_follower_without_change_gets_the_generation(h: Harness, ids: tuple[str, str]) -> None:
    """[RejoinAsFollower known id, no change; RejoinWithKnownMemberId]"""
    join = h.join("g", ids[1], group_instance_id="follower")
    assert (join.code, join.response.generation_id) == (0, 1)
    assert h.state() == "Stable"


def test_known_leader_rebalances(h: Harness, ids: tuple[str, str]) -> None:
    """[RejoinWithLeaderIdAndKnownMemberId]"""
    assert h.join("g", ids[0], group_instance_id="leader").parked
    assert h.state() == "PreparingRebalance"


@pytest.mark.parametrize("instance", ["leader", "follower"])
def test_mismatched_id_is_fenced(h: Harness, ids: tuple[str, str], instance: str) -> None:
    """[RejoinAsLeader/FollowerWithMismatchedMemberId]"""
    other = ids[1] if instance == "leader" else ids[0]
    join = h.join("g", other, group_instance_id=instance)
    assert (join.code, join.response.member_id) == (ErrorCode.FENCED_INSTANCE_ID, other)


def test_unknown_instance_with_known_id_is_unknown_member(h: Harness, ids: tuple[str, str]) -> None:
    """[JoinWithUnknownInstanceIdAndKnownMemberId]"""
    assert h.join("g", ids[0], group_instance_id="unknown").code == ErrorCode.UNKNOWN_MEMBER_ID


def test_unknown_id_of_known_instance_is_fenced(h: Harness, ids: tuple[str, str]) -> None:
    """[ReJoinWithExplicitUnknownMemberId]"""
    assert h.join("g", "unknown", group_instance_id="leader").code == ErrorCode.FENCED_INSTANCE_ID


# -- fencing in the other requests -------------------------------------------------------------------------------------


def test_requests_with_the_id_of_another_are_fenced_before_the_generation(h: Harness, ids: tuple[str, str]) -> None:
    """[SyncAsLeaderWithInvalidMemberId, HeartbeatLeaderWithInvalidMemberId, CommitOffsetWithInvalidMemberId]"""
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert h.sync("g", 99, "x", group_instance_id="leader").code == fenced
    assert h.heartbeat("g", 99, "x", "leader") == fenced
    assert h.commit(generation_id=99, member_id="x", group_instance_id="leader") == fenced
    assert h.txn_commit(1, generation_id=99, member_id="x", group_instance_id="leader") == fenced
    assert h.leave("g", ("x", "leader")).response.members[0].error_code == fenced


def test_requests_with_unknown_instance_are_unknown_members(h: Harness, ids: tuple[str, str]) -> None:
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert h.sync("g", 1, ids[0], group_instance_id="nobody").code == unknown
    assert h.heartbeat("g", 1, ids[0], "nobody") == unknown
    assert h.commit(generation_id=1, member_id=ids[0], group_instance_id="nobody") == unknown
    assert h.leave("g", (ids[0], "nobody")).response.members[0].error_code == unknown


def test_static_member_may_leave_out_its_instance(h: Harness, ids: tuple[str, str]) -> None:
    assert h.heartbeat("g", 1, ids[0]) == ErrorCode.NONE
    assert h.commit(generation_id=1, member_id=ids[0]) == ErrorCode.NONE


# -- rebalance timeout -------------------------------------------------------------------------------------------------


def test_static_member_that_does_not_rejoin_stays_until_its_session_ends(h: Harness) -> None:
    """[FollowerFailToRejoinBeforeRebalanceTimeout]"""
    leader, follower = h.static_group(session_timeout_ms=100_000, rebalance_timeout_ms=20_000)
    again = h.join("g", leader, group_instance_id="leader", session_timeout_ms=100_000, rebalance_timeout_ms=20_000)
    h.advance(20_000)
    assert {member.member_id for member in again.response.members} == {leader, follower}
    h.sync_all("g", 2, [leader])
    h.advance(20_000)  # the follower has not synced either: now it is out (KAFKA-12890)
    assert follower not in h.group().members


def test_static_leader_that_does_not_rejoin_loses_the_lead(h: Harness) -> None:
    """[LeaderFailToRejoinBeforeRebalanceTimeout]"""
    leader, follower = h.static_group(session_timeout_ms=100_000, rebalance_timeout_ms=20_000)
    h.join(group_instance_id="third", session_timeout_ms=100_000, rebalance_timeout_ms=20_000)
    again = h.join("g", follower, group_instance_id="follower", session_timeout_ms=100_000, rebalance_timeout_ms=20_000)
    h.advance(20_000)
    assert again.response.leader in (follower, "third-003")
    assert leader in h.group().members


def test_group_whose_static_members_do_not_rejoin_waits_for_their_sessions(h: Harness) -> None:
    """[testGroupStuckInRebalanceTimeoutDueToNonjoinedStaticMember]"""
    h.static_group(session_timeout_ms=50_000, rebalance_timeout_ms=20_000)
    assert h.join_dynamic(session_timeout_ms=6_000, rebalance_timeout_ms=20_000).parked
    h.leave("g", "client-003")
    for _ in range(2):
        h.advance(20_000)
        assert h.state() == "PreparingRebalance"
    h.advance(20_000)
    assert h.state() == "Empty"


def test_replaced_member_that_had_not_synced_ends_in_a_rebalance(h: Harness) -> None:
    """As in Kafka: the sync that is waited for is that of the old id."""
    joins = [h.join(group_instance_id=instance) for instance in ("leader", "follower")]
    h.finish_initial_delay()
    leader = joins[0].response.member_id
    h.sync("g", 1, leader, {leader: b"x"}, group_instance_id="leader")
    new = h.join(group_instance_id="follower").response.member_id
    assert h.sync("g", 1, new, group_instance_id="follower").code == ErrorCode.NONE
    for _ in range(7):
        h.advance(9_000)
        h.heartbeat("g", 1, leader, "leader")
        h.heartbeat("g", 1, new, "follower")
    assert h.state() == "PreparingRebalance"
    assert set(h.group().members) == {leader, new}
