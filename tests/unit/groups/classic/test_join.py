"""JoinGroup of dynamic members. Origin: GroupCoordinatorTest and GroupMetadataManagerTest, join validity,
new-member timers, pending members, initial delay (names in brackets)."""

from __future__ import annotations

import pytest
from tests.unit.groups.harness import Harness, protocols, subscription

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.config import GroupConfig


@pytest.fixture
def h() -> Harness:
    return Harness()


# -- validity ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout_ms", [5_999, 1_800_001], ids=["too small", "too large"])
def test_session_timeout_out_of_range_is_refused(h: Harness, timeout_ms: int) -> None:
    """[testJoinGroupSessionTimeoutTooSmall, TooLarge]"""
    join = h.join(member_id="m", session_timeout_ms=timeout_ms)
    assert (join.code, join.response.member_id) == (ErrorCode.INVALID_SESSION_TIMEOUT, "m")
    assert h.group_ids() == []


@pytest.mark.parametrize("timeout_ms", [6_000, 1_800_000])
def test_session_timeout_at_the_limits_is_taken(h: Harness, timeout_ms: int) -> None:
    assert h.join(session_timeout_ms=timeout_ms).code == ErrorCode.MEMBER_ID_REQUIRED


def test_empty_group_id_is_refused_before_the_session_timeout(h: Harness) -> None:
    assert h.join("", session_timeout_ms=1).code == ErrorCode.INVALID_GROUP_ID


def test_known_id_on_missing_group_is_unknown_member(h: Harness) -> None:
    """[testJoinGroupUnknownConsumerNewGroup]"""
    join = h.join(member_id="ghost")
    assert (join.code, join.response.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "ghost")
    assert h.group_ids() == []


def test_unknown_id_on_existing_group_is_unknown_member(h: Harness) -> None:
    """[testJoinGroupUnknownConsumerExistingGroup]"""
    h.stable_group()
    assert h.join(member_id="ghost").code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    "fields",
    [{"protocol_type": ""}, {"protocols": ()}],
    ids=["empty protocol type", "no protocols"],
)
def test_empty_group_needs_type_and_protocols_and_exists_afterwards(h: Harness, fields: dict[str, object]) -> None:
    """[testJoinGroupWithEmptyProtocolType, EmptyGroupProtocol]. The refused join has created the group all the same."""
    join = h.join(**fields)
    assert (join.code, join.response.member_id) == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")
    assert h.state() == "Empty"
    h.reload()
    assert h.state() == "Empty"


def test_first_join_writes_an_empty_group_at_once(h: Harness) -> None:
    h.join()
    (record,) = h.last.records
    durable = h.group().durable
    assert durable is not None
    assert (durable.protocol_type, durable.generation, durable.protocol, durable.leader) == ("", 0, None, None)
    assert durable.current_state_timestamp_ms == h.now_ms
    assert record[2].group_id == "g"


def test_inconsistent_protocol_type_is_refused(h: Harness) -> None:
    """[testJoinGroupInconsistentProtocolType]"""
    h.stable_group()
    assert h.join(protocol_type="connect").code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_protocol_that_not_all_members_support_is_refused(h: Harness) -> None:
    """[testJoinGroupInconsistentGroupProtocol, SecondJoinInconsistentProtocol]"""
    h.join_dynamic(protocols=protocols("range", "sticky"))
    h.join_dynamic(protocols=protocols("range"))
    assert h.join(protocols=protocols("sticky")).code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_only_member_that_rejoins_with_disjoint_protocols_is_refused(h: Harness) -> None:
    (member,) = h.stable_group()
    join = h.join("g", member, protocols=protocols("sticky"))
    assert (join.code, join.response.member_id) == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member)
    assert h.state() == "Stable"


def test_duplicate_protocol_name_is_an_invalid_request(h: Harness) -> None:
    """Kafka leaves this request unanswered (reference, section 11)."""
    assert h.join(protocols=protocols("range", "range")).code == ErrorCode.INVALID_REQUEST
    assert h.group_ids() == []


