"""JoinGroup where something is full: group.max.size, and our own limits. Origin: GroupCoordinatorTest and
GroupMetadataManagerTest (names in brackets)."""

from __future__ import annotations

from tests.unit.groups.harness import Harness, Pending, protocols

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.classic.states import GroupState
from muster_coordinator.groups.config import GroupConfig

# -- group.max.size ----------------------------------------------------------------------------------------------------


def accepted(joins: list[Pending]) -> int:
    return sum(join.parked or join.code == ErrorCode.NONE for join in joins)


def test_member_beyond_the_maximum_is_turned_away() -> None:
    """[testDynamicMembersJoinGroupWithMaxSize(AndRequiredKnownMember)]"""
    h = Harness(GroupConfig(max_size=2))
    ids = [h.join().response.member_id for _ in range(3)]
    joins = [h.join("g", member) for member in ids]
    assert accepted(joins) == 2
    assert (joins[2].code, joins[2].response.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert h.join().code == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_full_stable_group_turns_new_members_away_and_keeps_its_own() -> None:
    h = Harness(GroupConfig(max_size=2))
    leader, follower = h.stable_group(members=2)
    assert h.join().code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert h.join("g", follower).code == ErrorCode.NONE
    assert h.join("g", leader).parked


def test_rejoining_members_fit_again() -> None:
    """[testDynamicMembersCanReJoinGroupWithMaxSizeWhileRebalancing]"""
    h = Harness(GroupConfig(max_size=2))
    leader, follower = h.stable_group(members=2)
    joins = [h.join("g", leader), h.join("g", follower)]
    assert [join.code for join in joins] == [ErrorCode.NONE, ErrorCode.NONE]


def test_last_rejoining_members_of_an_oversized_group_are_turned_away() -> None:
    """[testLastJoiningMembersAreKickedOutWhenReJoiningGroupWithMaxSize]"""
    h = Harness(GroupConfig(max_size=10))
    ids = h.stable_group(members=5)
    h.config = GroupConfig(max_size=2)
    h.reload()
    assert h.state() == "PreparingRebalance"
    joins = [h.join("g", member) for member in ids]
    assert [join.parked for join in joins] == [True, True, False, False, False]
    assert joins[4].code == ErrorCode.GROUP_MAX_SIZE_REACHED
    h.advance(60_000)
    assert [join.code for join in joins[:2]] == [ErrorCode.NONE, ErrorCode.NONE]
    assert len(h.group().members) == 2


def test_static_member_that_restarts_in_a_full_group_is_turned_away() -> None:
    """Reference, section 11: it comes without its member id and counts as one more."""
    h = Harness(GroupConfig(max_size=2))
    h.static_group()
    assert h.join(group_instance_id="leader").code == ErrorCode.GROUP_MAX_SIZE_REACHED


# -- our own limits ----------------------------------------------------------------------------------------------------


def test_too_many_groups_is_coordinator_not_available() -> None:
    h = Harness(GroupConfig(max_groups=1))
    h.join("one")
    assert h.join("two").code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert h.commit("two") == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert h.commit("one") == ErrorCode.NONE
    assert h.group_ids() == ["one"]


def test_too_many_pending_members_are_turned_away() -> None:
    h = Harness(GroupConfig(max_pending_members=2))
    assert [h.join().code for _ in range(3)] == [79, 79, ErrorCode.GROUP_MAX_SIZE_REACHED]


def test_group_that_does_not_fit_a_record_rebalances_instead_of_becoming_stable() -> None:
    h = Harness(GroupConfig(max_record_bytes=1_000))
    join = h.join_dynamic()
    h.finish_initial_delay()
    member = join.response.member_id
    sync = h.sync("g", 1, member, {member: b"x" * 2_000})
    assert sync.code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert h.group().state is GroupState.PREPARING_REBALANCE
    again = h.join("g", member)
    assert h.sync("g", again.response.generation_id, member, {member: b"x"}).code == ErrorCode.NONE


def test_what_members_say_of_their_protocols_is_bounded_for_a_group() -> None:
    h = Harness(GroupConfig(max_record_bytes=1_000))
    large = (("range", b"x" * 3_000),)
    first, second = h.join(api_version=3, protocols=large), h.join(api_version=3, protocols=large)
    assert (first.parked, second.parked) == (True, True)
    assert h.join(api_version=3, protocols=large).code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert h.join(api_version=3).parked, "there is room for one that says little"
    members = list(h.group().members.values())
    assert h.group().protocol_bytes == sum(150 + len(n) + len(data) for each in members for n, data in each.protocols)
    for each in members:
        h.leave("g", each.member_id)
    assert h.group().protocol_bytes == 0


def test_member_that_says_no_more_than_before_rejoins_a_group_that_has_no_room() -> None:
    h = Harness(GroupConfig(max_record_bytes=1_000))
    (member,) = h.stable_group(members=1)
    h.config = GroupConfig(max_record_bytes=10)
    h.reload()
    assert h.join("g", member).code == ErrorCode.NONE
    assert h.join("g", member, protocols=(("range", b"x" * 100),)).code == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_member_that_says_more_than_there_is_room_for_stays_until_its_session_ends() -> None:
    h = Harness(GroupConfig(max_record_bytes=1_000))
    (member,) = h.stable_group(members=1)
    assert h.join("g", member, protocols=(("range", b"x" * 9_000),)).code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert list(h.group().members) == [member], "nobody else would have what it is assigned"
    h.advance(70_000)
    assert h.state("g") == "Empty"


def test_request_that_waits_is_answered_though_its_member_asks_again_for_more_than_there_is_room_for() -> None:
    h = Harness(GroupConfig(max_record_bytes=1_000))
    first = h.join(api_version=3)
    (member,) = h.group().members
    assert h.join("g", member, protocols=(("range", b"x" * 9_000),)).code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert first.parked
    h.finish_initial_delay()
    assert first.code == ErrorCode.NONE


def test_protocols_that_no_member_has_any_more_are_forgotten() -> None:
    h = Harness()
    for number in range(5):
        assert h.join(api_version=3, protocols=protocols(f"once-{number}", "range")).parked
        (member,) = h.group().members
        h.join("g", member, protocols=protocols(f"then-{number}", "range"))
        assert h.group().protocol_support == {f"then-{number}": 1, "range": 1}
        h.leave("g", member)
    assert h.group().protocol_support == {}
