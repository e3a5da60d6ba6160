"""Guards of ListOffsets, DescribeProducers, Fetch and Produce."""

from __future__ import annotations

import msgspec

from muster_coordinator.errors import ErrorCode
from muster_coordinator.listener.access.asked import Rights, hand_on, split
from muster_coordinator.listener.access.offsets import NameOf
from muster_coordinator.listener.exchange import ClientAnswer
from muster_coordinator.listener.state import Handler
from muster_coordinator.requests import cluster as w
from muster_coordinator.requests import groups as m
from muster_coordinator.security.acls import Operation

_REFUSED = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def list_offsets(request: w.ListOffsetsRequest, exchange: ClientAnswer, rights: Rights, handler: Handler) -> None:
    allowed, others = split(request.topics, lambda topic: rights.topic(Operation.DESCRIBE, topic[0]))
    refused = tuple([(name, tuple([(each[0], _REFUSED, -1, -1, -1) for each in parts])) for name, parts in others])

    def change(response: w.ListOffsetsResponse) -> w.ListOffsetsResponse:
        return w.ListOffsetsResponse(response.topics + refused)

    hand_on(msgspec.structs.replace(request, topics=allowed), exchange, handler, change)


def describe_producers(
    request: w.DescribePartitionsProducersRequest, exchange: ClientAnswer, rights: Rights, handler: Handler
) -> None:
    no = m.DescribeProducersResponse(_REFUSED)
    allowed, others = split(request.topics, lambda topic: rights.topic(Operation.READ, topic[0]))
    refused = tuple([(name, tuple([(partition, no) for partition in parts])) for name, parts in others])

    def change(response: w.DescribePartitionsProducersResponse) -> w.DescribePartitionsProducersResponse:
        return w.DescribePartitionsProducersResponse(response.topics + refused)

    hand_on(w.DescribePartitionsProducersRequest(allowed), exchange, handler, change)


def produce(request: w.ProduceRequest, exchange: ClientAnswer, rights: Rights, handler: Handler) -> None:
    """Always refused; who may not write learns that, and not what the topic is."""
    allowed, others = split(request.topics, lambda topic: rights.topic(Operation.WRITE, topic[0]))
    refused = tuple([(name, tuple([(partition, _REFUSED) for partition in parts])) for name, parts in others])

    def change(response: w.ProduceResponse) -> w.ProduceResponse:
        message = response.error_message if allowed else None
        return w.ProduceResponse(response.topics + refused, message)

    hand_on(msgspec.structs.replace(request, topics=allowed), exchange, handler, change)


class FetchGuard:
    def __init__(self, name_of: NameOf) -> None:
        self._name_of = name_of

    def __call__(self, request: w.FetchRequest, exchange: ClientAnswer, rights: Rights, handler: Handler) -> None:
        """Nothing is waited for if nothing is left to wait for."""
        allowed, others = split(request.topics, lambda topic: self._may(topic, rights))
        if not others:
            handler(request, exchange)
            return
        refused = tuple(
            [
                w.FetchedTopic(topic.name, topic.topic_id, tuple([(p, _REFUSED, -1) for p, _, _ in topic.partitions]))
                for topic in others
            ]
        )

        def change(response: w.FetchResponse) -> w.FetchResponse:
            if response.error_code:
                return response
            return msgspec.structs.replace(response, topics=response.topics + refused)

        wait_ms = request.max_wait_ms if allowed else 0
        hand_on(msgspec.structs.replace(request, topics=allowed, max_wait_ms=wait_ms), exchange, handler, change)

    def _may(self, topic: w.FetchTopic, rights: Rights) -> bool:
        """An id that no topic has is left to the handler."""
        name = topic.name if topic.name is not None else self._name_of(topic.topic_id)
        return name is None or rights.topic(Operation.READ, name)
