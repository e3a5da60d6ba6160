"""The custom resources of group muster.dev, version v1alpha1, as frozen structs.

The CustomResourceDefinitions under crds/ are generated from these classes (`python -m muster_operator.api.crds`): field
constraints and descriptions live here, in `cluster` and in `meta`, and nowhere else. Unknown fields are ignored when
read, so that an operator can be older than the CRDs.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta

from muster_coordinator.partition_numbers import INTERNAL_TOPICS
from muster_operator.api.backup import (
    BACKUP_NAME_LIMIT,
    BackupPhase,
    Backups,
    BackupsStatus,
    BackupStore,
    DeclaredSite,
    MusterBackup,
    MusterBackupSpec,
    MusterBackupStatus,
    S3Store,
)
from muster_operator.api.cluster import (
    CoordinatorCluster,
    CoordinatorClusterSpec,
    CoordinatorClusterStatus,
    FailoverRecord,
    ListenerStatus,
)
from muster_operator.api.cluster_parts import DeclaredTopic, Failover, Listener, Rollout, Security, Storage
from muster_operator.api.consumer_group import ConsumerGroup, ConsumerGroupSpec, ConsumerGroupStatus, GroupMove
from muster_operator.api.leadership import LeadershipRecord, Leaderships, Replica
from muster_operator.api.meta import (
    CLUSTER_NAME_LIMIT,
    GROUP,
    MAX_INDEX,
    MAX_PARTITIONS,
    TOPIC_NAME_LIMIT,
    VERSION,
    ClusterRef,
    Conditions,
    Generation,
    ObjectMeta,
    TopicRef,
    rules,
)
from muster_operator.api.pod_template import PodTemplate, Resources
from muster_operator.api.reshard import Layout, Reshard, ReshardPhase, ReshardStatus
from muster_operator.api.restore import RestoreFrom, RestorePhase, RestorePlan, RestoreStatus
from muster_operator.api.upstream import Gateway, GatewayToPods, OutgoingSasl, OutgoingTls, Upstream
from muster_operator.api.user import USER_NAME_LIMIT, MusterUser, MusterUserSpec, MusterUserStatus, UserAcl

__all__ = [
    "BACKUP_NAME_LIMIT",
    "CLUSTER_NAME_LIMIT",
    "GROUP",
    "TOPIC_NAME_LIMIT",
    "USER_NAME_LIMIT",
    "VERSION",
    "BackupPhase",
    "BackupStore",
    "Backups",
    "BackupsStatus",
    "ClusterRef",
    "ConsumerGroup",
    "ConsumerGroupSpec",
    "ConsumerGroupStatus",
    "CoordinatorCluster",
    "CoordinatorClusterSpec",
    "CoordinatorClusterStatus",
    "DeclaredSite",
    "DeclaredTopic",
    "Failover",
    "FailoverRecord",
    "Gateway",
    "GatewayToPods",
    "GroupMove",
    "Layout",
    "LeadershipRecord",
    "Listener",
    "ListenerStatus",
    "MusterBackup",
    "MusterBackupSpec",
    "MusterBackupStatus",
    "MusterUser",
    "MusterUserSpec",
    "MusterUserStatus",
    "ObjectMeta",
    "OffsetsPartition",
    "OffsetsPartitionSpec",
    "OffsetsPartitionStatus",
    "OffsetsTopic",
    "OffsetsTopicSpec",
    "OffsetsTopicStatus",
    "OutgoingSasl",
    "OutgoingTls",
    "PartitionState",
    "PodTemplate",
    "Replica",
    "Reshard",
    "ReshardPhase",
    "ReshardStatus",
    "Resource",
    "Resources",
    "RestoreFrom",
    "RestorePhase",
    "RestorePlan",
    "RestoreStatus",
    "Rollout",
    "S3Store",
    "Security",
    "Storage",
    "TopicRef",
    "Upstream",
    "UserAcl",
    "partition_object_name",
    "rules",
]


class OffsetsTopicSpec(msgspec.Struct, frozen=True, rename="camel"):
    """An internal topic of one CoordinatorCluster: that of groups (__consumer_offsets) or that of transactions."""

    cluster_ref: Annotated[
        ClusterRef,
        Meta(
            extra_json_schema=rules(
                ("self == oldSelf", "clusterRef is immutable: the logs live in that cluster's pods")
            )
        ),
    ]
    partitions: Annotated[
        int,
        Meta(
            ge=1,
            le=MAX_PARTITIONS,
            description="Number of offsets partitions (offsets.topic.num.partitions) until the first re-shard.",
            extra_json_schema=rules(
                (
                    "self == oldSelf",
                    "partitions is immutable: a group's partition is a hash modulo this number; see `muster reshard`",
                )
            ),
        ),
    ] = 50
    replication_factor: Annotated[
        Literal[1, 3, 5],
        Meta(
            description="Replicas per partition (offsets.topic.replication.factor): 3 survives the loss of one pod, 5"
            " of two. Not above the number of pods. Another number changes the set of every partition."
        ),
    ] = 3
    segment_bytes: Annotated[
        int,
        Meta(
            ge=16 * 1024, le=2**31 - 1, description="Size at which a segment is rolled (offsets.topic.segment.bytes)."
        ),
    ] = 104_857_600
    reshard: Reshard | None = None
    deletion_protection: Annotated[
        bool,
        Meta(
            description="Refuse to delete this resource (by config/deletion-protection.yaml). The logs stay on the"
            " volumes in any case, and a topic that is created again goes on from them."
        ),
    ] = False
    topic: Annotated[
        Literal["__consumer_offsets", "__transaction_state"],
        Meta(
            description="The internal topic whose partitions these are: __consumer_offsets for groups,"
            " __transaction_state for transactions. A cluster has one OffsetsTopic of each at most, and needs the"
            " first.",
            extra_json_schema=rules(
                ("self == oldSelf", "topic is immutable: the logs of its partitions have the format of one coordinator")
            ),
        ),
    ] = "__consumer_offsets"


class OffsetsTopicStatus(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The state of the topic, as the operator saw it last."""

    observed_generation: Generation = 0
    conditions: Conditions = ()
    partitions: Annotated[int, Meta(description="OffsetsPartitions that exist.")] = 0
    led: Annotated[int, Meta(description="Offsets partitions whose leader is active.")] = 0
    leaderless: Annotated[int, Meta(description="Offsets partitions without an active leader.")] = 0
    layout: Layout | None = None
    reshard: ReshardStatus | None = None
    leaderships: Leaderships = {}


