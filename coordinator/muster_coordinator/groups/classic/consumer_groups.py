"""The meeting place of the two kinds of groups: a group id names one of them, and an empty group may become the other.

With members it may do so as well (`migration`): members of both protocols are then in one consumer group, unless
group.consumer.migration.policy says otherwise. Offsets are kept alike. Source: GroupMetadataManager and ConsumerGroup
of 4.3.1.
"""

from __future__ import annotations

from functools import partial

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.classic.migration import downgrade, downgrades, end_classic, upgrade
from muster_coordinator.groups.classic.states import GroupState
from muster_coordinator.groups.classic.tables import GroupTables, tombstone_group
from muster_coordinator.groups.consumer.classic_members import join_classic_member
from muster_coordinator.groups.consumer.config import MigrationPolicy
from muster_coordinator.groups.consumer.description import describe_consumer_group
from muster_coordinator.groups.consumer.errors import GroupError
from muster_coordinator.groups.consumer.group import ConsumerGroup
from muster_coordinator.groups.consumer.heartbeat import consumer_heartbeat, heartbeat_refusal
from muster_coordinator.groups.consumer.removal import Fence, fence_members, static_member
from muster_coordinator.groups.consumer.tables import ConsumerTables
from muster_coordinator.groups.effects import Effects
from muster_coordinator.records.batch import batch_bytes
from muster_coordinator.requests import consumer_groups as c
from muster_coordinator.requests.groups import (
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    LeavingMember,
    LeftMember,
)
from muster_coordinator.state_machine import Records, Result, Token


def heartbeat_of_consumer(
    state: GroupTables, request: c.ConsumerGroupHeartbeatRequest, token: Token, now_ms: int
) -> Result:
    """A member that joins takes an empty classic group over, or is the first consumer in one of classic consumers."""
    consumers, group_id = state.consumers, request.group_id
    fence = fencing(state, now_ms)
    if group_id in consumers.groups or heartbeat_refusal(request, consumers.config) is not None:
        return consumer_heartbeat(consumers, request, token, now_ms, fence=fence)
    before = Effects()
    classic = state.group(group_id)
    group = None
    try:
        if classic is None:
            if request.member_epoch == c.JOINING_EPOCH and state.is_full:
                raise GroupError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "There are too many groups.")
        elif request.member_epoch != c.JOINING_EPOCH:
            raise GroupError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
        elif classic.state is GroupState.EMPTY:
            tombstone_group(classic, before)
        else:
            group = upgrade(state, classic, before)
        result = consumer_heartbeat(consumers, request, token, now_ms, group)
        if not before.record_count or not result.records:
            return result
        if group is not None:
            _check_size([*before.records, *result.records], state)
    except GroupError as error:
        return Result(response=c.ConsumerGroupHeartbeatResponse(int(error.code), error.message))
    if classic is not None and group is not None:
        end_classic(classic, before)
    first = before.result()
    return Result(
        [*first.records, *result.records],
        result.response,
        [*first.replies, *result.replies],
        [*first.timers, *result.timers],
    )


def _check_size(records: list[Records], state: GroupTables) -> None:
    """Checks that the records fit into one batch. Raises GroupError, with what Kafka's append answers."""
    if batch_bytes(records) > state.config.max_record_bytes:
        raise GroupError(ErrorCode.UNKNOWN_SERVER_ERROR, "The records do not fit into one batch.")


# -- members of the classic protocol in a consumer group --------------------------------------------------------------


def join_consumers(
    state: GroupTables, group: ConsumerGroup, request: JoinGroupRequest, token: Token, now_ms: int
) -> Result:
    """JoinGroup to a consumer group that has members."""
    if state.consumers.config.policy is MigrationPolicy.DISABLED:
        return Result(response=JoinGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    to_classic = partial(_become_classic, state, now_ms) if downgrades(state, len(group.members)) else None
    result = join_classic_member(state.consumers, group, request, token, now_ms, to_classic)
    try:
        _check_size([*result.records], state)
    except GroupError as error:
        return Result(response=JoinGroupResponse(error_code=error.code))
    return result


def _become_classic(state: GroupTables, now_ms: int, group: ConsumerGroup, rebalance: bool, effects: Effects) -> None:
    downgrade(state, group, (), rebalance, effects, now_ms)


def fencing(state: GroupTables, now_ms: int) -> Fence:
    """Puts members out of a consumer group, which becomes a classic one if only classic members remain."""
    return partial(_fence, state, now_ms)


def _fence(
    state: GroupTables, now_ms: int, consumers: ConsumerTables, group: ConsumerGroup, ids: list[str], effects: Effects
) -> None:
    if group.is_classic_without(ids) and downgrades(state, len(group.members) - len(ids)):
        try:
            downgrade(state, group, ids, True, effects, now_ms)
            return
        except GroupError:
            pass  # what no classic group can be goes on as it is
    fence_members(consumers, group, ids, effects)


def describe_consumers(
    state: GroupTables, request: c.DescribeConsumerGroupRequest, token: Token, now_ms: int
) -> Result:
    group_id = request.group_id
    if not group_id:
        return Result(response=c.DescribedConsumerGroup(group_id, int(ErrorCode.INVALID_GROUP_ID)))
    if group_id in state.groups and group_id not in state.consumers.groups:
        code = int(ErrorCode.GROUP_ID_NOT_FOUND)
        message = f"Group {group_id} is not a consumer group."
        return Result(response=c.DescribedConsumerGroup(group_id, code, message))
    return describe_consumer_group(state.consumers, request, token, now_ms)


def leave_consumers(
    state: GroupTables, group: ConsumerGroup, request: LeaveGroupRequest, token: Token, now_ms: int
) -> Result:
    """LeaveGroup, of a classic member or an administrator: one rebalance for the whole batch."""
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
        _fence(state, now_ms, state.consumers, group, list(leaving), effects)
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
