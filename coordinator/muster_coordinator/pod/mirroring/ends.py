"""Asks the upstream where many partitions with records end, a batch at a time, on connections that nobody waits for."""

from __future__ import annotations

import asyncio
import struct
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from muster_coordinator.errors import ErrorCode
from muster_coordinator.pod.mirroring.connection import UpstreamConnection, UpstreamError
from muster_coordinator.pod.mirroring.offsets import LATEST, list_offsets_of
from muster_coordinator.pod.mirroring.records_of import Place
from muster_coordinator.pod.mirroring.upstream import UpstreamCluster
from muster_coordinator.requests.cluster import MetadataTopic
from muster_coordinator.wire import k03_metadata
from muster_coordinator.wire.errors import WireError

AT_ONCE = 500
"""Partitions of one request: some 10 KB, and two milliseconds of work for the event loop."""
_NOT_THERE = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION)


@dataclass
class Ends:
    """`gone`: partitions that do not exist. What is in neither is not known now, for `problem`."""

    found: dict[Place, int] = field(default_factory=dict)
    gone: set[Place] = field(default_factory=set)
    problem: str = ""


def in_batches(places: Iterable[Place], partitions_of: Callable[[str], int]) -> Iterator[list[Place]]:
    """The places of whole topics, as long as these have no more than AT_ONCE partitions together, as Metadata tells all
    of a topic. `partitions_of`: how many a topic has, as far as is known."""
    batch: list[Place] = []
    size = 0
    for topic, of_topic in _by_topic(places).items():
        more = max(len(of_topic), partitions_of(topic))
        if batch and size + more > AT_ONCE:
            yield batch
            batch, size = [], 0
        batch += of_topic
        size += more
    if batch:
        yield batch


class EndsOfKafka:
    """The questions of one round: it asks no broker again that has not answered."""

    def __init__(self, upstream: UpstreamCluster) -> None:
        self._upstream = upstream
        self._silent: set[int] = set()

    async def ask(self, places: Sequence[Place]) -> Ends:
        """Raises UpstreamError if no broker says which partitions there are."""
        ends, wanted = Ends(), _by_topic(places)
        by_node: dict[int, list[tuple[Place, int]]] = defaultdict(list)
        for topic in await self._topics(tuple(wanted)):
            of_topic = wanted.get(topic.name or "", [])
            if topic.error_code:
                ends.problem = f"topic {topic.name}: a broker answers {_name(topic.error_code)}"
                ends.gone.update(of_topic if topic.error_code in _NOT_THERE else ())
                continue
            partitions = topic.partitions if isinstance(topic.partitions, tuple) else ()
            leaders = {each.partition: (each.leader_id, each.leader_epoch) for each in partitions}
            for place in of_topic:
                node_id, epoch = leaders.get(place[1], (-1, -1))
                if place[1] in leaders:
                    by_node[node_id].append((place, epoch))
                else:
                    ends.gone.add(place)
        for node_id, led in by_node.items():
            await self._ask_leader(node_id, led, ends)
        return ends

    async def _ask_leader(self, node_id: int, led: list[tuple[Place, int]], ends: Ends) -> None:
        for first in range(0, len(led), AT_ONCE):
            connection = self._connection(node_id)
            if connection is None:
                ends.problem = ends.problem or f"the leader of {led[0][0][0]}-{led[0][0][1]} does not answer"
                return
            asked: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
            for (topic, partition), epoch in led[first : first + AT_ONCE]:
                asked[topic].append((partition, epoch, LATEST))
            try:
                found = await list_offsets_of(connection, tuple((topic, tuple(each)) for topic, each in asked.items()))
            except UpstreamError as error:
                self._silent.add(node_id)
                ends.problem = str(error)
                return
            for place, _ in led[first : first + AT_ONCE]:
                code, offset = found.get(place, (ErrorCode.UNKNOWN_SERVER_ERROR, -1))
                if not code and offset >= 0:
                    ends.found[place] = offset
                else:
                    ends.problem = f"{place[0]}-{place[1]}: a broker answers {_name(code)}"

    async def _topics(self, names: tuple[str, ...]) -> tuple[MetadataTopic, ...]:
        """The answer of the first broker that gives one. A topic may have very many partitions, so it is decoded beside
        the event loop. Raises UpstreamError."""
        problem = UpstreamError("no broker is known yet")
        body, version = k03_metadata.encode_request(names), k03_metadata.MIRROR_VERSION
        for node_id in self._upstream.brokers:
            connection = self._connection(node_id)
            if connection is None:
                problem = UpstreamError("no broker answers")
                continue
            try:
                reader = await connection.ask(k03_metadata.API, version, body, lambda reader: reader)
                return (await asyncio.to_thread(k03_metadata.decode_response, reader)).topics
            except (UpstreamError, WireError, IndexError, ValueError, struct.error) as error:
                self._silent.add(node_id)
                problem = error if isinstance(error, UpstreamError) else UpstreamError(f"Metadata: {error!r}")
        raise problem

    def _connection(self, node_id: int) -> UpstreamConnection | None:
        return None if node_id in self._silent else self._upstream.for_ends(node_id)


def _by_topic(places: Iterable[Place]) -> dict[str, list[Place]]:
    by_topic: dict[str, list[Place]] = defaultdict(list)
    for place in places:
        by_topic[place[0]].append(place)
    return by_topic


def _name(code: int) -> str:
    return ErrorCode(code).name if code in set(ErrorCode) else f"error code {code}"
