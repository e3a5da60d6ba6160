"""The CoordinatorCluster and the OffsetsTopics that an embedded instance declares to its operator. Pure.

The data directory keeps the numbers of pods and partitions. Topics, settings and ports come with every command line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

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

if TYPE_CHECKING:
    from muster_cli.local.front import FrontOptions

CLUSTER = ClusterKey("local", "muster")
OFFSETS_TOPIC = "offsets"
TRANSACTIONS_TOPIC = "transactions"
DEFAULT_PODS = 3
DEFAULT_PARTITIONS = 50
DEFAULT_TRANSACTION_PARTITIONS = 5
DEFAULT_REPLICATION_FACTOR: Literal[1, 3, 5] = 3


@dataclass(frozen=True)
class UpOptions:
    """The options of `muster local up`. A number is None if the option was not given."""

    pods: int | None
    partitions: int | None
    transaction_partitions: int | None
    replication_factor: Literal[1, 3, 5] | None
    base_port: int
    topics: Mapping[str, int]
    any_topic: bool
    settings: Mapping[str, str]
    tls: bool = False
    front: FrontOptions | None = None


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


def declared_topics(options: UpOptions, before: ClusterRecords, pods: int) -> tuple[OffsetsTopic, ...]:
    """The topics to declare: that of the groups, and that of the transactions unless it has no partitions. Raises
    CliUsageError for another number of partitions than before, by which each group and each transactional id has its
    partition, and for more replicas than pods.
    """
    factor = _replication_factor(options, before, pods)
    topics = (
        _declared(options.partitions, DEFAULT_PARTITIONS, _GROUPS, before, factor),
        _declared(options.transaction_partitions, DEFAULT_TRANSACTION_PARTITIONS, _TRANSACTIONS, before, factor),
    )
    return tuple(topic for topic in topics if topic is not None)


@dataclass(frozen=True)
class _Kind:
    """The words for a topic. `option`: the command line's for its partitions."""

    topic: Literal["__consumer_offsets", "__transaction_state"]
    object_name: str
    option: str
    keys: str


_GROUPS = _Kind("__consumer_offsets", OFFSETS_TOPIC, "--partitions", "groups")
_TRANSACTIONS = _Kind("__transaction_state", TRANSACTIONS_TOPIC, "--transaction-partitions", "transactional ids")


def _declared(
    asked: int | None, default: int, kind: _Kind, before: ClusterRecords, factor: Literal[1, 3, 5]
) -> OffsetsTopic | None:
    meta = _meta(kind.object_name)
    previous = next((each for each in before.topics if each.spec.topic == kind.topic), None)
    if previous is None:
        partitions = asked if asked is not None else 0 if before.topics else default
        spec = OffsetsTopicSpec(
            ClusterRef(CLUSTER.name), partitions=partitions, replication_factor=factor, topic=kind.topic
        )
        return OffsetsTopic(metadata=meta, spec=spec) if partitions else None
    count = previous.layout.partitions
    if asked not in (None, count):
        raise CliUsageError(
            f"{kind.option} {asked}: this data directory has {count} partitions, and {kind.keys} are spread "
            f"over exactly these. Leave the option out, use `muster reshard`, or another --data-dir"
        )
    spec = replace(previous.spec, replication_factor=factor)  # with a re-shard that is under way
    return OffsetsTopic(metadata=meta, spec=spec)


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