def test_malformed_subscription_is_taken_and_the_topics_of_the_group_are_not_known(h: Harness) -> None:
    """As in Kafka 4.4; 4.1 to 4.3 leave the request unanswered and the group in PreparingRebalance."""
    malformed = (("range", b"\x00\x00\xff\xff\xff\xff"),)
    (member,) = h.stable_group(protocols=malformed)
    assert h.heartbeat("g", 1, member) == ErrorCode.NONE
    assert h.group().subscribed_topics is None
    assert h.commit(generation_id=1, member_id=member) == ErrorCode.NONE


def test_malformed_subscription_of_another_protocol_type_is_taken(h: Harness) -> None:
    join = h.join_dynamic(protocol_type="connect", protocols=(("default", b"\x00\x00\xff\xff\xff\xff"),))
    h.finish_initial_delay()
    assert join.code == ErrorCode.NONE


def test_unparsable_subscription_is_taken(h: Harness) -> None:
    join = h.join_dynamic(protocols=(("range", b""),))
    h.finish_initial_delay()
    assert join.code == ErrorCode.NONE


def test_overlong_client_id_is_refused(h: Harness) -> None:
    """Its member id would not fit a record."""
    assert h.join(client_id="x" * 32_700).code == ErrorCode.INVALID_REQUEST


# -- member ids --------------------------------------------------------------------------------------------------------


def test_dynamic_member_is_asked_to_come_back_with_its_id(h: Harness) -> None:
    required = h.join()
    assert (required.code, required.response.member_id) == (ErrorCode.MEMBER_ID_REQUIRED, "client-001")
    assert h.group().pending_members == {"client-001"}
    join = h.join("g", "client-001")
    assert join.parked
    h.advance(3_000)
    assert join.response.member_id == "client-001"


def test_before_version_4_the_member_is_added_at_once(h: Harness) -> None:
    join = h.join(api_version=3)
    h.advance(3_000)
    assert (join.code, join.response.generation_id, join.response.leader) == (ErrorCode.NONE, 1, "client-001")


def test_member_id_begins_with_the_instance_id_of_a_static_member(h: Harness) -> None:
    h.join(group_instance_id="inst")
    assert list(h.group().members) == ["inst-001"]


def test_pending_member_with_instance_id_is_a_server_error(h: Harness) -> None:
    """[testReJoiningPendingMember with an instance id: an illegal state in Kafka]"""
    member = h.join().response.member_id
    assert h.join("g", member, group_instance_id="inst").code == ErrorCode.UNKNOWN_SERVER_ERROR


# -- the answer --------------------------------------------------------------------------------------------------------


def test_leader_gets_the_members_and_followers_do_not(h: Harness) -> None:
    """[testJoinGroupReturnsTheProtocolType, testValidJoinGroup]"""
    first, second = h.join_dynamic(), h.join_dynamic()
    h.finish_initial_delay()
    assert [member.member_id for member in first.response.members] == ["client-001", "client-002"]
    assert first.response.members[1].metadata == subscription(["t"])
    assert second.response.members == ()
    for join in (first, second):
        assert join.response.leader == "client-001"
        assert (join.response.protocol_type, join.response.protocol_name) == ("consumer", "range")


def test_protocol_with_most_votes_among_the_common_ones_wins(h: Harness) -> None:
    h.join_dynamic(protocols=protocols("range", "roundrobin", "only-mine"))
    h.join_dynamic(protocols=protocols("roundrobin", "range"))
    last = h.join_dynamic(protocols=protocols("roundrobin", "range"))
    h.finish_initial_delay()
    assert last.response.protocol_name == "roundrobin"


def test_vote_that_is_tied_falls_as_in_a_java_hash_map(h: Harness) -> None:
    # "p" hashes to 112, bucket 0; "a" to 97, bucket 1.
    h.join_dynamic(protocols=protocols("a", "p"))
    last = h.join_dynamic(protocols=protocols("p", "a"))
    h.finish_initial_delay()
    assert last.response.protocol_name == "p"


def test_empty_group_takes_the_protocol_type_of_its_next_member(h: Harness) -> None:
    (member,) = h.stable_group()
    h.leave("g", member)
    assert h.describe().protocol_type == "consumer"
    join = h.join_dynamic(protocol_type="connect", protocols=(("default", b""),))
    h.finish_initial_delay()
    assert (join.response.protocol_type, join.response.protocol_name) == ("connect", "default")


# -- initial delay -----------------------------------------------------------------------------------------------------


