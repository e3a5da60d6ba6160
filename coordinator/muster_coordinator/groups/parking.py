"""The members of a group are put out, and everybody is kept out for a while, so that its offsets can be reset.

The record that puts members out begins a new generation or group epoch: every commit that comes after it with one of
before gets UNKNOWN_MEMBER_ID. A member that hears that gives up its partitions, joins again as soon as it may, and
reads the committed offsets of what it is given.

A cooperative classic member may keep partitions, with its position in them: one that has just sent JoinGroup gets
UNKNOWN_MEMBER_ID for that, and joins anew without giving anything up. It would commit on from the old position. So
groups with such members are refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.classic.group import ClassicGroup
from muster_coordinator.groups.classic.rebalance import prepare_rebalance, remove_member
from muster_coordinator.groups.classic.states import GroupState
from muster_coordinator.groups.classic.tables import GroupTables
from muster_coordinator.groups.consumer.group import ConsumerGroup
from muster_coordinator.groups.consumer.removal import fence_members
from muster_coordinator.groups.effects import Effects, parked_timer, session_timer
from muster_coordinator.groups.subscription import CONSUMER_PROTOCOL_TYPE
from muster_coordinator.requests.consumer_groups import JOINING_EPOCH, ConsumerGroupHeartbeatRequest
from muster_coordinator.requests.parking import ParkGroupRequest, ParkGroupResponse
from muster_coordinator.requests.refusals import refusal
from muster_coordinator.state_machine import Result, Token

Handler = Callable[[GroupTables, Any, Token, int], Result]

EAGER = ("range", "roundrobin", "sticky")
"""Assignors of classic members that give up all partitions before they join, of every client library."""


def park_group(state: GroupTables, request: ParkGroupRequest, token: Token, now_ms: int) -> Result:
    group_id, effects = request.group_id, Effects(token)
    if not request.for_ms:
        state.parked.discard(group_id)
        effects.cancel_timer(parked_timer(group_id))
        return effects.answer(ParkGroupResponse())
    consumers = state.consumers.groups.get(group_id)
    classic = state.group(group_id)
    reason = ""
    if consumers is not None:
        reason = _put_out_consumers(state, consumers, effects)
    elif classic is not None:
        reason = _put_out_members(state, classic, effects, now_ms)
    if not reason:
        state.parked.add(group_id)
        effects.set_timer(parked_timer(group_id), request.for_ms)
    return effects.answer(ParkGroupResponse(reason=reason))


def _put_out_consumers(state: GroupTables, group: ConsumerGroup, effects: Effects) -> str:
    """Returns why not."""
    if any(member.classic is not None for member in group.members.values()):
        return "it has members of both protocols: stop its consumers, or try again when all use the new one"
    if group.members:
        fence_members(state.consumers, group, list(group.members), effects)
    return ""


def _put_out_members(state: GroupTables, group: ClassicGroup, effects: Effects, now_ms: int) -> str:
    """Returns why not."""
    if group.state not in (GroupState.STABLE, GroupState.EMPTY):
        return "it rebalances: try again"
    if group.members and (group.protocol_type != CONSUMER_PROTOCOL_TYPE or group.protocol not in EAGER):
        return (
            f"its members assign partitions by {group.protocol}, and may keep what they read now: stop its consumers."
            f" Members can stay where that is {', '.join(EAGER)}, or with group.protocol=consumer"
        )
    for member_id in tuple(group.pending_members):
        group.remove(member_id)
        effects.cancel_timer(session_timer(group.group_id, member_id))
    if group.members:
        for member in tuple(group.members.values()):
            remove_member(group, member, effects)
        prepare_rebalance(state, group, effects, now_ms)  # nobody is awaited: the next generation is empty
    return ""


def unless_parked(handler: Handler) -> Handler:
    """The handler of a request that joins: while the group is parked, clients are told to ask again."""

    def guarded(state: GroupTables, request: Any, token: Token, now_ms: int) -> Result:
        if request.group_id in state.parked and _joins(request):
            return Result(response=refusal(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        return handler(state, request, token, now_ms)

    return guarded


def _joins(request: object) -> bool:
    return not isinstance(request, ConsumerGroupHeartbeatRequest) or request.member_epoch == JOINING_EPOCH
