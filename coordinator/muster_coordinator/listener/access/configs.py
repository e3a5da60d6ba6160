"""Guards of requests about configs, which are 32, 33, 44 and 74 (Kafka: ConfigHelper, ControllerApis)."""

from __future__ import annotations

from typing import Any

import msgspec

from muster_coordinator.errors import ErrorCode
from muster_coordinator.listener.access.asked import Rights, hand_on, split
from muster_coordinator.listener.access.security import on_cluster
from muster_coordinator.listener.exchange import ClientAnswer
from muster_coordinator.listener.handlers.configs import errors_of
from muster_coordinator.listener.state import Handler
from muster_coordinator.requests import configs as f
from muster_coordinator.security.acls import Operation

_TYPE = f.ConfigResourceType


def _may(rights: Rights, operation: Operation, resource: Any) -> bool:
    if resource.resource_type == _TYPE.GROUP:
        return rights.group(operation, resource.name)
    if resource.resource_type == _TYPE.TOPIC:
        return rights.topic(operation, resource.name)
    return rights.cluster(operation)


def _refused(resource_type: int) -> tuple[int, str]:
    """(error code, message)."""
    if resource_type == _TYPE.GROUP:
        return int(ErrorCode.GROUP_AUTHORIZATION_FAILED), "Group authorization failed."
    if resource_type == _TYPE.TOPIC:
        return int(ErrorCode.TOPIC_AUTHORIZATION_FAILED), "Topic authorization failed."
    return int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED), "Cluster authorization failed."


def describe(request: f.DescribeConfigsRequest, exchange: ClientAnswer, rights: Rights, handler: Handler) -> None:
    """Puts refused resources last."""
    allowed, others = split(request.resources, lambda each: _may(rights, Operation.DESCRIBE_CONFIGS, each))
    refused = [f.DescribedResource(each.resource_type, each.name, *_refused(each.resource_type)) for each in others]

    def change(response: f.DescribeConfigsResponse) -> f.DescribeConfigsResponse:
        return f.DescribeConfigsResponse((*response.results, *refused))

    hand_on(msgspec.structs.replace(request, resources=allowed), exchange, handler, change)


def alter(
    request: f.AlterConfigsRequest | f.IncrementalAlterConfigsRequest,
    exchange: ClientAnswer,
    rights: Rights,
    handler: Handler,
) -> None:
    """Answers in the order of the request. What is wrong in itself is so for everybody."""
    rows = errors_of(request)
    allowed = []
    for index, resource in enumerate(request.resources):
        if rows[index] is not None:
            continue
        if _may(rights, Operation.ALTER_CONFIGS, resource):
            allowed.append(resource)
        else:
            rows[index] = f.AlteredResource(resource.resource_type, resource.name, *_refused(resource.resource_type))

    def change(response: f.AlterConfigsResponse) -> f.AlterConfigsResponse:
        answered = iter(response.results)
        return f.AlterConfigsResponse(tuple([next(answered) if row is None else row for row in rows]))

    hand_on(msgspec.structs.replace(request, resources=tuple(allowed)), exchange, handler, change)


list_resources = on_cluster(
    Operation.DESCRIBE_CONFIGS,
    lambda _: f.ListConfigResourcesResponse(int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)),
)
"""The names of all groups that have configs: not even its own ones for a client without the right."""
