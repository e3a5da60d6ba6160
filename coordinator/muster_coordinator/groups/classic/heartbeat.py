"""Heartbeat (Kafka: GroupMetadataManager#classicGroupHeartbeat; reference, section 4.5)."""

from __future__ import annotations

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.classic.group import ClassicGroup
from muster_coordinator.groups.classic.states import STATE_ERRORS, GroupApi, GroupState
from muster_coordinator.groups.classic.tables import GroupTables
from muster_coordinator.groups.consumer.classic_members import heartbeat_classic_member
from muster_coordinator.requests.groups import HeartbeatRequest, HeartbeatResponse
from muster_coordinator.state_machine import Result, Token

_OK = HeartbeatResponse(ErrorCode.NONE)


def heartbeat(state: GroupTables, request: HeartbeatRequest, token: Token, now_ms: int) -> Result:
    if not request.group_id:
        return Result(response=HeartbeatResponse(ErrorCode.INVALID_GROUP_ID))
    group = state.group(request.group_id)
    if group is None:
        consumers = state.consumers.groups.get(request.group_id)
        if consumers is not None:
            return heartbeat_classic_member(state.consumers, consumers, request, token, now_ms)
        return Result(response=HeartbeatResponse(ErrorCode.UNKNOWN_MEMBER_ID))
    code = _member_error(group, request)
    if code:
        return Result(response=HeartbeatResponse(code))
    # The session starts again in every state, also when the answer is REBALANCE_IN_PROGRESS.
    code = STATE_ERRORS[GroupApi.HEARTBEAT, group.state]
    response = HeartbeatResponse(code) if code else _OK
    return Result(response=response, timers=group.members[request.member_id].session_timers)


def _member_error(group: ClassicGroup, request: HeartbeatRequest) -> ErrorCode:
    if group.state is GroupState.DEAD:
        return STATE_ERRORS[GroupApi.HEARTBEAT, group.state]
    code = group.member_error(request.member_id, request.group_instance_id)
    if not code and request.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    return code
