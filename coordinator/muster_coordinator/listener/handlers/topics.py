"""ListOffsets, Fetch and Produce of declared topics. A coordinator holds no data: every log is empty, every fetch finds
nothing new.

That is enough for unchanged consumers to subscribe, join, commit and resume. A fetch waits as long as the client
asked, so that consumers do not spin.
"""

from __future__ import annotations

import asyncio
from collections import Counter

from muster_coordinator.errors import ErrorCode
from muster_coordinator.listener.exchange import ClientAnswer
from muster_coordinator.listener.handlers.stepwise import make_each
from muster_coordinator.pod.cluster_view import ClusterView
from muster_coordinator.requests import cluster as w
from muster_coordinator.wire import k00_produce

MAX_WAIT_MS = 30_000
"""Longest wait of a fetch, whatever the client asks: a parked request holds its place in the connection's order."""

_Asked = tuple[str, tuple[tuple[int, int, int], ...]]
"""(topic, ((partition, current leader epoch, timestamp), ...))."""
_Offset = tuple[int, int, int, int, int]
"""(partition, error_code, timestamp, offset, leader_epoch)."""

_NO_SESSION = 0
_LATEST, _EARLIEST, _EARLIEST_LOCAL = -1, -2, -4
_SINCE = {_LATEST: 1, _EARLIEST: 1, -3: 7, _EARLIEST_LOCAL: 8, -5: 9, -6: 11}
"""The version of ListOffsets that has this timestamp; no other negative one means anything."""
_OF_AN_EMPTY_LOG = (_LATEST, _EARLIEST, _EARLIEST_LOCAL)
"""The timestamps of ListOffsets to which an empty log has an answer: 0. Others, the largest timestamp (-3) and what is
in tiered storage (-5) or still to be tiered (-6) among them, find nothing."""


class TopicHandlers:
    def __init__(self, view: ClusterView) -> None:
        self._view = view

    def list_offsets(self, request: w.ListOffsetsRequest, exchange: ClientAnswer) -> None:
        version, asked = exchange.version, Counter[tuple[str, int]]()

        def count(each: _Asked) -> None:
            asked.update([(each[0], partition) for partition, _, _ in each[1]])

        def offsets(each: _Asked) -> tuple[str, tuple[_Offset, ...]]:
            timestamps = {partition: timestamp for partition, _, timestamp in each[1]}
            return each[0], self._offsets(version, each[0], timestamps, asked)

        def answer(topics: tuple[tuple[str, tuple[_Offset, ...]], ...]) -> None:
            exchange.answer(w.ListOffsetsResponse(topics))

        make_each(request.topics, count, lambda _: make_each(request.topics, offsets, answer))

    def _offsets(
        self, version: int, topic: str, timestamps: dict[int, int], asked: Counter[tuple[str, int]]
    ) -> tuple[_Offset, ...]:
        return tuple(
            self._offset(version, topic, partition, timestamp)
            if asked[topic, partition] == 1
            else (partition, ErrorCode.INVALID_REQUEST, -1, -1, -1)
            for partition, timestamp in timestamps.items()
        )

    def _offset(self, version: int, topic: str, partition: int, timestamp: int) -> _Offset:
        if timestamp < 0 and (timestamp not in _SINCE or version < _SINCE[timestamp]):
            return (partition, ErrorCode.UNSUPPORTED_VERSION, -1, -1, -1)
        if not self._view.has(topic, partition):
            return (partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1, -1)
        found = 0 if timestamp in _OF_AN_EMPTY_LOG else -1
        return (partition, ErrorCode.NONE, -1, found, found)

    def produce(self, request: w.ProduceRequest, exchange: ClientAnswer) -> None:
        """Announced, because librdkafka takes a broker without it for one that cannot fetch; always refused."""
        if request.acks == 0:
            exchange.connection.close()  # the client expects no answer, and Kafka too has no other way to say no
        else:
            exchange.answer(k00_produce.refuse(request))

    def fetch(self, request: w.FetchRequest, exchange: ClientAnswer) -> None:
        if request.session_id != _NO_SESSION:
            exchange.answer(w.FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
            return
        wait_ms = min(request.max_wait_ms, MAX_WAIT_MS)

        def answer(topics: tuple[w.FetchedTopic, ...]) -> None:
            response = w.FetchResponse(topics=topics)
            refused = any(code != ErrorCode.NONE for topic in topics for _, code, _ in topic.partitions)
            if wait_ms <= 0 or refused:
                exchange.answer(response)
            else:
                asyncio.get_running_loop().call_later(wait_ms / 1000, exchange.answer, response)

        make_each(request.topics, self._fetched, answer)

    def _fetched(self, topic: w.FetchTopic) -> w.FetchedTopic:
        name = topic.name if topic.name is not None else self._view.name_of(topic.topic_id)
        if name is None:
            unknown = ErrorCode.UNKNOWN_TOPIC_ID
            return w.FetchedTopic(None, topic.topic_id, tuple((p, unknown, -1) for p, _, _ in topic.partitions))
        return w.FetchedTopic(
            topic.name, topic.topic_id, tuple(self._partition(name, p, offset) for p, _, offset in topic.partitions)
        )

    def _partition(self, name: str, partition: int, fetch_offset: int) -> tuple[int, int, int]:
        """(partition, error_code, high_watermark). A group may resume at any committed offset, so the end is wherever
        the consumer stands: an offset is never out of range."""
        if not self._view.has(name, partition):
            return (partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
        return (partition, ErrorCode.NONE, max(fetch_offset, 0))
