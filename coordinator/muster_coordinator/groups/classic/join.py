"""JoinGroup (Kafka: GroupMetadataManager#classicGroupJoin; reference, sections 4.3 and 4.6)."""

from __future__ import annotations

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.admission import join_refusal
from muster_coordinator.groups.classic.consumer_groups import join_consumers
from muster_coordinator.groups.classic.group import ClassicGroup
from muster_coordinator.groups.classic.member import Member, protocol_bytes
from muster_coordinator.groups.classic.rebalance import (
    join_response,
    joined_members,
    maybe_complete_join,
    maybe_prepare_rebalance,
    prepare_rebalance,
    set_session_timer,
)
from muster_coordinator.groups.classic.states import STATE_ERRORS, GroupApi, GroupState
from muster_coordinator.groups.classic.tables import GroupTables, group_record
from muster_coordinator.groups.effects import Effects, session_timer
from muster_coordinator.records.group_metadata import GroupMetadataValue
from muster_coordinator.requests.groups import JoinGroupRequest, JoinGroupResponse, SyncGroupResponse
from muster_coordinator.state_machine import Result, Token

_MEMBER_ID_REQUIRED_SINCE = 4  # KIP-394
_SKIP_ASSIGNMENT_SINCE = 9  # KIP-814

_PROTOCOLS_FACTOR = 8
"""Bound on what the members of a group say of all their protocols, in times `max_record_bytes`: the record of a group
has one protocol."""


