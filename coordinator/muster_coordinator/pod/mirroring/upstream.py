"""The upstream cluster as its Metadata shows it: brokers, and who leads the partitions of `__consumer_offsets`."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from muster_coordinator.errors import ErrorCode
from muster_coordinator.outgoing.connector import Connector
from muster_coordinator.partition_numbers import OFFSETS
from muster_coordinator.pod.mirroring.connection import CLIENT_ID, UpstreamConnection, UpstreamError
from muster_coordinator.requests.cluster import MetadataResponse, MetadataTopic
from muster_coordinator.wire import k03_metadata, k10_find_coordinator
from muster_coordinator.wire.errors import WireError


class TopicMissingError(UpstreamError):
    """The cluster had no `__consumer_offsets`, and is about to make it, if it does that by itself."""


@dataclass(frozen=True)
class Topic:
    """`leaders`: partition -> (node id, leader epoch); node id -1: it has none."""

    topic_id: bytes
    leaders: Mapping[int, tuple[int, int]] = field(default_factory=dict)


class UpstreamCluster:
    """`topic`: as it was when `look` last succeeded; None before. Up to four connections to each broker, as Fetch
    holds one back, writes may be slow and questions for metrics keep nobody waiting, and one to whichever address
    answers for Metadata."""

    def __init__(self, connector: Connector, bootstrap: Iterable[tuple[str, int]], timeout_s: float) -> None:
        """`timeout_s`: longest wait for an answer."""
        self._connector = connector
        self._bootstrap = tuple(bootstrap)
        self._timeout_s = timeout_s
        self.topic: Topic | None = None
        self._brokers: dict[int, tuple[str, int]] = {}
        self._connections: dict[tuple[str, int], UpstreamConnection] = {}
        self._for_questions: dict[tuple[str, int], UpstreamConnection] = {}
        self._for_writes: dict[tuple[str, int], UpstreamConnection] = {}
        self._for_ends: dict[tuple[str, int], UpstreamConnection] = {}
        self._asked: UpstreamConnection | None = None
        self._listed_by: tuple[str, int] | None = None  # the broker that has listed all topics last

    async def look(self) -> None:
        """Ask for Metadata, first where it was answered last. Raises UpstreamError if no broker knows the topic."""
        problems: list[str] = []
        for connection in self._to_ask():
            try:
                answer = await connection.ask(
                    k03_metadata.API,
                    k03_metadata.MIRROR_VERSION,
                    k03_metadata.encode_request((OFFSETS.name,)),
                    k03_metadata.decode_response,
                )
            except UpstreamError as error:
                problems.append(str(error))
                connection.close()
                continue
            if self._asked is not connection:
                if self._asked is not None:
                    self._asked.close()
                self._asked = connection
            try:
                self._take(answer)
            except TopicMissingError:
                await self._ask_for_a_coordinator(connection)
                raise
            return
        raise UpstreamError("; ".join(problems))

    async def topics(self) -> tuple[MetadataTopic, ...]:
        """All topics that the account may describe. Asks the broker that has answered last first: one that lags behind
        it would take back what that one has told. There may be very many, so the answer is decoded beside the event
        loop. Raises UpstreamError."""
        problems: list[str] = []
        last: tuple[tuple[str, int], ...] = () if self._listed_by is None else (self._listed_by,)
        for address in dict.fromkeys((*last, *self._brokers.values(), *self._bootstrap)):
            connection = UpstreamConnection(self._connector, *address, self._timeout_s)
            try:
                body, version = k03_metadata.encode_request(None), k03_metadata.MIRROR_VERSION
                reader = await connection.ask(k03_metadata.API, version, body, lambda reader: reader)
                answer = await asyncio.to_thread(k03_metadata.decode_response, reader)
            except (UpstreamError, WireError, IndexError, ValueError, struct.error) as error:
                problems.append(str(error))
            else:
                self._listed_by = address
                return answer.topics
            finally:
                connection.close()
        raise UpstreamError("; ".join(problems))

    def _to_ask(self) -> Iterable[UpstreamConnection]:
        if self._asked is not None:
            yield self._asked
        for address in dict.fromkeys((*self._bootstrap, *self._brokers.values())):
            yield UpstreamConnection(self._connector, *address, self._timeout_s)

    def _take(self, answer: MetadataResponse) -> None:
        """Raises UpstreamError."""
        self._brokers = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        for connections in self._by_purpose:
            for address in set(connections) - set(self._brokers.values()):
                connections.pop(address).close()
        topic = next((each for each in answer.topics if each.name == OFFSETS.name), None)
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error_code
        if topic is None or code:
            name = ErrorCode(code).name if code in set(ErrorCode) else str(code)
            kind = TopicMissingError if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else UpstreamError
            raise kind(f"{OFFSETS.name} of the upstream: {name}")
        partitions = topic.partitions
        assert isinstance(partitions, tuple)  # only a pod's own answer has them in another form
        leaders = {each.partition: (each.leader_id, each.leader_epoch) for each in partitions}
        self.topic = Topic(topic.topic_id, leaders)

    async def _ask_for_a_coordinator(self, connection: UpstreamConnection) -> None:
        """Brokers make the topic when they are first asked for one, and nobody else may ever ask: where all groups are
        Muster's, markers would have no place. Raises UpstreamError."""
        body = k10_find_coordinator.encode_request((CLIENT_ID,))
        version = k10_find_coordinator.MIRROR_VERSION
        await connection.ask(k10_find_coordinator.API, version, body, lambda _answer: None)

    @property
    def brokers(self) -> tuple[int, ...]:
        return tuple(self._brokers)

    def connection(self, node_id: int) -> UpstreamConnection | None:
        """The connection for Fetch, which may be held back; None: there is no broker of that id."""
        return self._connection(node_id, self._connections)

    def for_questions(self, node_id: int) -> UpstreamConnection | None:
        """The connection for what is answered at once; None: there is no broker of that id."""
        return self._connection(node_id, self._for_questions)

    def for_writes(self, node_id: int) -> UpstreamConnection | None:
        """The connection for offsets that are written back; None: there is no broker of that id."""
        return self._connection(node_id, self._for_writes)

    def for_ends(self, node_id: int) -> UpstreamConnection | None:
        """The connection for questions that nobody waits for; None: there is no broker of that id."""
        return self._connection(node_id, self._for_ends)

    @property
    def _by_purpose(self) -> tuple[dict[tuple[str, int], UpstreamConnection], ...]:
        return self._connections, self._for_questions, self._for_writes, self._for_ends

    def _connection(
        self, node_id: int, connections: dict[tuple[str, int], UpstreamConnection]
    ) -> UpstreamConnection | None:
        address = self._brokers.get(node_id)
        if address is None:
            return None
        connection = connections.get(address)
        if connection is None:
            connection = connections[address] = UpstreamConnection(self._connector, *address, self._timeout_s)
        return connection

    def close(self) -> None:
        if self._asked is not None:
            self._asked.close()
        for connections in self._by_purpose:
            for connection in connections.values():
                connection.close()
