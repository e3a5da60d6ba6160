"""DescribeProducers: who has open transactions in the partitions that this pod leads. By it Kafka's command line finds
transactions that hang (KIP-664)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from muster_coordinator.errors import ErrorCode
from muster_coordinator.listener.exchange import ClientAnswer
from muster_coordinator.listener.gather import Gather
from muster_coordinator.partition_numbers import INTERNAL_TOPICS, OFFSETS
from muster_coordinator.pod.cluster_view import ClusterView
from muster_coordinator.requests import cluster as w
from muster_coordinator.requests import groups as m
from muster_coordinator.requests.slices import SLICE_ENTRIES
from muster_coordinator.shard.shard import Shard


class ProducerHandlers:
    def __init__(self, view: ClusterView, shards: Mapping[int, Shard]) -> None:
        self._view = view
        self._shards = shards

    def describe_producers(self, request: w.DescribePartitionsProducersRequest, exchange: ClientAnswer) -> None:
        """Only partitions of offsets have transactions: declared topics have no data here. A partition is asked once,
        however often it is named."""
        named = ((topic, partition) for topic, partitions in request.topics for partition in partitions)
        places = list(dict.fromkeys(named))

        def combine(parts: Sequence[m.DescribeProducersResponse]) -> None:
            found = {place: _of_a_leader(part) for place, part in zip(places, parts, strict=True)}
            exchange.answer(
                w.DescribePartitionsProducersResponse(
                    tuple(
                        (topic, tuple((partition, found[topic, partition]) for partition in partitions))
                        for topic, partitions in request.topics
                    )
                )
            )

        gather = Gather(len(places), combine)
        one = m.DescribeProducersRequest()

        def ask(index: int) -> None:
            topic, partition = places[index]
            part = gather.part(index, one)
            shard = self._shards.get(self._view.own_index(partition)) if topic == OFFSETS.name else None
            if not self._exists(topic, partition):
                part.refuse(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            elif topic != OFFSETS.name:
                part.answer(m.DescribeProducersResponse(ErrorCode.NONE))
            elif shard is None:
                part.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            else:
                shard.submit(one, part)

        gather.spread(ask, SLICE_ENTRIES)

    def _exists(self, topic: str, partition: int) -> bool:
        if topic in INTERNAL_TOPICS:
            return 0 <= partition < len(self._view.partitions_of(topic))
        return self._view.has(topic, partition)


def _of_a_leader(found: m.DescribeProducersResponse) -> m.DescribeProducersResponse:
    """The API is one of partitions, not of coordinators: clients ask again where a partition has no leader here."""
    ours = (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return found if found.error_code in ours else m.DescribeProducersResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER)
