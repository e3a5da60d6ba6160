"""The custom resources of group muster.dev, version v1alpha1, as frozen structs.

The CustomResourceDefinitions under crds/ are generated from these classes (`python -m muster_operator.api.crds`): field
constraints and descriptions live here and nowhere else. Field names are camelCase on the wire. Unknown fields are
ignored when read, so that an operator can be older than the CRDs.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from muster_operator.api.conditions import Condition
from muster_operator.api.durations import DURATION_PATTERN

__all__ = [
    "GROUP",
    "VERSION",
    "ClusterRef",
    "CoordinatorCluster",
    "CoordinatorClusterSpec",
    "CoordinatorClusterStatus",
    "DeclaredTopic",
    "Failover",
    "FailoverRecord",
    "KafkaListener",
    "Listeners",
    "ObjectMeta",
    "OffsetsPartition",
    "OffsetsPartitionSpec",
    "OffsetsPartitionStatus",
    "OffsetsTopic",
    "OffsetsTopicSpec",
    "OffsetsTopicStatus",
    "PartitionState",
    "PodTemplate",
    "Replica",
    "Resource",
    "Resources",
    "Storage",
    "TopicRef",
    "partition_object_name",
]

GROUP = "muster.dev"
VERSION = "v1alpha1"

MAX_PODS = 100
MAX_PARTITIONS = 1000

# A StatefulSet's pods carry a label <name>-<hash of 10 characters>: 52 is what is left of 63.
CLUSTER_NAME_LIMIT = 52
# Names of OffsetsPartitions are <topic>-<index>.
TOPIC_NAME_LIMIT = 59

Name = Annotated[str, Meta(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", min_length=1)]
Quantity = Annotated[
    str,
    # A positive Kubernetes quantity without sign and exponent; 0 is refused because the first digit counts.
    Meta(pattern=r"^[1-9][0-9]*(\.[0-9]+)?(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$", max_length=32),
]
Duration = Annotated[str, Meta(pattern=DURATION_PATTERN, max_length=16)]
Conditions = Annotated[
    tuple[Condition, ...],
    Meta(extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}),
]
Time = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]


def rules(*pairs: tuple[str, str]) -> dict[str, Any]:
    """x-kubernetes-validations of (CEL rule, message) pairs."""
    return {"x-kubernetes-validations": [{"rule": rule, "message": message} for rule, message in pairs]}


class ObjectMeta(msgspec.Struct, frozen=True, rename="camel"):
    """The part of metav1.ObjectMeta that the operator looks at."""

    name: str
    namespace: str = "default"
    uid: str = ""
    resource_version: str = ""
    """Opaque: compared for equality only, and passed back for compare-and-swap."""
    generation: int = 1
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
    labels: Mapping[str, str] = {}


class ClusterRef(msgspec.Struct, frozen=True, rename="camel"):
    """A CoordinatorCluster in the same namespace."""

    name: Annotated[Name, Meta(max_length=CLUSTER_NAME_LIMIT)]


class TopicRef(msgspec.Struct, frozen=True, rename="camel"):
    """An OffsetsTopic in the same namespace."""

    name: Annotated[Name, Meta(max_length=TOPIC_NAME_LIMIT)]


# --- CoordinatorCluster


class Storage(msgspec.Struct, frozen=True, rename="camel"):
    """The PersistentVolumeClaim of each pod."""

    size: Annotated[Quantity, Meta(description="Size of the volume of each pod, such as 10Gi.")] = "10Gi"
    storage_class_name: Annotated[
        str | None,
        Meta(description="StorageClass of the volumes; the default class of the Kubernetes cluster if absent."),
    ] = None


class KafkaListener(msgspec.Struct, frozen=True, rename="camel"):
    """The listener that Kafka clients connect to."""

    port: Annotated[int, Meta(ge=1, le=65535, description="Port of the listener on every pod.")] = 9092
    advertise: Annotated[
        Literal["PodDNS", "PodIP"],
        Meta(
            description="What clients are told to connect to: the pod's stable DNS name, or its IP address (for"
            " clients without cluster DNS; changes when the pod is replaced)."
        ),
    ] = "PodDNS"


class Listeners(msgspec.Struct, frozen=True, rename="camel"):
    """Listeners of the pods."""

    kafka: KafkaListener = KafkaListener()


class DeclaredTopic(msgspec.Struct, frozen=True, rename="camel"):
    """A topic of the data cluster that groups may subscribe to and commit offsets for."""

    name: Annotated[
        str, Meta(pattern=r"^[a-zA-Z0-9._-]+$", min_length=1, max_length=249, description="Kafka's name of the topic.")
    ]
    partitions: Annotated[int, Meta(ge=1, le=100_000, description="Number of its partitions.")]


class Failover(msgspec.Struct, frozen=True, rename="camel"):
    """Every timeout of failover."""

    suspect_after: Annotated[
        Duration,
        Meta(description="A pod whose status stream is silent for longer is suspected. Heartbeats come every 200 ms."),
    ] = "1s"
    election_timeout: Annotated[
        Duration, Meta(description="An election call that took longer is given up and planned again.")
    ] = "10s"


class Resources(msgspec.Struct, frozen=True, rename="camel"):
    """Compute resources of the coordinator container."""

    requests: Annotated[Mapping[str, Quantity], Meta(description="Such as cpu: 500m, memory: 512Mi.")] = {}
    limits: Annotated[Mapping[str, Quantity], Meta(description="Such as memory: 1Gi.")] = {}


class PodTemplate(msgspec.Struct, frozen=True, rename="camel"):
    """What may be added to the pods."""

    labels: Annotated[Mapping[str, str], Meta(description="Additional labels.")] = {}
    annotations: Annotated[Mapping[str, str], Meta(description="Additional annotations.")] = {}
    node_selector: Annotated[Mapping[str, str], Meta(description="Labels that a node must have.")] = {}


class CoordinatorClusterSpec(msgspec.Struct, frozen=True, rename="camel"):
    """A set of coordinator pods that serve as brokers of one Kafka cluster to clients."""

    pods: Annotated[int, Meta(ge=1, le=MAX_PODS, description="Number of coordinator pods.")] = 3
    image: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(description="Image of the pods; that of the operator if absent."),
    ] = None
    image_pull_policy: Annotated[
        Literal["Always", "IfNotPresent", "Never"], Meta(description="imagePullPolicy of the coordinator container.")
    ] = "IfNotPresent"
    storage: Annotated[
        Storage,
        Meta(
            extra_json_schema=rules(
                ("self == oldSelf", "storage is immutable: a StatefulSet's volume claims cannot change")
            )
        ),
    ] = Storage()
    listeners: Listeners = Listeners()
    settings: Annotated[
        Mapping[str, Annotated[str, Meta(max_length=1024)]],
        Meta(max_length=200, description='Coordinator settings under Kafka\'s names, such as group.max.size: "500".'),
    ] = {}
    topics: Annotated[
        tuple[DeclaredTopic, ...],
        Meta(
            max_length=10_000,
            description="Topics that the coordinator answers Metadata for.",
            extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        ),
    ] = ()
    any_topic: Annotated[bool, Meta(description="Accept commits for any topic name, declared or not.")] = False
    failover: Annotated[
        Failover,
        Meta(
            extra_json_schema=rules(
                (
                    "duration(self.suspectAfter) >= duration('400ms')",
                    "suspectAfter must be at least 400ms: a pod sends a heartbeat every 200 ms",
                ),
                (
                    "duration(self.electionTimeout) >= duration(self.suspectAfter)",
                    "electionTimeout must not be below suspectAfter",
                ),
            )
        ),
    ] = Failover()
    resources: Resources = Resources()
    pod_template: PodTemplate = PodTemplate()
    suspend: Annotated[bool, Meta(description="Observe only: the operator changes nothing and elects nobody.")] = False


class FailoverRecord(msgspec.Struct, frozen=True, rename="camel"):
    """One change of leader."""

    partition: str
    epoch: int
    time: Time
    previous_leader: str | None = None
    leader: str | None = None
    reason: str = ""
    duration_ms: Annotated[
        int | None, Meta(description="From the loss of the old leader to the answer of the new one.")
    ] = None


class CoordinatorClusterStatus(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What the operator last saw of the cluster."""

    observed_generation: int = 0
    conditions: Conditions = ()
    pods: Annotated[int, Meta(description="Pods that exist.")] = 0
    ready_pods: Annotated[int, Meta(description="Pods whose API says ready.")] = 0
    partitions: Annotated[int, Meta(description="Offsets partitions of this cluster.")] = 0
    led: Annotated[int, Meta(description="Offsets partitions whose leader is active.")] = 0
    leaderless: int = 0
    bootstrap: Annotated[str, Meta(description="bootstrap.servers for Kafka clients.")] = ""
    last_failovers: Annotated[tuple[FailoverRecord, ...], Meta(max_length=20, description="Newest first.")] = ()


