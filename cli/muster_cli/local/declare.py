"""The CoordinatorCluster and the OffsetsTopic that an embedded instance declares to its operator. Pure.

The data directory keeps the numbers of pods and partitions. Topics, settings and ports come with every command line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from msgspec.structs import replace

from muster_cli.errors import CliUsageError
from muster_operator.api.models import (
    ClusterRef,
    CoordinatorCluster,
    CoordinatorClusterSpec,
    DeclaredTopic,
    ObjectMeta,
    OffsetsTopic,
    OffsetsTopicSpec,
)
from muster_operator.store.port import ClusterKey, ClusterRecords

CLUSTER = ClusterKey("local", "muster")
OFFSETS_TOPIC = "offsets"
DEFAULT_PODS = 3
DEFAULT_PARTITIONS = 50
DEFAULT_REPLICATION_FACTOR: Literal[1, 3, 5] = 3


@dataclass(frozen=True)
class UpOptions:
    """The options of `muster local up`. A number is None if the option was not given."""

    pods: int | None
    partitions: int | None
    replication_factor: Literal[1, 3, 5] | None
    base_port: int
    topics: Mapping[str, int]
    any_topic: bool
    settings: Mapping[str, str]
    tls: bool = False


def declared_cluster(options: UpOptions, before: ClusterRecords) -> CoordinatorCluster:
    """The cluster to declare. Raises CliUsageError for fewer pods than before: the logs of the others would be gone."""
    previous = before.cluster.spec.pods if before.cluster is not None else None
    pods = options.pods if options.pods is not None else previous or DEFAULT_PODS
    if previous is not None and pods < previous:
        raise CliUsageError(
            f"--pods {pods}: this data directory has {previous} pods, and each holds logs of partitions. "
            f"Use {previous} or more, or another --data-dir"
        )
    spec = CoordinatorClusterSpec(
        pods=pods,
        settings=dict(options.settings),
        topics=tuple(DeclaredTopic(name=name, partitions=count) for name, count in options.topics.items()),
        any_topic=options.any_topic,
    )
    return CoordinatorCluster(metadata=_meta(CLUSTER.name), spec=spec)


def declared_offsets_topic(options: UpOptions, before: ClusterRecords, pods: int) -> OffsetsTopic:
    """The topic to declare. Raises CliUsageError for another number of partitions than before, by which each group has
    its partition, and for more replicas than pods.
    """
    factor = _replication_factor(options, before, pods)
    if not before.topics:
        partitions = options.partitions if options.partitions is not None else DEFAULT_PARTITIONS
        spec = OffsetsTopicSpec(ClusterRef(CLUSTER.name), partitions=partitions, replication_factor=factor)
        return OffsetsTopic(metadata=_meta(OFFSETS_TOPIC), spec=spec)
    previous = before.topics[0].layout.partitions
    if options.partitions not in (None, previous):
        raise CliUsageError(
            f"--partitions {options.partitions}: this data directory has {previous} partitions, and groups are spread "
            f"over exactly these. Leave the option out, use `muster reshard`, or another --data-dir"
        )
    spec = replace(before.topics[0].spec, replication_factor=factor)  # with a re-shard that is under way
    return OffsetsTopic(metadata=_meta(OFFSETS_TOPIC), spec=spec)


def _replication_factor(options: UpOptions, before: ClusterRecords, pods: int) -> Literal[1, 3, 5]:
    """The factor that is asked for, else the previous one, else the default if there are enough pods."""
    asked = options.replication_factor
    if asked is not None:
        if asked > pods:
            raise CliUsageError(f"--replication-factor {asked}: there are {pods} pods; use --pods {asked} or more")
        return asked
    if before.topics:
        return before.topics[0].spec.replication_factor
    return DEFAULT_REPLICATION_FACTOR if pods >= DEFAULT_REPLICATION_FACTOR else 1


def _meta(name: str) -> ObjectMeta:
    return ObjectMeta(name=name, namespace=CLUSTER.namespace)
