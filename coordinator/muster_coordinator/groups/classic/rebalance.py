"""The life of a rebalance: it is prepared, members join within a time, the generation begins, members leave or fail.

Functions change the live state of the group and put answers, timers and records into `effects` (Kafka:
GroupMetadataManager#prepareRebalance, completeClassicGroupJoin and what surrounds them; reference, section 4.3).
"""

from __future__ import annotations

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.classic.group import ClassicGroup
from muster_coordinator.groups.classic.member import Member
from muster_coordinator.groups.classic.states import GroupEvent, GroupState
from muster_coordinator.groups.classic.tables import GroupTables, group_record
from muster_coordinator.groups.effects import Effects, join_timer, session_timer, sync_timer
from muster_coordinator.records.group_metadata import GroupMetadataValue
from muster_coordinator.requests.groups import JoinGroupMember, JoinGroupResponse, SyncGroupResponse


def set_session_timer(group: ClassicGroup, member: Member, effects: Effects) -> None:
    effects.set_timer(session_timer(group.group_id, member.member_id), member.session_timeout_ms)


def maybe_prepare_rebalance(state: GroupTables, group: ClassicGroup, effects: Effects, now_ms: int) -> None:
    """Start a rebalance, or see whether the one that is on can end."""
    if group.can_rebalance():
        prepare_rebalance(state, group, effects, now_ms)
    else:
        maybe_complete_join(group, effects, now_ms)


def prepare_rebalance(state: GroupTables, group: ClassicGroup, effects: Effects, now_ms: int) -> None:
    if group.state is GroupState.COMPLETING_REBALANCE:
        reset_assignments(group, ErrorCode.REBALANCE_IN_PROGRESS, effects)
    group.pending_sync.clear()
    effects.cancel_timer(sync_timer(group.group_id))
    initial = group.state is GroupState.EMPTY
    group.transition(GroupEvent.PREPARE_REBALANCE, now_ms)
    if initial:
        delay_ms = state.config.initial_rebalance_delay_ms
        group.initial_delay = (delay_ms, max(group.rebalance_timeout_ms() - delay_ms, 0))
        effects.set_timer(join_timer(group.group_id), delay_ms)
    elif group.has_all_members_joined():
        complete_join(group, effects, now_ms)
    else:
        effects.set_timer(join_timer(group.group_id), group.rebalance_timeout_ms())


def maybe_complete_join(group: ClassicGroup, effects: Effects, now_ms: int) -> None:
    """End the join phase when everybody has joined. The initial one always lasts until its timer."""
    if (
        group.state is GroupState.PREPARING_REBALANCE
        and group.previous_state is not GroupState.EMPTY
        and group.has_all_members_joined()
    ):
        complete_join(group, effects, now_ms)


def on_join_timer(state: GroupTables, group: ClassicGroup, effects: Effects, now_ms: int) -> None:
    """The initial delay or the rebalance timeout has run out; the former is extended while new members arrive."""
    if group.state is not GroupState.PREPARING_REBALANCE:
        return
    if group.initial_delay is not None and group.new_member_added and group.initial_delay[1] != 0:
        delay_ms, remaining_ms = group.initial_delay
        group.new_member_added = False
        next_delay_ms = min(state.config.initial_rebalance_delay_ms, remaining_ms)
        group.initial_delay = (next_delay_ms, max(remaining_ms - delay_ms, 0))
        effects.set_timer(join_timer(group.group_id), next_delay_ms)
    else:
        complete_join(group, effects, now_ms)


def complete_join(group: ClassicGroup, effects: Effects, now_ms: int) -> None:
    """The join phase is over: dynamic members that are not back are out, static ones stay, a new generation begins."""
    effects.cancel_timer(join_timer(group.group_id))
    group.initial_delay = None
    for member in [m for m in group.members.values() if m.join_token is None and m.group_instance_id is None]:
        group.remove(member.member_id)
        effects.cancel_timer(session_timer(group.group_id, member.member_id))
    if not group.members:
        value = GroupMetadataValue(group.protocol_type or "", group.generation + 1, None, None, now_ms, ())
        effects.record(group_record(group.group_id, value))
    elif group.elect_joined_leader():
        _begin_generation(group, effects, now_ms)
    else:
        # Only static members are left and none is back: wait until their sessions end.
        effects.set_timer(join_timer(group.group_id), group.rebalance_timeout_ms())