def join_group(state: GroupTables, request: JoinGroupRequest, token: Token, now_ms: int) -> Result:
    refusal = join_refusal(request, state.config)
    if refusal is not None:
        return Result(response=refusal)
    consumers = state.consumers.groups.get(request.group_id)
    if consumers is not None and consumers.members:
        return join_consumers(state, consumers, request, token, now_ms)
    effects = Effects(token)
    group = state.group(request.group_id)
    created = group is None
    if group is None:
        if request.member_id:
            return effects.answer(_error(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id))
        group = state.create_group(request.group_id, now_ms)
        if group is None:
            return effects.answer(_error(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    tombstones = [] if consumers is None else list(consumers.tombstones())
    for record in tombstones:  # the group was empty, and becomes a classic one
        effects.record(record)
    if not _accepts(state, group, request.member_id):
        _turn_away(group, request.member_id, effects)
        effects.reply(token, _error(ErrorCode.GROUP_MAX_SIZE_REACHED))
    elif not _has_room(state, group, request):
        if request.member_id not in group.members:  # those keep what they have, until they leave or their session ends
            _turn_away(group, request.member_id, effects)
        effects.reply(token, _error(ErrorCode.GROUP_MAX_SIZE_REACHED))
    elif request.member_id:
        _join_known_member(state, group, request, token, effects, now_ms)
    else:
        _join_new_member(state, group, request, token, effects, now_ms)
    if created and effects.record_count == len(tombstones):
        # A group exists from its first JoinGroup on, whatever the answer was (reference, section 3.5).
        value = GroupMetadataValue("", 0, None, None, now_ms, ())
        effects.record(group_record(group.group_id, value))
    return effects.result()


def _error(code: ErrorCode, member_id: str = "") -> JoinGroupResponse:
    return JoinGroupResponse(error_code=code, member_id=member_id)


def _accepts(state: GroupTables, group: ClassicGroup, member_id: str) -> bool:
    """group.max.size. While members rejoin, those that wait are counted, so that the last ones are turned away."""
    max_size = state.config.max_size
    if group.state is GroupState.PREPARING_REBALANCE:
        member = group.members.get(member_id)
        return (member is not None and member.join_token is not None) or group.awaiting_join_count < max_size
    if group.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
        return member_id in group.members or len(group.members) < max_size
    return True


def _has_room(state: GroupTables, group: ClassicGroup, request: JoinGroupRequest) -> bool:
    """Kafka has no such bound: it would keep gigabytes for a group that no record can hold."""
    known = request.member_id or group.static_members.get(request.group_instance_id or "", "")
    member = group.members.get(known)
    more = protocol_bytes(request.protocols) - (0 if member is None else protocol_bytes(member.protocols))
    return more <= 0 or group.protocol_bytes + more <= _PROTOCOLS_FACTOR * state.config.max_record_bytes


def _turn_away(group: ClassicGroup, member_id: str, effects: Effects) -> None:
    """A member or pending member that comes back to a full group is out; it has nothing parked."""
    if member_id:
        group.remove(member_id)
        effects.cancel_timer(session_timer(group.group_id, member_id))


# -- members without an id --------------------------------------------------------------------------------------------


def _join_new_member(
    state: GroupTables, group: ClassicGroup, request: JoinGroupRequest, token: Token, effects: Effects, now_ms: int
) -> None:
    code = STATE_ERRORS[GroupApi.JOIN_GROUP_NEW_MEMBER, group.state]
    if not code and not group.supports(request.protocol_type, (name for name, _ in request.protocols)):
        code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if code:
        effects.reply(token, _error(code))
        return
    instance_id = request.group_instance_id
    member_id = f"{request.client_id if instance_id is None else instance_id}-{state.new_member_suffix()}"
    if instance_id is None and request.api_version >= _MEMBER_ID_REQUIRED_SINCE:
        _require_member_id(state, group, member_id, request, token, effects)
    elif instance_id is not None and instance_id in group.static_members:
        _replace_static_member(state, group, member_id, request, token, effects, now_ms)
    else:
        _add_member(state, group, member_id, request, token, effects, now_ms)


def _require_member_id(
    state: GroupTables, group: ClassicGroup, member_id: str, request: JoinGroupRequest, token: Token, effects: Effects
) -> None:
    if len(group.pending_members) >= state.config.max_pending_members:
        effects.reply(token, _error(ErrorCode.GROUP_MAX_SIZE_REACHED))
        return
    group.pending_members.add(member_id)
    effects.set_timer(session_timer(group.group_id, member_id), request.session_timeout_ms)
    effects.reply(token, _error(ErrorCode.MEMBER_ID_REQUIRED, member_id))


def _add_member(
    state: GroupTables,
    group: ClassicGroup,
    member_id: str,
    request: JoinGroupRequest,
    token: Token,
    effects: Effects,
    now_ms: int,
) -> None:
    member = Member(
        group.group_id,
        member_id,
        request.group_instance_id,
        request.client_id,
        request.client_host,
        request.rebalance_timeout_ms,
        request.session_timeout_ms,
        request.protocols,
    )
    member.is_new = True
    member.join_token = token
    if group.state is GroupState.PREPARING_REBALANCE and group.previous_state is GroupState.EMPTY:
        group.new_member_added = True
    if not group.members:
        group.protocol_type = request.protocol_type
    group.add(member)
    # It does not know its id yet and cannot send heartbeats; a longer timeout ends it if its connection is gone.
    effects.set_timer(session_timer(group.group_id, member_id), state.config.new_member_join_timeout_ms)
    maybe_prepare_rebalance(state, group, effects, now_ms)


def _replace_static_member(
    state: GroupTables,
    group: ClassicGroup,
    member_id: str,
    request: JoinGroupRequest,
    token: Token,
    effects: Effects,
    now_ms: int,
) -> None:
    """A static member came back without its id: the new one takes its place (KIP-345)."""
    assert request.group_instance_id is not None
    old_leader = group.leader
    member = _take_over(group, group.members[group.static_members[request.group_instance_id]], member_id, effects)
    set_session_timer(group, member, effects)
    group.update(member, request.protocols, request.rebalance_timeout_ms, request.session_timeout_ms)
    if group.state is GroupState.STABLE and group.select_protocol() == group.protocol:
        # Nothing changes for the others: no rebalance, the new id is stored.
        effects.record(group_record(group.group_id, group.to_value()))
        effects.reply(token, _replaced_response(group, member_id, old_leader, request.api_version))
        return
    group.park_join(member, token)
    # In CompletingRebalance the leader may assign to the old id already, so everybody joins again (KAFKA-9801).
    maybe_prepare_rebalance(state, group, effects, now_ms)


def _take_over(group: ClassicGroup, old: Member, member_id: str, effects: Effects) -> Member:
    """Replace `old`; what it had parked is fenced."""
    join_token = group.take_join(old)
    if join_token is not None:
        effects.reply(join_token, _error(ErrorCode.FENCED_INSTANCE_ID, old.member_id))
    if old.sync_token is not None:
        effects.reply(old.sync_token, SyncGroupResponse(ErrorCode.FENCED_INSTANCE_ID))
        old.sync_token = None
    effects.cancel_timer(session_timer(group.group_id, old.member_id))
    return group.replace_static(old, member_id)


def _replaced_response(
    group: ClassicGroup, member_id: str, old_leader: str | None, api_version: int
) -> JoinGroupResponse:
    """KIP-814: a leader that is told to skip the assignment gets the members; an older client is told of the *old*
    leader, so that it does not assign."""
    is_leader = group.leader == member_id
    skips = api_version >= _SKIP_ASSIGNMENT_SINCE
    return JoinGroupResponse(
        error_code=ErrorCode.NONE,
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        leader=(group.leader if skips else old_leader) or "",
        skip_assignment=skips and is_leader,
        member_id=member_id,
        members=joined_members(group) if skips and is_leader else (),
    )


# -- members with an id -----------------------------------------------------------------------------------------------


def _join_known_member(
    state: GroupTables, group: ClassicGroup, request: JoinGroupRequest, token: Token, effects: Effects, now_ms: int
) -> None:
    member_id = request.member_id
    if group.state is GroupState.DEAD:
        effects.reply(token, _error(STATE_ERRORS[GroupApi.JOIN_GROUP_KNOWN_MEMBER, group.state], member_id))
    elif not group.supports(request.protocol_type, (name for name, _ in request.protocols)):
        effects.reply(token, _error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id))
    elif member_id in group.pending_members:
        if request.group_instance_id is not None:
            # Only dynamic members are ever pending; Kafka fails on this as an illegal state.
            effects.reply(token, _error(ErrorCode.UNKNOWN_SERVER_ERROR))
        else:
            _add_member(state, group, member_id, request, token, effects, now_ms)
    else:
        code = group.member_error(member_id, request.group_instance_id)
        code = code or STATE_ERRORS[GroupApi.JOIN_GROUP_KNOWN_MEMBER, group.state]
        if code:
            effects.reply(token, _error(code, member_id))
        else:
            _rejoin(state, group, group.members[member_id], request, token, effects, now_ms)


def _rejoin(
    state: GroupTables,
    group: ClassicGroup,
    member: Member,
    request: JoinGroupRequest,
    token: Token,
    effects: Effects,
    now_ms: int,
) -> None:
    unchanged = request.protocols == member.protocols
    if (group.state is GroupState.COMPLETING_REBALANCE and unchanged) or (
        group.state is GroupState.STABLE and unchanged and group.leader != member.member_id
    ):
        # It may have missed the answer: the generation goes on. A leader that asks in Stable wants a rebalance.
        effects.reply(token, join_response(group, member.member_id))
        return
    group.update(member, request.protocols, request.rebalance_timeout_ms, request.session_timeout_ms)
    replaced = group.park_join(member, token)
    if replaced is not None:
        # The same member asked twice. Kafka forgets the first request; here every request is answered.
        effects.reply(replaced, _error(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
    if group.state is GroupState.PREPARING_REBALANCE:
        maybe_complete_join(group, effects, now_ms)
    else:
        prepare_rebalance(state, group, effects, now_ms)