def test_initial_rebalance_waits_for_the_delay_even_if_all_have_joined(h: Harness) -> None:
    """[shouldDelayInitialRebalanceByGroupInitialRebalanceDelayOnEmptyGroup]"""
    join = h.join_dynamic()
    h.advance(2_999)
    assert join.parked
    h.advance(1)
    assert join.code == ErrorCode.NONE


def test_new_member_extends_the_initial_delay(h: Harness) -> None:
    """[shouldResetRebalanceDelayWhenNewMemberJoinsGroupInInitialRebalance]"""
    first = h.join_dynamic()
    h.advance(2_000)
    second = h.join_dynamic()
    h.advance(1_000)
    assert first.parked
    h.advance(3_000)
    assert first.response.generation_id == second.response.generation_id == 1


def test_initial_delay_ends_with_the_rebalance_timeout(h: Harness) -> None:
    """[shouldDelayRebalanceUptoRebalanceTimeout]"""
    joins = [h.join_dynamic(rebalance_timeout_ms=7_000)]
    for _ in range(2):
        h.advance(2_500)
        joins.append(h.join_dynamic(rebalance_timeout_ms=7_000))
    h.advance(1_999)
    assert all(join.parked for join in joins)
    h.advance(1)
    assert [join.code for join in joins] == [ErrorCode.NONE] * 3


def test_initial_delay_of_zero_completes_with_the_timer() -> None:
    h = Harness(GroupConfig(initial_rebalance_delay_ms=0))
    join = h.join_dynamic()
    assert join.parked
    h.advance(0)
    assert join.code == ErrorCode.NONE


def test_pending_members_do_not_block_the_initial_rebalance(h: Harness) -> None:
    h.join()
    join = h.join_dynamic()
    h.advance(3_000)
    assert join.code == ErrorCode.NONE


# -- later rebalances --------------------------------------------------------------------------------------------------


def test_later_rebalance_ends_when_all_members_have_joined(h: Harness) -> None:
    (leader,) = h.stable_group()
    new = h.join_dynamic()
    assert new.parked
    again = h.join("g", leader)
    assert again.response.generation_id == new.response.generation_id == 2
    assert again.response.leader == leader


def test_pending_member_blocks_a_later_rebalance_until_it_joins(h: Harness) -> None:
    """[testJoinGroupCompletionWhenPendingMemberJoins]"""
    (leader,) = h.stable_group()
    pending = h.join().response.member_id
    again = h.join("g", leader)
    assert again.parked
    h.join("g", pending)
    assert again.response.generation_id == 2
    assert len(again.response.members) == 2


def test_pending_member_blocks_a_later_rebalance_until_it_times_out(h: Harness) -> None:
    """[testJoinGroupCompletionWhenPendingMemberTimesOut, testSecondMemberPartiallyJoinAndTimeout]"""
    (leader,) = h.stable_group(session_timeout_ms=30_000)
    h.join(session_timeout_ms=10_000)
    again = h.join("g", leader)
    h.advance(9_999)
    assert again.parked
    h.advance(1)
    assert again.response.generation_id == 2
    assert len(again.response.members) == 1


def test_member_that_does_not_rejoin_is_dropped_at_the_rebalance_timeout(h: Harness) -> None:
    leader, lazy = h.stable_group(members=2, session_timeout_ms=100_000, rebalance_timeout_ms=20_000)
    again = h.join("g", leader, session_timeout_ms=100_000, rebalance_timeout_ms=20_000)
    h.advance(19_999)
    assert again.parked
    h.advance(1)
    assert [member.member_id for member in again.response.members] == [leader]
    assert h.heartbeat("g", 2, lazy) == ErrorCode.UNKNOWN_MEMBER_ID


def test_leader_that_does_not_rejoin_is_replaced(h: Harness) -> None:
    """[testLeaderFailToRejoinBeforeFinalRebalanceTimeoutWithLongSessionTimeout]"""
    leader, follower = h.stable_group(members=2, session_timeout_ms=100_000, rebalance_timeout_ms=20_000)
    h.join(session_timeout_ms=100_000, api_version=3)
    again = h.join("g", follower, session_timeout_ms=100_000)
    h.advance(60_000)
    assert again.response.leader == follower
    assert leader not in h.group().members


