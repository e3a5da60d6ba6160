"""What is asked of the upstream's brokers about topics with records: each the partitions that it leads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from muster_coordinator.errors import ErrorCode
from muster_coordinator.pod.mirroring.connection import UpstreamError
from muster_coordinator.pod.mirroring.records_of import RecordsOfKafka
from muster_coordinator.pod.mirroring.upstream import UpstreamCluster
from muster_coordinator.requests.cluster import (
    ListOffsetsResponse,
    MetadataPartition,
    MetadataResponse,
    MetadataTopic,
)
from muster_coordinator.reset_aims import Edges
from muster_coordinator.wire import k03_metadata

EARLIEST, LATEST = -2, -1


class Broker:
    """`offsets`: by topic, partition and timestamp. It answers for what it leads alone."""

    def __init__(self, cluster: Cluster, offsets: dict[tuple[str, int, int], int]) -> None:
        self._cluster = cluster
        self.offsets = offsets
        self.code = 0
        self.problem = ""

    async def ask(self, api: Any, _version: int, body: bytes, _decode: Callable[[Any], Any]) -> Any:
        if self.problem:
            raise UpstreamError(self.problem)
        if api.key == k03_metadata.API.key:
            return MetadataResponse((), None, 0, self._cluster.topics)
        timestamp = next(each for each in (EARLIEST, LATEST, 7) if each.to_bytes(8, "big", signed=True) in body)
        topics: dict[str, list[tuple[int, int, int, int, int]]] = {}
        for (topic, partition, at), offset in self.offsets.items():
            if at == timestamp and topic.encode() in body:
                topics.setdefault(topic, []).append((partition, self.code, -1, offset, 4))
        return ListOffsetsResponse(tuple((topic, tuple(found)) for topic, found in topics.items()))


class Cluster:
    """In place of `UpstreamCluster`: the first of two brokers leads t-0, the second t-1 and u-0."""

    def __init__(self) -> None:
        partitions = (MetadataPartition(0, 1, leader_epoch=4), MetadataPartition(1, 2, leader_epoch=4))
        self.topics: tuple[MetadataTopic, ...] = (
            MetadataTopic("t", partitions=partitions),
            MetadataTopic("u", partitions=(MetadataPartition(0, 2, leader_epoch=4),)),
        )
        first = {("t", 0, EARLIEST): 3, ("t", 0, LATEST): 9, ("t", 0, 7): 5}
        second = {
            ("t", 1, EARLIEST): 0,
            ("t", 1, LATEST): 4,
            ("t", 1, 7): -1,
            ("u", 0, EARLIEST): 1,
            ("u", 0, LATEST): 2,
            ("u", 0, 7): 2,
        }
        self.found = {1: Broker(self, first), 2: Broker(self, second)}

    @property
    def brokers(self) -> tuple[int, ...]:
        return tuple(self.found)

    def for_questions(self, node_id: int) -> Broker | None:
        return self.found.get(node_id)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def records(cluster: Cluster) -> RecordsOfKafka:
    return RecordsOfKafka(cast(UpstreamCluster, cluster))


ALL = [("t", 0), ("t", 1), ("u", 0)]


async def test_every_partition_is_asked_of_its_leader(records: RecordsOfKafka) -> None:
    edges = {("t", 0): Edges(3, 9), ("t", 1): Edges(0, 4), ("u", 0): Edges(1, 2)}
    assert await records.edges(ALL) == edges
    assert await records.first_since(ALL, 7) == {("t", 0): 5, ("t", 1): -1, ("u", 0): 2}


async def test_partitions_and_topics_that_do_not_exist_are_left_out(cluster: Cluster, records: RecordsOfKafka) -> None:
    assert await records.edges([("t", 0), ("t", 9)]) == {("t", 0): Edges(3, 9)}
    cluster.topics = (MetadataTopic("gone", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),)
    assert await records.edges([("gone", 0)]) == {}


async def test_another_broker_says_who_leads_while_one_does_not_answer(
    cluster: Cluster, records: RecordsOfKafka
) -> None:
    cluster.found[1].problem = "broker one: no route"
    assert await records.edges([("t", 1)]) == {("t", 1): Edges(0, 4)}
    with pytest.raises(UpstreamError, match="broker one: no route"):
        await records.edges(ALL)
    cluster.found[2].problem = "broker two: no route"
    with pytest.raises(UpstreamError, match="broker two: no route"):
        await records.edges([("t", 1)])


async def test_nothing_is_made_up_where_a_broker_refuses_or_is_silent(
    cluster: Cluster, records: RecordsOfKafka
) -> None:
    cluster.found[1].code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(UpstreamError, match="t-0: a broker answers NOT_LEADER_OR_FOLLOWER"):
        await records.edges(ALL)
    cluster.found[1].code = 0
    cluster.found[1].offsets = {}
    with pytest.raises(UpstreamError, match="a broker does not answer for"):
        await records.edges(ALL)
    del cluster.found[1]
    with pytest.raises(UpstreamError, match="partitions of t have no leader"):
        await records.edges(ALL)
    cluster.topics = (MetadataTopic("t", error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED),)
    with pytest.raises(UpstreamError, match="topic t: a broker answers TOPIC_AUTHORIZATION_FAILED"):
        await records.edges(ALL)
