"""Where the two kinds of groups meet: a group id names one of them, and an empty group may become the other.

Members of one kind are refused by a group of the other (Kafka: group.consumer.migration.policy=disabled). Offsets are
kept alike (ADR 44). Source: GroupMetadataManager and ConsumerGroup of 4.3.1.
"""

from __future__ import annotations

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.consumer.description import describe_consumer_group
from muster_coordinator.groups.consumer.errors import GroupError
from muster_coordinator.groups.consumer.group import ConsumerGroup
from muster_coordinator.groups.consumer.heartbeat import consumer_heartbeat, heartbeat_refusal
from muster_coordinator.groups.consumer.removal import fence, static_member
from muster_coordinator.groups.deletion import tombstone_group
from muster_coordinator.groups.effects import Effects
from muster_coordinator.groups.states import GroupState
from muster_coordinator.groups.tables import GroupTables
from muster_coordinator.requests import consumer_groups as c
from muster_coordinator.requests.groups import LeaveGroupRequest, LeaveGroupResponse, LeavingMember, LeftMember
from muster_coordinator.state_machine import Result, Token


def heartbeat_of_consumer(
    state: GroupTables, request: c.ConsumerGroupHeartbeatRequest, token: Token, now_ms: int
) -> Result:
    """A member that joins takes an empty classic group over."""
    consumers = state.consumers
    if request.group_id in consumers.groups or heartbeat_refusal(request, consumers.config) is not None:
        return consumer_heartbeat(consumers, request, token, now_ms)
    before = Effects()
    try:
        _make_room(state, request, before)
    except GroupError as error:
        return Result(response=c.ConsumerGroupHeartbeatResponse(int(error.code), error.message))
    result = consumer_heartbeat(consumers, request, token, now_ms)
    if not before.record_count or not result.records:
        return result
    first = before.result()
    return Result([*first.records, *result.records], result.response, result.replies, [*first.timers, *result.timers])


def _make_room(state: GroupTables, request: c.ConsumerGroupHeartbeatRequest, effects: Effects) -> None:
    """For a new group. Raises GroupError."""
    group_id = request.group_id
    classic = state.group(group_id)
    if classic is None:
        if request.member_epoch == c.JOINING_EPOCH and state.is_full:
            raise GroupError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "There are too many groups.")
        return
    if request.member_epoch != c.JOINING_EPOCH:
        raise GroupError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
    if classic.state is not GroupState.EMPTY:
        raise GroupError(
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"Cannot upgrade classic group {group_id} to consumer group because online upgrade is disabled.",
        )
    tombstone_group(classic, effects)


def describe_consumers(
    state: GroupTables, request: c.DescribeConsumerGroupRequest, token: Token, now_ms: int
) -> Result:
    group_id = request.group_id
    if group_id in state.groups and group_id not in state.consumers.groups:
        code = int(ErrorCode.GROUP_ID_NOT_FOUND)
        message = f"Group {group_id} is not a consumer group."
        return Result(response=c.DescribedConsumerGroup(group_id, code, message))
    return describe_consumer_group(state.consumers, request, token, now_ms)


def leave_consumers(state: GroupTables, group: ConsumerGroup, request: LeaveGroupRequest, token: Token) -> Result:
    """LeaveGroup of an administrator: one rebalance for the whole batch."""
    effects = Effects(token)
    leaving: dict[str, None] = {}
    left = []
    for member in request.members:
        code = ErrorCode.NONE
        try:
            leaving[_leaving(group, member)] = None
        except GroupError as error:
            code = error.code
        left.append(LeftMember(member.member_id, member.group_instance_id, code))
    if leaving:
        fence(state.consumers, group, list(leaving), effects)
    return effects.answer(LeaveGroupResponse(ErrorCode.NONE, tuple(left)))


def _leaving(group: ConsumerGroup, leaving: LeavingMember) -> str:
    """The id of the member. Raises GroupError."""
    member_id, instance_id = leaving.member_id, leaving.group_instance_id
    if instance_id is not None:
        known = group.static_member(instance_id)
        return static_member(group, instance_id, member_id or (known.member_id if known else "")).member_id
    if member_id not in group.members:
        raise GroupError(ErrorCode.UNKNOWN_MEMBER_ID, member_id)
    return member_id