# --- OffsetsPartition


class PartitionState(StrEnum):
    """State of an offsets partition, as the operator records it."""

    PENDING = "Pending"
    """No replica exists yet."""
    ELECTING = "Electing"
    """Leader and epoch are recorded; the pod has not confirmed yet."""
    LED = "Led"
    """The leader is ACTIVE in the recorded epoch."""
    LEADERLESS = "Leaderless"
    """No pod can lead now; the operator goes on trying."""
    STALLED = "Stalled"
    """No pod can lead until a person acts: the log is lost or damaged."""
    RETIRED = "Retired"
    """A re-shard has replaced it. Its logs are kept."""


class OffsetsPartitionSpec(msgspec.Struct, frozen=True, rename="camel"):
    """One partition of an offsets topic."""

    topic_ref: Annotated[TopicRef, Meta(extra_json_schema=rules(("self == oldSelf", "topicRef is immutable")))]
    index: Annotated[
        int,
        Meta(
            ge=0,
            le=MAX_INDEX,
            description="Partition number; 500000 is the first one of __transaction_state. Each re-shard takes numbers"
            " that none had before.",
            extra_json_schema=rules(("self == oldSelf", "index is immutable")),
        ),
    ]
    replicas: Annotated[
        tuple[str, ...], Meta(max_length=5, description="Pods that shall hold it; chosen by the operator if absent.")
    ] = ()
    preferred_leader: Annotated[
        str | None, Meta(description="Pod that shall lead it when it can; the first of its replicas if absent.")
    ] = None
    allow_data_loss: Annotated[
        Annotated[int, Meta(ge=0)] | None,
        Meta(
            description="A person's word, for a partition that has lost a majority of its replicas for good: lead it"
            " from the best log that can be reached, and lose what only the others had. Set it to the number in the"
            " message of the Ready condition: the epoch of the latest history. It covers no other epoch, so it is"
            " spent as soon as the partition is led in a higher one.",
        ),
    ] = None


