"""SyncGroup (Kafka: GroupMetadataManager#classicGroupSync; reference, section 4.4)."""

from __future__ import annotations

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.admission import sync_refusal
from muster_coordinator.groups.classic.group import ClassicGroup
from muster_coordinator.groups.classic.member import Member
from muster_coordinator.groups.classic.rebalance import prepare_rebalance, reset_assignments, set_session_timer
from muster_coordinator.groups.classic.states import STATE_ERRORS, GroupApi, GroupState
from muster_coordinator.groups.classic.tables import GroupTables, group_record
from muster_coordinator.groups.consumer.classic_members import sync_classic_member
from muster_coordinator.groups.effects import Effects, sync_timer
from muster_coordinator.records.batch import batch_bytes
from muster_coordinator.requests.groups import SyncGroupRequest, SyncGroupResponse
from muster_coordinator.state_machine import Result, Token


def sync_group(state: GroupTables, request: SyncGroupRequest, token: Token, now_ms: int) -> Result:
    refusal = sync_refusal(request, state.config)
    if refusal is not None:
        return Result(response=refusal)
    group = state.group(request.group_id)
    if group is None:
        consumers = state.consumers.groups.get(request.group_id)
        if consumers is not None:
            return sync_classic_member(state.consumers, consumers, request, token)
        return Result(response=SyncGroupResponse(ErrorCode.UNKNOWN_MEMBER_ID))
    code = _sync_error(group, request)
    if code:
        return Result(response=SyncGroupResponse(code))
    effects = Effects(token)
    member = group.members[request.member_id]
    _has_synced(group, member, effects)
    if group.state is GroupState.STABLE:
        return effects.answer(_assignment(group, member))
    if member.sync_token is not None:
        # The same member asked twice. Kafka forgets the first request; here every request is answered.
        effects.reply(member.sync_token, SyncGroupResponse(ErrorCode.REBALANCE_IN_PROGRESS))
    member.sync_token = token
    if group.leader == member.member_id:
        _store_assignment(state, group, dict(request.assignments), effects, now_ms)
    return effects.result()


def _sync_error(group: ClassicGroup, request: SyncGroupRequest) -> ErrorCode:
    state_error = STATE_ERRORS[GroupApi.SYNC_GROUP, group.state]
    if group.state in (GroupState.DEAD, GroupState.EMPTY):
        return state_error
    code = group.member_error(request.member_id, request.group_instance_id)
    if code:
        return code
    if request.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if _differs(request.protocol_type, group.protocol_type) or _differs(request.protocol_name, group.protocol):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return state_error


def _differs(requested: str | None, actual: str | None) -> bool:
    return requested is not None and actual is not None and requested != actual


def _has_synced(group: ClassicGroup, member: Member, effects: Effects) -> None:
    group.pending_sync.discard(member.member_id)
    if not group.pending_sync:
        effects.cancel_timer(sync_timer(group.group_id))


def _assignment(group: ClassicGroup, member: Member) -> SyncGroupResponse:
    return SyncGroupResponse(ErrorCode.NONE, group.protocol_type, group.protocol, member.assignment)


def _store_assignment(
    state: GroupTables, group: ClassicGroup, assignments: dict[str, bytes], effects: Effects, now_ms: int
) -> None:
    """The leader's assignment becomes one record; its replay makes the group Stable. Members that the leader left
    out get an empty assignment, ids that are not members are ignored."""
    value = group.to_value(assignments)
    record = group_record(group.group_id, value)
    if batch_bytes((record,)) > state.config.max_record_bytes:
        reset_assignments(group, ErrorCode.UNKNOWN_SERVER_ERROR, effects)
        prepare_rebalance(state, group, effects, now_ms)
        return
    effects.record(record)
    state.counters.rebalances_completed += 1
    for member in group.members.values():
        if member.sync_token is not None:
            assignment = assignments.get(member.member_id, b"")
            effects.reply(
                member.sync_token,
                SyncGroupResponse(ErrorCode.NONE, group.protocol_type, group.protocol, assignment),
            )
            member.sync_token = None
            # A session that ended while its sync was parked was not acted upon: it starts again.
            set_session_timer(group, member, effects)
