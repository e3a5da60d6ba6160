"""ListGroups and DescribeGroups (Kafka: GroupMetadataManager#listGroups, describeGroups; reference, sections 4.8 and
11)."""

from __future__ import annotations

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.classic.group import ClassicGroup
from muster_coordinator.groups.classic.states import STATE_ERRORS, GroupApi, GroupState
from muster_coordinator.groups.classic.tables import GroupTables, packed_state
from muster_coordinator.groups.packed import decode_group_head
from muster_coordinator.groups.subscription import CONSUMER_PROTOCOL_TYPE
from muster_coordinator.requests.groups import (
    DescribedGroup,
    DescribedMember,
    DescribeGroupRequest,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from muster_coordinator.state_machine import Result, Token

_GROUP_TYPE = "classic"
_CONSUMER_GROUP_TYPE = "consumer"
_UNKNOWN_GROUP_SINCE = 6  # DescribeGroups, KIP-1043


def list_groups(state: GroupTables, request: ListGroupsRequest, _token: Token, _now_ms: int) -> Result:
    """Filters ignore case; an empty one lets everything pass, an unknown name nothing."""
    states = {name.lower().strip() for name in request.states_filter}
    types = {name.lower() for name in request.types_filter}
    groups: tuple[ListedGroup, ...] = ()
    if not types or _GROUP_TYPE in types:
        groups = tuple(
            [
                each
                for each in [_listed(group_id, group) for group_id, group in state.groups.items()]
                if not states or each.group_state.lower() in states
            ]
        )
    if not types or _CONSUMER_GROUP_TYPE in types:
        groups += tuple(
            [
                ListedGroup(group_id, CONSUMER_PROTOCOL_TYPE, consumers.state, _CONSUMER_GROUP_TYPE)
                for group_id, consumers in state.consumers.groups.items()
                if not states or consumers.state.lower() in states
            ]
        )
    return Result(response=ListGroupsResponse(ErrorCode.NONE, groups))


def _listed(group_id: str, group: ClassicGroup | bytes) -> ListedGroup:
    if isinstance(group, bytes):
        protocol_type, group_state = decode_group_head(group).protocol_type, packed_state(group)
    else:
        protocol_type, group_state = group.protocol_type or "", group.state
    return ListedGroup(group_id, protocol_type, group_state.value, _GROUP_TYPE)


def describe_group(state: GroupTables, request: DescribeGroupRequest, _token: Token, _now_ms: int) -> Result:
    group = state.look_at(request.group_id)
    code = ErrorCode.GROUP_ID_NOT_FOUND if group is None else STATE_ERRORS[GroupApi.DESCRIBE_GROUPS, group.state]
    if group is None or code:
        is_other = request.group_id in state.consumers.groups
        return Result(response=_unknown(request, "is not a classic group" if is_other else "not found"))
    return Result(
        response=DescribedGroup(
            group_id=group.group_id,
            error_code=ErrorCode.NONE,
            group_state=group.state.value,
            protocol_type=group.protocol_type or "",
            protocol_data=(group.protocol or "") if group.state is GroupState.STABLE else "",
            members=_members(group),
        )
    )


def _unknown(request: DescribeGroupRequest, why: str) -> DescribedGroup:
    dead = GroupState.DEAD.value
    if request.api_version < _UNKNOWN_GROUP_SINCE:
        return DescribedGroup(request.group_id, ErrorCode.NONE, group_state=dead)
    message = f"Group {request.group_id} {why}."
    return DescribedGroup(request.group_id, ErrorCode.GROUP_ID_NOT_FOUND, message, group_state=dead)


def _members(group: ClassicGroup) -> tuple[DescribedMember, ...]:
    """Metadata is shown in Stable only, when there is one protocol that it belongs to."""
    stable = group.state is GroupState.STABLE
    return tuple(
        DescribedMember(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            member.metadata(group.protocol) if stable else b"",
            member.assignment,
        )
        for member in group.members.values()
    )
