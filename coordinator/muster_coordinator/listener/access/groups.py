"""Guards of the requests that are about groups as a whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from muster_coordinator.errors import ErrorCode
from muster_coordinator.listener.access.asked import Guard, Rights, hand_on, split
from muster_coordinator.listener.exchange import ClientAnswer
from muster_coordinator.listener.state import Handler
from muster_coordinator.requests import cluster as w
from muster_coordinator.requests import groups as m
from muster_coordinator.requests.refusals import refusal
from muster_coordinator.security.acls import Operation, ResourceType

_REFUSED = ErrorCode.GROUP_AUTHORIZATION_FAILED


def one_group(operation: Operation, refused: Callable[[Any], Any] | None = None) -> Guard:
    """A request about one group. `refused` makes the refusal, where it is not the usual one."""

    def guard(request: Any, exchange: ClientAnswer, rights: Rights, handler: Handler) -> None:
        if rights.group(operation, request.group_id):
            handler(request, exchange)
        else:
            exchange.answer(refused(request) if refused is not None else refusal(request, _REFUSED))

    return guard


def no_member(request: m.JoinGroupRequest) -> m.JoinGroupResponse:
    """A refused JoinGroup names no member, not even the one of the request (JoinGroupRequest#getErrorResponse)."""
    return m.JoinGroupResponse(int(_REFUSED))


def describe_groups(request: w.DescribeGroupsRequest, exchange: ClientAnswer, rights: Rights, handler: Handler) -> None:
    """Puts refused groups first."""
    allowed, others = split(request.groups, lambda group: rights.group(Operation.DESCRIBE, group.group_id))
    refused = [m.DescribedGroup(group.group_id, int(_REFUSED)) for group in others]

    def described(group: m.DescribedGroup) -> m.DescribedGroup:
        if not request.include_authorized_operations or group.error_code:
            return group
        operations = rights.operations(ResourceType.GROUP, group.group_id)
        return msgspec.structs.replace(group, authorized_operations=operations)

    def change(response: w.DescribeGroupsResponse) -> w.DescribeGroupsResponse:
        return w.DescribeGroupsResponse((*refused, *map(described, response.groups)), response.authorized_operations)

    hand_on(msgspec.structs.replace(request, groups=allowed), exchange, handler, change)


def list_groups(request: m.ListGroupsRequest, exchange: ClientAnswer, rights: Rights, handler: Handler) -> None:
    """A client that may describe the cluster sees all groups, any other one those that it may describe."""
    sees = rights.unasked
    if sees.cluster(Operation.DESCRIBE):
        handler(request, exchange)
        return

    def change(response: m.ListGroupsResponse) -> m.ListGroupsResponse:
        visible = [group for group in response.groups if sees.group(Operation.DESCRIBE, group.group_id)]
        return m.ListGroupsResponse(response.error_code, tuple(visible))

    hand_on(request, exchange, handler, change)


def delete_groups(request: w.DeleteGroupsRequest, exchange: ClientAnswer, rights: Rights, handler: Handler) -> None:
    """Puts refused names last, and each name once."""
    names = dict.fromkeys(request.group_ids)
    allowed, others = split(names, lambda name: rights.group(Operation.DELETE, name))
    refused = tuple([m.DeleteGroupResponse(name, int(_REFUSED)) for name in others])

    def change(response: w.DeleteGroupsResponse) -> w.DeleteGroupsResponse:
        return w.DeleteGroupsResponse(response.results + refused)

    hand_on(w.DeleteGroupsRequest(allowed), exchange, handler, change)
