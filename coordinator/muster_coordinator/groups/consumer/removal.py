"""The removal of members: they leave, or are not heard of in time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.consumer.errors import GroupError
from muster_coordinator.groups.consumer.group import ConsumerGroup
from muster_coordinator.groups.consumer.member import NOTHING_OWNED, UNREVOKED_PARTITIONS, Member
from muster_coordinator.groups.consumer.subscriptions import metadata_hash
from muster_coordinator.groups.consumer.tables import (
    ConsumerTables,
    join_timer,
    rebalance_timer,
    session_timer,
    sync_timer,
)
from muster_coordinator.groups.effects import Effects
from muster_coordinator.records.consumer_group import (
    CURRENT_TYPE,
    MEMBER_TYPE,
    METADATA_TYPE,
    REGEX_TYPE,
    TARGET_MEMBER_TYPE,
    TARGET_METADATA_TYPE,
    ConsumerGroupMetadataValue,
    ConsumerGroupTargetMetadataValue,
)
from muster_coordinator.requests.consumer_groups import (
    LEAVING_STATIC_EPOCH,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from muster_coordinator.state_machine import Result, Token

Fence: TypeAlias = Callable[[ConsumerTables, ConsumerGroup, list[str], Effects], None]
"""Puts members out of a group: `fence_members`, or what may make the group a classic one by it."""


def leave(state: ConsumerTables, request: ConsumerGroupHeartbeatRequest, token: Token, fence: Fence) -> Result:
    """A member leaves for good, or a static one to come back. Its epoch is not looked at. Raises GroupError."""
    group = state.groups.get(request.group_id)
    if group is None:
        raise GroupError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} not found.")
    member = _leaving(group, request)
    effects = Effects(token)
    if request.instance_id is not None and request.member_epoch == LEAVING_STATIC_EPOCH:
        away = member.current._replace(epoch=LEAVING_STATIC_EPOCH, pending_revocation=NOTHING_OWNED)
        effects.record(group.record(CURRENT_TYPE, away.to_value(), member.member_id))
        effects.cancel_timer(rebalance_timer(group.group_id, member.member_id))
    else:
        fence(state, group, [member.member_id], effects)
    return effects.answer(ConsumerGroupHeartbeatResponse(0, None, member.member_id, request.member_epoch))


def _leaving(group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest) -> Member:
    if request.instance_id is None:
        member = group.member(request.member_id)
        return unknown_member(group, request.member_id) if member is None else member
    return static_member(group, request.instance_id, request.member_id)


def static_member(group: ConsumerGroup, instance_id: str, member_id: str) -> Member:
    """Raises GroupError unless `member_id` is the member of this instance."""
    member = group.static_member(instance_id)
    if member is None:
        raise GroupError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if member.member_id != member_id:
        raise GroupError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}.",
        )
    return member


def unknown_member(group: ConsumerGroup, member_id: str) -> Member:
    raise GroupError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group.group_id}.")


def forget_member(state: ConsumerTables, group: ConsumerGroup, member_id: str, effects: Effects) -> None:
    """Its tombstones and timers; the order of the records is Kafka's."""
    for record_type in (CURRENT_TYPE, TARGET_MEMBER_TYPE, MEMBER_TYPE):
        effects.record(group.record(record_type, None, member_id))
    forget_timers(state, group, member_id, effects)


def forget_timers(state: ConsumerTables, group: ConsumerGroup, member_id: str, effects: Effects) -> None:
    """Cancel the timers of a member that is out, or becomes a member of a classic group."""
    effects.cancel_timer(session_timer(group.group_id, member_id))
    effects.cancel_timer(rebalance_timer(group.group_id, member_id))
    if group.members[member_id].classic is not None:
        stop_waiting(state, group.group_id, member_id, effects)


def stop_waiting(state: ConsumerTables, group_id: str, member_id: str, effects: Effects) -> None:
    """Ends the wait of a classic member's JoinGroup and SyncGroup."""
    state.live(group_id).awaited.discard(member_id)
    effects.cancel_timer(join_timer(group_id, member_id))
    effects.cancel_timer(sync_timer(group_id, member_id))


def fence_members(state: ConsumerTables, group: ConsumerGroup, member_ids: list[str], effects: Effects) -> None:
    """These members are out of the group, and expressions that only they had; the group epoch goes up."""
    gone: dict[str, int] = {}
    for member_id in member_ids:
        forget_member(state, group, member_id, effects)
        regex = group.members[member_id].subscribed_topic_regex
        if regex:
            gone[regex] = gone.get(regex, 0) + 1
    for regex, count in gone.items():
        if group.regex_members[regex] == count:
            effects.record(group.record(REGEX_TYPE, None, regex))
    new_hash = metadata_hash(group, state.topics, gone=[group.members[member_id] for member_id in member_ids])
    effects.record(group.record(METADATA_TYPE, ConsumerGroupMetadataValue(group.epoch + 1, new_hash)))
    if state.follows_4_4 and len(member_ids) == len(group.members):
        # Nobody is left who would make the assignment epoch follow.
        target = ConsumerGroupTargetMetadataValue(group.epoch + 1, group.target_timestamp_ms)
        effects.record(group.record(TARGET_METADATA_TYPE, target))


# -- timers -----------------------------------------------------------------------------------------------------------


def on_member_timer(state: ConsumerTables, group_id: str, member_id: str, fence: Fence = fence_members) -> Result:
    """A member did not send a heartbeat, or a classic one did not join or sync, in time."""
    effects = Effects()
    group = state.groups.get(group_id)
    if group is not None and member_id in group.members:
        fence(state, group, [member_id], effects)
    return effects.result()


def on_rebalance_timer(state: ConsumerTables, group_id: str, member_id: str, fence: Fence = fence_members) -> Result:
    """Nothing, if the member has given back what it had to."""
    effects = Effects()
    group = state.groups.get(group_id)
    if group is not None and _holds_others_up(group, member_id):
        fence(state, group, [member_id], effects)
    return effects.result()


def start_timers(state: ConsumerTables, group: ConsumerGroup, effects: Effects) -> None:
    """Starts timers after a load: every member has a whole session, and its whole rebalance time-out."""
    session_timeout_ms = state.config_of(group.group_id).session_timeout_ms
    for member_id, value in group.members.items():
        classic = value.classic
        timeout_ms = session_timeout_ms if classic is None else classic.session_timeout_ms
        effects.set_timer(session_timer(group.group_id, member_id), timeout_ms)
        if classic is None and _holds_others_up(group, member_id):
            effects.set_timer(rebalance_timer(group.group_id, member_id), value.rebalance_timeout_ms)


def _holds_others_up(group: ConsumerGroup, member_id: str) -> bool:
    current = group.current_of(member_id)
    return (
        member_id in group.members and current.state == UNREVOKED_PARTITIONS and current.epoch != LEAVING_STATIC_EPOCH
    )