# --- OffsetsTopic


class OffsetsTopicSpec(msgspec.Struct, frozen=True, rename="camel"):
    """The offsets topic (__consumer_offsets) of one CoordinatorCluster."""

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
            description="Number of offsets partitions (offsets.topic.num.partitions).",
            extra_json_schema=rules(
                ("self == oldSelf", "partitions is immutable: a group's partition is a hash modulo this number")
            ),
        ),
    ] = 50
    replication_factor: Annotated[
        Literal[1, 3, 5],
        Meta(
            description="Replicas per partition (offsets.topic.replication.factor).",
            extra_json_schema=rules(("self == 1", "only replicationFactor 1 is supported by this version")),
        ),
    ] = 1
    segment_bytes: Annotated[
        int,
        Meta(
            ge=16 * 1024, le=2**31 - 1, description="Size at which a segment is rolled (offsets.topic.segment.bytes)."
        ),
    ] = 104_857_600


class OffsetsTopicStatus(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What the operator last saw of the topic."""

    observed_generation: int = 0
    conditions: Conditions = ()
    partitions: Annotated[int, Meta(description="OffsetsPartitions that exist.")] = 0
    led: int = 0
    leaderless: int = 0


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


class Replica(msgspec.Struct, frozen=True, rename="camel"):
    """A replica *is* its log id; the pod says where that log was last seen."""

    pod: str
    log_id: str = ""


class OffsetsPartitionSpec(msgspec.Struct, frozen=True, rename="camel"):
    """One partition of an offsets topic."""

    topic_ref: Annotated[TopicRef, Meta(extra_json_schema=rules(("self == oldSelf", "topicRef is immutable")))]
    index: Annotated[
        int,
        Meta(
            ge=0,
            lt=MAX_PARTITIONS,
            description="Partition number.",
            extra_json_schema=rules(("self == oldSelf", "index is immutable")),
        ),
    ]
    replicas: Annotated[
        tuple[str, ...], Meta(max_length=5, description="Pods that shall hold it; chosen by the operator if absent.")
    ] = ()
    preferred_leader: Annotated[str | None, Meta(description="Pod that shall lead it when it can.")] = None


class OffsetsPartitionStatus(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Leadership. leader, epoch and replicas are written with compare-and-swap, before a pod is called."""

    observed_generation: int = 0
    conditions: Conditions = ()
    leader: Annotated[str | None, Meta(description="Pod that leads or is to lead in this epoch.")] = None
    epoch: Annotated[int, Meta(ge=-1, description="Highest leader epoch issued or seen; never falls.")] = -1
    replicas: tuple[Replica, ...] = ()
    state: PartitionState = PartitionState.PENDING
    high_watermark: Annotated[int | None, Meta(description="Commit point when it was last recorded.")] = None
    last_transition_time: Annotated[str, Meta(extra_json_schema={"format": "date-time"})] = ""
    reason: Annotated[str, Meta(description="Why the partition is in this state: a stable code.")] = ""


# --- resources


class CoordinatorCluster(msgspec.Struct, frozen=True, rename="camel"):
    """Coordinator pods with the operator in charge of them."""

    plural: ClassVar[str] = "coordinatorclusters"

    metadata: ObjectMeta
    spec: CoordinatorClusterSpec = CoordinatorClusterSpec()
    status: CoordinatorClusterStatus = CoordinatorClusterStatus()


class OffsetsTopic(msgspec.Struct, frozen=True, rename="camel"):
    """The offsets topic of one cluster; its OffsetsPartitions are created for it."""

    plural: ClassVar[str] = "offsetstopics"

    metadata: ObjectMeta
    spec: OffsetsTopicSpec
    status: OffsetsTopicStatus = OffsetsTopicStatus()


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


Resource = CoordinatorCluster | OffsetsTopic | OffsetsPartition


def partition_object_name(topic: str, index: int) -> str:
    """Name of the OffsetsPartition that a topic creates for one of its partitions."""
    return f"{topic}-{index}"
