"""Asks the upstream for the offsets at which partitions of topics with records begin and end."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping

from muster_coordinator.errors import ErrorCode
from muster_coordinator.pod.mirroring.connection import UpstreamError
from muster_coordinator.pod.mirroring.offsets import EARLIEST, LATEST, list_offsets_of
from muster_coordinator.pod.mirroring.upstream import UpstreamCluster
from muster_coordinator.requests.cluster import MetadataResponse
from muster_coordinator.reset_aims import Edges
from muster_coordinator.wire import k03_metadata

Place = tuple[str, int]
"""Topic and partition."""


class RecordsOfKafka:
    """Its calls raise UpstreamError, also if one partition has no leader or may not be seen. Partitions that do not
    exist are left out."""

    def __init__(self, upstream: UpstreamCluster) -> None:
        self._upstream = upstream

    async def edges(self, places: Iterable[Place]) -> dict[Place, Edges]:
        leaders = await self._leaders(frozenset(places))
        starts, ends = await asyncio.gather(self._offsets(leaders, EARLIEST), self._offsets(leaders, LATEST))
        return {place: Edges(starts[place], ends[place]) for place in leaders}

    async def first_since(self, places: Iterable[Place], time_ms: int) -> dict[Place, int]:
        """The first offset whose record is not older than a time, in milliseconds since 1970; -1 if all are."""
        return await self._offsets(await self._leaders(frozenset(places)), time_ms)

    async def _leaders(self, places: frozenset[Place]) -> dict[Place, tuple[int, int]]:
        """(node id, leader epoch)."""
        answer = await self._metadata(tuple(sorted({topic for topic, _ in places})))
        found = {}
        for topic in answer.topics:
            _check(topic.error_code, f"topic {topic.name}")
            partitions = topic.partitions if isinstance(topic.partitions, tuple) else ()
            for each in partitions:
                if topic.name is not None and (topic.name, each.partition) in places:
                    found[topic.name, each.partition] = (each.leader_id, each.leader_epoch)
        return found

    async def _metadata(self, topics: tuple[str, ...]) -> MetadataResponse:
        """The answer of the first broker that gives one."""
        problem = UpstreamError("no broker is known yet")
        body, version = k03_metadata.encode_request(topics), k03_metadata.MIRROR_VERSION
        for node_id in self._upstream.brokers:
            connection = self._upstream.for_questions(node_id)
            if connection is None:
                continue
            try:
                return await connection.ask(k03_metadata.API, version, body, k03_metadata.decode_response)
            except UpstreamError as error:
                problem = error
        raise problem

    async def _offsets(self, leaders: Mapping[Place, tuple[int, int]], timestamp: int) -> dict[Place, int]:
        by_node: dict[int, dict[str, list[tuple[int, int, int]]]] = defaultdict(lambda: defaultdict(list))
        for (topic, partition), (node_id, epoch) in leaders.items():
            by_node[node_id][topic].append((partition, epoch, timestamp))
        found = {}
        for node_id, topics in by_node.items():
            connection = self._upstream.for_questions(node_id)
            if connection is None:
                raise UpstreamError(f"partitions of {', '.join(sorted(topics))} have no leader")
            asked = tuple((topic, tuple(places)) for topic, places in topics.items())
            for place, (code, offset) in (await list_offsets_of(connection, asked)).items():
                _check(code, f"{place[0]}-{place[1]}")
                found[place] = offset
        if missing := leaders.keys() - found.keys():
            raise UpstreamError(f"a broker does not answer for {min(missing)}")
        return found


def _check(code: int, what: str) -> None:
    """A topic that does not exist has no partition, which is told."""
    if code and code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        name = ErrorCode(code).name if code in set(ErrorCode) else f"error code {code}"
        raise UpstreamError(f"{what}: a broker answers {name}")
