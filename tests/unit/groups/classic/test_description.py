"""ListGroups and DescribeGroups. Origin: testListGroups*, testDescribeGroup* of GroupCoordinatorTest,
GroupMetadataManagerTest."""

from __future__ import annotations

import pytest
from tests.unit.groups.harness import Harness, subscription

from muster_coordinator.groups.classic.states import GroupState
from muster_coordinator.requests import groups as m


@pytest.fixture
def h() -> Harness:
    return Harness()


def listed(h: Harness, states: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> dict[str, str]:
    response = h.send(m.ListGroupsRequest(states, types)).response
    return {group.group_id: group.group_state for group in response.groups}


def test_groups_are_listed_with_state_and_type(h: Harness) -> None:
    h.stable_group("stable")
    h.commit("simple")
    h.join_dynamic("joining")
    response = h.send(m.ListGroupsRequest()).response
    assert set(response.groups) == {
        m.ListedGroup("stable", "consumer", "Stable", "classic"),
        m.ListedGroup("simple", "", "Empty", "classic"),
        m.ListedGroup("joining", "consumer", "PreparingRebalance", "classic"),
    }


def test_filters_ignore_case_and_unknown_names_match_nothing(h: Harness) -> None:
    h.stable_group("stable")
    h.commit("simple")
    assert listed(h, states=("sTaBlE ",)) == {"stable": "Stable"}
    assert listed(h, states=("stable", "EMPTY"), types=("Classic",)) == {"stable": "Stable", "simple": "Empty"}
    assert listed(h, states=("NoSuchState",)) == {}
    assert listed(h, types=("consumer",)) == {}
    assert listed(h, types=("nosuchtype", "classic"), states=("empty",)) == {"simple": "Empty"}


def test_stable_group_is_described_with_metadata_and_assignment(h: Harness) -> None:
    """[testDescribeGroupStableForDynamicMember, testDescribeGroupStableForStaticMember]"""
    (member,) = h.static_group(instances=("inst",))
    assert h.describe() == m.DescribedGroup(
        group_id="g",
        error_code=0,
        group_state="Stable",
        protocol_type="consumer",
        protocol_data="range",
        members=(
            m.DescribedMember(member, "inst", "client", "/127.0.0.1", subscription(["t"]), f"a-{member}".encode()),
        ),
    )


def test_rebalancing_group_is_described_without_protocol_and_metadata(h: Harness) -> None:
    """[testDescribeGroupRebalancing]; the last assignment is still shown"""
    leader, follower = h.stable_group(members=2)
    h.join("g", leader)
    described = h.describe()
    assert (described.group_state, described.protocol_data) == ("PreparingRebalance", "")
    assert {member.member_id: (member.metadata, member.assignment) for member in described.members} == {
        leader: (b"", f"a-{leader}".encode()),
        follower: (b"", f"a-{follower}".encode()),
    }


def test_assignments_of_an_abandoned_generation_are_gone(h: Harness) -> None:
    (leader,) = h.stable_group()
    h.join("g", leader)
    assert h.describe().members[0].assignment == f"a-{leader}".encode()
    h.join_dynamic()
    assert h.describe().group_state == "PreparingRebalance"
    assert h.describe().members[0].assignment == b""


def test_unknown_group_is_dead_before_version_6_and_not_found_after(h: Harness) -> None:
    """[testDescribeGroupWrongCoordinator, InactiveGroup; KIP-1043]"""
    assert h.describe(api_version=5) == m.DescribedGroup("g", 0, group_state="Dead")
    assert h.describe(api_version=6) == m.DescribedGroup("g", 69, "Group g not found.", group_state="Dead")


def test_groups_are_counted_by_state(h: Harness) -> None:
    h.stable_group("stable")
    h.commit("simple")
    h.join_dynamic("joining")
    assert h.coordinator.group_counts() == {
        GroupState.EMPTY: 1,
        GroupState.PREPARING_REBALANCE: 1,
        GroupState.COMPLETING_REBALANCE: 0,
        GroupState.STABLE: 1,
        GroupState.DEAD: 0,
    }


@pytest.mark.parametrize("members", [1, 3])
def test_completed_rebalances_are_counted(h: Harness, members: int) -> None:
    h.stable_group(members=members)
    assert h.coordinator.event_counts["rebalances_completed"] == 1
