"""The metadata image, which an operator puts to pods (PUT /v1/metadata): leaders, addresses and topics."""

from __future__ import annotations

from typing import Annotated

import msgspec

from muster_coordinator.partition_numbers import TRANSACTIONS
from muster_coordinator.podapi.fields import Answer, FencingToken, LogId, NodeId, Partition, Request


class Endpoint(Request, frozen=True):
    """The address at which clients of one listener reach a pod."""

    listener: Annotated[str, msgspec.Meta(min_length=1, max_length=63)]
    host: Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)]


class Broker(Request, frozen=True, omit_defaults=True):
    """A pod as Kafka clients see it: node id and advertised address. `endpoints`: of the listeners that have a name."""

    node_id: NodeId
    host: Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)]
    pod: str
    endpoints: tuple[Endpoint, ...] = ()

    def on(self, listener: str) -> Broker | None:
        """The pod as clients of a listener see it ("": the one without a name); None: they do not reach it."""
        if not listener:
            return self
        found = next((each for each in self.endpoints if each.listener == listener), None)
        return None if found is None else Broker(self.node_id, found.host, found.port, self.pod)


class PartitionLeader(Request, frozen=True):
    """Leader of one offsets partition; node id -1: the partition has no leader."""

    partition: Partition
    node_id: Annotated[int, msgspec.Meta(ge=-1, le=2**31 - 1)]
    epoch: Annotated[int, msgspec.Meta(ge=-1, le=2**31 - 1)]


class Peer(Request, frozen=True):
    """The address at which other pods reach the replicas of a pod."""

    pod: str
    host: Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)]


class ReplicaPlace(Request, frozen=True):
    """The pod that has a replica. The leader feeds all replicas that are named; those that its log does not count are
    learners.
    """

    partition: Partition
    log_id: LogId
    pod: str


class DeclaredTopic(Request, frozen=True):
    """A topic of which groups may commit offsets."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=249)]
    partitions: Annotated[int, msgspec.Meta(ge=1)]


class MetadataImage(Request, frozen=True, omit_defaults=True):
    """The cluster as a pod shows it to Kafka clients (Kafka: MetadataImage). Ordered by (token, version).

    `any_topic`: every topic name counts as existing, next to the declared ones. `peers` and `places`: where replicas
    reach one another. `offsets_base`: the partition that clients know as 0; a re-shard moves it up.
    `transaction_base`, `transaction_partitions`: likewise of the transaction topic; 0 partitions: the cluster has none.
    `holds_transactions`: none may begin, because the partitions of offsets are about to be others (ADR 28).
    """

    token: FencingToken
    version: Annotated[int, msgspec.Meta(ge=0)]
    cluster_id: str
    brokers: tuple[Broker, ...]
    offsets_partitions: Annotated[int, msgspec.Meta(ge=1)]
    leaders: tuple[PartitionLeader, ...]
    topics: tuple[DeclaredTopic, ...] = ()
    any_topic: bool = False
    peers: tuple[Peer, ...] = ()
    places: tuple[ReplicaPlace, ...] = ()
    offsets_base: Annotated[int, msgspec.Meta(ge=0)] = 0
    transaction_base: Annotated[int, msgspec.Meta(ge=TRANSACTIONS.first)] = TRANSACTIONS.first
    transaction_partitions: Annotated[int, msgspec.Meta(ge=0)] = 0
    holds_transactions: bool = False


class MetadataAnswer(Answer, frozen=True):
    """Number of the image that the pod serves now."""

    token: int
    version: int
