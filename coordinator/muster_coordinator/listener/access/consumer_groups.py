"""Guards of the consumer protocol (Kafka: KafkaApis#handleConsumerGroupHeartbeat, #handleConsumerGroupDescribe)."""

from __future__ import annotations

import msgspec

from muster_coordinator.errors import ErrorCode
from muster_coordinator.listener.access.asked import Rights, hand_on, split
from muster_coordinator.listener.exchange import ClientAnswer
from muster_coordinator.listener.state import Handler
from muster_coordinator.requests import consumer_groups as c
from muster_coordinator.security.acls import Operation, ResourceType

_NO_GROUP = int(ErrorCode.GROUP_AUTHORIZATION_FAILED)
_NO_TOPIC = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
_HIDDEN = "The group has described topic(s) that the client is not authorized to describe."


def heartbeat(
    request: c.ConsumerGroupHeartbeatRequest, exchange: ClientAnswer, rights: Rights, handler: Handler
) -> None:
    """A member may read its group, and describe every topic that it names; expressions find only what it may."""
    if not rights.group(Operation.READ, request.group_id):
        exchange.answer(c.ConsumerGroupHeartbeatResponse(_NO_GROUP))
        return
    allowed = [rights.topic(Operation.DESCRIBE, topic) for topic in request.subscribed_topic_names or ()]
    if not all(allowed):
        exchange.answer(c.ConsumerGroupHeartbeatResponse(_NO_TOPIC))
        return
    unasked = rights.unasked

    def may_describe(topic: str) -> bool:
        return unasked.topic(Operation.DESCRIBE, topic)

    handler(msgspec.structs.replace(request, may_describe=may_describe), exchange)


def describe(request: c.ConsumerGroupDescribeRequest, exchange: ClientAnswer, rights: Rights, handler: Handler) -> None:
    """Puts refused groups first. A group with a topic that the client may not describe is not shown at all."""
    allowed, others = split(request.groups, lambda group: rights.group(Operation.DESCRIBE, group.group_id))
    refused = [c.without_operations(c.DescribedConsumerGroup(group.group_id, _NO_GROUP)) for group in others]
    unasked = rights.unasked

    def described(group: c.DescribedConsumerGroup) -> c.DescribedConsumerGroup:
        topics = {topic for member in group.members for _, topic, _ in (*member.assignment, *member.target_assignment)}
        if not all(unasked.topic(Operation.DESCRIBE, topic) for topic in topics):
            return c.without_operations(c.DescribedConsumerGroup(group.group_id, _NO_TOPIC, _HIDDEN))
        if not request.include_authorized_operations or group.error_code:
            return group
        operations = rights.operations(ResourceType.GROUP, group.group_id)
        return msgspec.structs.replace(group, authorized_operations=operations)

    def change(response: c.ConsumerGroupDescribeResponse) -> c.ConsumerGroupDescribeResponse:
        groups = (*refused, *map(described, response.groups))
        return c.ConsumerGroupDescribeResponse(groups, response.authorized_operations)

    hand_on(msgspec.structs.replace(request, groups=allowed), exchange, handler, change)
