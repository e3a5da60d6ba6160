"""Declares an instance whose logs are there already, each partition with the pod that holds its log."""

from __future__ import annotations

from collections.abc import Sequence

from muster_cli.local.data_dir import DataDir
from muster_cli.local.declare import CLUSTER
from muster_operator.api.models import (
    CoordinatorCluster,
    CoordinatorClusterSpec,
    ObjectMeta,
    OffsetsPartition,
    OffsetsPartitionSpec,
    OffsetsTopic,
    OffsetsTopicSpec,
    TopicRef,
    partition_object_name,
)
from muster_operator.store.sqlite import SqliteStore


def pod_of(number: int, pods: int) -> str:
    """The pod that holds the log of this partition."""
    return f"{CLUSTER.name}-{number % pods}"


async def declare_logs(data: DataDir, pods: int, topics: Sequence[tuple[str, OffsetsTopicSpec, range]]) -> None:
    """Declare the cluster, its `topics`, as (name of the object, spec, numbers of its partitions), and these."""
    store = SqliteStore(data.store)
    namespace = CLUSTER.namespace
    try:
        await store.apply(CoordinatorCluster(ObjectMeta(CLUSTER.name, namespace), CoordinatorClusterSpec(pods=pods)))
        for name, spec, numbers in topics:
            await store.apply(OffsetsTopic(ObjectMeta(name, namespace), spec))
            for number in numbers:
                place = OffsetsPartitionSpec(TopicRef(name), number, replicas=(pod_of(number, pods),))
                meta = ObjectMeta(partition_object_name(name, number), namespace)
                await store.apply(OffsetsPartition(meta, place))
    finally:
        store.close()
