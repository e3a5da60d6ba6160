"""LeaveGroup (Kafka: GroupMetadataManager#classicGroupLeave; reference, section 4.5)."""

from __future__ import annotations

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.classic.consumer_groups import leave_consumers
from muster_coordinator.groups.classic.group import ClassicGroup
from muster_coordinator.groups.classic.rebalance import maybe_complete_join, prepare_rebalance, remove_member
from muster_coordinator.groups.classic.states import STATE_ERRORS, GroupApi, GroupState
from muster_coordinator.groups.classic.tables import GroupTables
from muster_coordinator.groups.effects import Effects, session_timer
from muster_coordinator.requests.groups import LeaveGroupRequest, LeaveGroupResponse, LeavingMember, LeftMember
from muster_coordinator.state_machine import Result, Token


def leave_group(state: GroupTables, request: LeaveGroupRequest, token: Token, now_ms: int) -> Result:
    if not request.group_id:
        return Result(response=LeaveGroupResponse(ErrorCode.INVALID_GROUP_ID))
    consumers = state.consumers.groups.get(request.group_id)
    if consumers is not None:
        return leave_consumers(state, consumers, request, token, now_ms)
    group = state.group(request.group_id)
    if group is None:
        unknown = tuple(_left(member, ErrorCode.UNKNOWN_MEMBER_ID) for member in request.members)
        return Result(response=LeaveGroupResponse(ErrorCode.NONE, unknown))
    code = STATE_ERRORS[GroupApi.LEAVE_GROUP, group.state]
    if code:
        return Result(response=LeaveGroupResponse(code))
    effects = Effects(token)
    left = tuple(_left(member, _leave(group, member, effects)) for member in request.members)
    # One rebalance for the whole batch.
    if any(member.error_code == ErrorCode.NONE for member in left):
        if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            prepare_rebalance(state, group, effects, now_ms)
        else:
            maybe_complete_join(group, effects, now_ms)
    return effects.answer(LeaveGroupResponse(ErrorCode.NONE, left))


def _left(member: LeavingMember, code: ErrorCode) -> LeftMember:
    return LeftMember(member.member_id, member.group_instance_id, code)


def _leave(group: ClassicGroup, leaving: LeavingMember, effects: Effects) -> ErrorCode:
    member_id = leaving.member_id
    if member_id in group.pending_members:
        group.remove(member_id)
        effects.cancel_timer(session_timer(group.group_id, member_id))
        return ErrorCode.NONE
    if not member_id:
        # An administrator removes a static member by its instance id.
        member_id = group.static_members.get(leaving.group_instance_id or "", "")
        code = ErrorCode.NONE if member_id else ErrorCode.UNKNOWN_MEMBER_ID
    else:
        code = group.member_error(member_id, leaving.group_instance_id)
    if not code:
        remove_member(group, group.members[member_id], effects)
    return code