def test_unchanged_follower_gets_the_current_generation_without_rebalance(h: Harness) -> None:
    """[testJoinGroupFromUnchangedFollowerDoesNotRebalance]"""
    leader, follower = h.stable_group(members=2)
    again = h.join("g", follower)
    assert (again.code, again.response.generation_id, again.response.leader) == (ErrorCode.NONE, 1, leader)
    assert again.response.members == ()
    assert h.state() == "Stable"


def test_unchanged_leader_forces_a_rebalance(h: Harness) -> None:
    """[testJoinGroupFromUnchangedLeaderShouldRebalance]"""
    (leader,) = h.stable_group()
    again = h.join("g", leader)
    assert again.response.generation_id == 2
    assert h.state() == "CompletingRebalance"


def test_changed_follower_forces_a_rebalance(h: Harness) -> None:
    _, follower = h.stable_group(members=2)
    assert h.join("g", follower, protocols=protocols("range", topics=["other"])).parked
    assert h.state() == "PreparingRebalance"


def test_rejoin_in_completing_with_same_metadata_repeats_the_answer(h: Harness) -> None:
    first = h.join_dynamic()
    h.finish_initial_delay()
    again = h.join("g", first.response.member_id)
    assert again.response == first.response


def test_rejoin_in_completing_with_other_metadata_rebalances(h: Harness) -> None:
    first, second = h.join_dynamic(), h.join_dynamic()
    h.finish_initial_delay()
    parked = h.sync("g", 1, second.response.member_id)
    assert h.join("g", first.response.member_id, protocols=protocols("range", topics=["other"])).parked
    assert parked.code == ErrorCode.REBALANCE_IN_PROGRESS
    assert h.state() == "PreparingRebalance"


def test_generation_rises_with_every_completed_join_phase(h: Harness) -> None:
    """[testGenerationIdIncrementsOnRebalance]"""
    (leader,) = h.stable_group()
    assert [h.join("g", leader).response.generation_id for _ in range(1)] == [2]
    h.sync("g", 2, leader, {leader: b"x"})
    h.leave("g", leader)
    assert (h.state(), h.group().generation) == ("Empty", 3)


def test_member_that_joins_twice_gets_an_answer_to_both_requests(h: Harness) -> None:
    leader, _ = h.stable_group(members=2)
    first = h.join("g", leader)
    second = h.join("g", leader)
    assert first.code == ErrorCode.REBALANCE_IN_PROGRESS
    assert second.parked
    assert h.group().awaiting_join_count == 1


# -- new-member timer --------------------------------------------------------------------------------------------------


def test_new_member_outlives_its_session_timeout_while_its_join_is_parked(h: Harness) -> None:
    """[testNewMemberTimeoutCompletion]"""
    h.stable_group(session_timeout_ms=600_000, rebalance_timeout_ms=600_000)
    new = h.join_dynamic(session_timeout_ms=6_000)
    h.advance(299_999)
    assert new.parked
    h.advance(1)
    assert (new.code, new.response.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "")
    assert len(h.group().members) == 1


def test_new_member_has_its_own_session_after_the_join_phase(h: Harness) -> None:
    """[testNewMemberFailureAfterJoinGroupCompletion]"""
    (leader,) = h.stable_group(session_timeout_ms=600_000, rebalance_timeout_ms=600_000)
    new = h.join_dynamic(session_timeout_ms=6_000)
    h.join("g", leader, session_timeout_ms=600_000, rebalance_timeout_ms=600_000)
    assert new.code == ErrorCode.NONE
    h.advance(6_000)
    assert list(h.group().members) == [leader]
    assert h.state() == "PreparingRebalance"


def test_awaiting_member_that_is_not_new_outlives_its_session(h: Harness) -> None:
    leader, follower = h.stable_group(members=2, session_timeout_ms=10_000, rebalance_timeout_ms=50_000)
    again = h.join("g", leader, session_timeout_ms=10_000, rebalance_timeout_ms=50_000)
    for _ in range(4):
        h.advance(9_000)
        assert h.heartbeat("g", 1, follower) == ErrorCode.REBALANCE_IN_PROGRESS
    assert again.parked
    assert set(h.group().members) == {leader, follower}