class OffsetsPartitionStatus(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The state of a partition, for people. The operator decides on `status.leaderships` of the topic, and this
    follows.
    """

    observed_generation: Generation = 0
    conditions: Conditions = ()
    leader: Annotated[str | None, Meta(description="Pod that leads or is to lead in this epoch.")] = None
    epoch: Annotated[int, Meta(ge=-1, description="Highest leader epoch issued or seen; never falls.")] = -1
    led_epoch: Annotated[int, Meta(ge=-1, description="Highest epoch in which a leader was active.")] = -1
    replicas: Annotated[
        tuple[Replica, ...], Meta(description="The set: majorities of it count. The first is the preferred leader.")
    ] = ()
    previous_replicas: Annotated[
        tuple[Replica, ...],
        Meta(description="The set before, while a change of it is under way: majorities of both count."),
    ] = ()
    learners: Annotated[
        tuple[Replica, ...],
        Meta(description="Replicas that get the log, count for nothing, and shall be in the next set."),
    ] = ()
    left: Annotated[
        tuple[Replica, ...], Meta(description="Replicas that left the set, and whose logs are to be deleted.")
    ] = ()
    following: Annotated[int, Meta(description="Replicas of the set that follow the leader now, itself included.")] = 0
    state: Annotated[PartitionState, Meta(description="How far the partition is.")] = PartitionState.PENDING
    high_watermark: Annotated[int | None, Meta(description="Commit point when the present leader became active.")] = (
        None
    )
    last_transition_time: Annotated[
        str,
        Meta(description="When state, leader or epoch last changed.", extra_json_schema={"format": "date-time"}),
    ] = ""
    reason: Annotated[str, Meta(description="Why the partition is in this state: a stable code.")] = ""


class OffsetsTopic(msgspec.Struct, frozen=True, rename="camel"):
    """An internal topic of one cluster; its OffsetsPartitions are created for it."""

    plural: ClassVar[str] = "offsetstopics"

    metadata: ObjectMeta
    spec: OffsetsTopicSpec
    status: OffsetsTopicStatus = OffsetsTopicStatus()

    @property
    def layout(self) -> Layout:
        """The partitions that serve."""
        return self.status.layout or Layout(self.numbers.start, self.spec.partitions)

    @property
    def numbers(self) -> range:
        """The indexes that its OffsetsPartitions can have: those of the two topics differ (ADR 28)."""
        return INTERNAL_TOPICS[self.spec.topic].numbers


class OffsetsPartition(msgspec.Struct, frozen=True, rename="camel"):
    """One offsets partition and its leadership."""

    plural: ClassVar[str] = "offsetspartitions"

    metadata: ObjectMeta
    spec: OffsetsPartitionSpec
    status: Annotated[
        OffsetsPartitionStatus,
        Meta(
            extra_json_schema=rules(
                (
                    "!has(oldSelf.epoch) || (has(self.epoch) && self.epoch >= oldSelf.epoch)",
                    "status.epoch never falls: clients and pods refuse a lower leader epoch",
                )
            )
        ),
    ] = OffsetsPartitionStatus()


Resource = CoordinatorCluster | OffsetsTopic | OffsetsPartition | MusterUser | ConsumerGroup | MusterBackup


def partition_object_name(topic: str, index: int) -> str:
    """Name of the OffsetsPartition that a topic creates for one of its partitions."""
    return f"{topic}-{index}"
