"""What holds in a group whatever happened: the invariants that the harness checks after every step."""

from __future__ import annotations

from collections import Counter

from muster_coordinator.groups.classic.group import ClassicGroup
from muster_coordinator.groups.classic.member import protocol_bytes
from muster_coordinator.groups.classic.states import GroupState
from muster_coordinator.groups.coordinator import GroupCoordinator
from muster_coordinator.requests.groups import ListGroupsRequest, ListGroupsResponse


def check_counts(coordinator: GroupCoordinator) -> None:
    """What is counted as groups come, move and go is what a count finds."""
    listed = coordinator.operations[ListGroupsRequest](
        ListGroupsRequest(types_filter=("classic",)), object(), 0
    ).response
    assert isinstance(listed, ListGroupsResponse)
    found = Counter(group.group_state for group in listed.groups)
    assert {state.value: count for state, count in coordinator.group_counts().items() if count} == found


def check_timer(kind: str, group: ClassicGroup, member_id: str) -> None:
    """No timer outlives what it was set for."""
    if kind == "session":
        assert member_id in group.members or member_id in group.pending_members
    elif kind == "join":
        assert group.state is GroupState.PREPARING_REBALANCE
    else:
        assert group.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE)
        assert group.pending_sync


def check_group(group: ClassicGroup) -> None:
    """What holds in a group whatever happened."""
    assert group.awaiting_join_count == sum(member.join_token is not None for member in group.members.values())
    assert group.static_members == {
        member.group_instance_id: member.member_id
        for member in group.members.values()
        if member.group_instance_id is not None
    }
    assert not group.pending_members & set(group.members)
    assert (group.leader in group.members) if group.members else True
    said = [member.protocols for member in group.members.values()]
    assert group.protocol_support == dict(Counter(name for protocols in said for name, _ in protocols))
    assert group.protocol_bytes == sum(map(protocol_bytes, said))
    for member in group.members.values():
        assert member.join_token is None or group.state is GroupState.PREPARING_REBALANCE
        assert member.sync_token is None or group.state is GroupState.COMPLETING_REBALANCE
    if group.state in (GroupState.STABLE, GroupState.EMPTY):
        check_settled(group)


def check_settled(group: ClassicGroup) -> None:
    """In Stable and Empty the live state and the last record say the same."""
    durable = group.durable
    if durable is None:
        assert not group.members
        assert group.generation == 0
        return
    assert group.generation == durable.generation
    assert group.protocol == durable.protocol
    assert bool(group.members) == (group.state is GroupState.STABLE)
    if group.members:
        assert group.leader == durable.leader
        assert set(group.to_value().members) == set(durable.members)