def _begin_generation(group: ClassicGroup, effects: Effects, now_ms: int) -> None:
    group.generation += 1
    group.protocol = group.select_protocol()
    group.subscribed_topics = group.compute_subscribed_topics()
    group.transition(GroupEvent.JOINS_COMPLETED, now_ms)
    group.pending_sync = set(group.members)
    for member in group.members.values():
        token = group.take_join(member)
        if token is not None:
            effects.reply(token, join_response(group, member.member_id))
        set_session_timer(group, member, effects)
        member.is_new = False
    effects.set_timer(sync_timer(group.group_id), group.rebalance_timeout_ms())


def join_response(group: ClassicGroup, member_id: str) -> JoinGroupResponse:
    """The current generation, as one member is told of it: only the leader gets the members."""
    members: tuple[JoinGroupMember, ...] = ()
    if group.leader == member_id:
        members = joined_members(group)
    return JoinGroupResponse(
        error_code=ErrorCode.NONE,
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        leader=group.leader or "",
        member_id=member_id,
        members=members,
    )


def joined_members(group: ClassicGroup) -> tuple[JoinGroupMember, ...]:
    return tuple(
        JoinGroupMember(member.member_id, member.group_instance_id, member.metadata(group.protocol))
        for member in group.members.values()
    )


def reset_assignments(group: ClassicGroup, code: ErrorCode, effects: Effects) -> None:
    """Nobody has an assignment in this generation any more; parked syncs are answered with `code`."""
    for member in group.members.values():
        member.assignment = b""
        if member.sync_token is not None:
            effects.reply(member.sync_token, SyncGroupResponse(code))
            member.sync_token = None
            set_session_timer(group, member, effects)


def remove_member(group: ClassicGroup, member: Member, effects: Effects) -> None:
    """Take a member out and answer what it had parked: UNKNOWN_MEMBER_ID, so that a client that is alive joins
    again."""
    token = group.take_join(member)
    if token is not None:
        effects.reply(token, JoinGroupResponse(ErrorCode.UNKNOWN_MEMBER_ID))
    if member.sync_token is not None:
        effects.reply(member.sync_token, SyncGroupResponse(ErrorCode.UNKNOWN_MEMBER_ID))
        member.sync_token = None
    group.remove(member.member_id)
    effects.cancel_timer(session_timer(group.group_id, member.member_id))


def on_session_timer(state: GroupTables, group: ClassicGroup, member_id: str, effects: Effects, now_ms: int) -> None:
    """A member, or a pending member, was silent for its session timeout."""
    if member_id in group.pending_members:
        group.remove(member_id)
    else:
        member = group.members.get(member_id)
        if member is None or member.satisfies_session():
            return
        state.counters.sessions_ended += 1
        remove_member(group, member, effects)
        if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            prepare_rebalance(state, group, effects, now_ms)
            return
    if group.state is GroupState.PREPARING_REBALANCE and group.has_all_members_joined():
        complete_join(group, effects, now_ms)


def on_sync_timer(state: GroupTables, group: ClassicGroup, effects: Effects, now_ms: int) -> None:
    """Members that have joined and not synced within the rebalance timeout are out (KAFKA-12890)."""
    if group.state not in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE) or not group.pending_sync:
        return
    for member_id in tuple(group.pending_sync):
        member = group.members.get(member_id)
        if member is None:  # a static member that was replaced before it synced
            group.pending_sync.discard(member_id)
        else:
            remove_member(group, member, effects)
    prepare_rebalance(state, group, effects, now_ms)
