"""The questions of a move to the upstream, to the broker that leads the group's partition now."""

from __future__ import annotations

import asyncio
from functools import partial

from muster_coordinator.errors import ErrorCode
from muster_coordinator.mirror.moving.at_kafka import GroupAtKafka
from muster_coordinator.partition_numbers import OFFSETS
from muster_coordinator.pod.mirroring.connection import UpstreamConnection, UpstreamError
from muster_coordinator.pod.mirroring.describing import configs_of, describe
from muster_coordinator.pod.mirroring.offsets import LATEST, list_offsets
from muster_coordinator.pod.mirroring.upstream import UpstreamCluster
from muster_coordinator.requests.cluster import MetadataResponse
from muster_coordinator.requests.consumer_groups import DescribedConsumerGroup
from muster_coordinator.wire import k03_metadata, k09_offset_fetch


class KafkaOfMoves:
    """Every method raises UpstreamError."""

    def __init__(self, upstream: UpstreamCluster) -> None:
        self._upstream = upstream

    async def end_of(self, partition: int) -> int:
        """The end of a partition of `__consumer_offsets`, now."""
        connection, epoch = await self._leader_of(partition)
        found = await list_offsets(connection, ((partition, epoch, LATEST),))
        code, offset = found.get(partition, (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1))
        if code or offset < 0:
            raise UpstreamError(f"the broker does not say where the partition ends: error code {int(code)}")
        return offset

    async def group(self, partition: int, group_id: str) -> GroupAtKafka:
        """Kafka's answers about a group in that partition, errors of the group and its offsets included."""
        connection, _ = await self._leader_of(partition)
        described = await describe(connection, group_id)
        configs = await configs_of(connection, group_id) if isinstance(described, DescribedConsumerGroup) else {}
        fetched = await connection.ask(
            k09_offset_fetch.API,
            k09_offset_fetch.MIRROR_VERSION,
            k09_offset_fetch.encode_request(group_id),
            partial(k09_offset_fetch.decode_response, group_id=group_id),
        )
        return GroupAtKafka(described, fetched, configs)

    async def _leader_of(self, partition: int) -> tuple[UpstreamConnection, int]:
        """A connection to the partition's leader, and its epoch. All brokers are asked, as a leader of the past may not
        know that it is none any more, and would leave out what its successor has acknowledged."""
        nodes = self._upstream.brokers
        answers = await asyncio.gather(*(self._metadata(node_id) for node_id in nodes), return_exceptions=True)
        leader, epoch = -1, -1
        for answer in answers:
            if isinstance(answer, BaseException):
                raise UpstreamError(f"not every broker says who leads the partition: {answer}") from answer
            unknown = {each.node_id for each in answer.brokers} - set(nodes)
            if unknown:
                raise UpstreamError(f"broker {min(unknown)} has just come")
            leader, epoch = max((leader, epoch), _leader_in(answer, partition), key=lambda found: found[1])
        connection = self._upstream.for_questions(leader)
        if connection is None:
            raise UpstreamError("the upstream partition has no leader")
        return connection, epoch

    async def _metadata(self, node_id: int) -> MetadataResponse:
        connection = self._upstream.for_questions(node_id)
        if connection is None:
            raise UpstreamError(f"broker {node_id} is gone")
        body = k03_metadata.encode_request((OFFSETS.name,))
        return await connection.ask(k03_metadata.API, k03_metadata.MIRROR_VERSION, body, k03_metadata.decode_response)


def _leader_in(answer: MetadataResponse, partition: int) -> tuple[int, int]:
    """(node id, leader epoch); -1 where the broker does not know."""
    for topic in answer.topics:
        partitions = topic.partitions
        if topic.name == OFFSETS.name and isinstance(partitions, tuple):
            for each in partitions:
                if each.partition == partition:
                    return each.leader_id, each.leader_epoch
    return -1, -1
