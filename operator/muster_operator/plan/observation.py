"""What a plan is made from: declared objects, pods as their streams show them, and what is already under way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from muster_operator.api.conditions import Reason
from muster_operator.api.models import CoordinatorCluster, FailoverRecord, OffsetsPartition, OffsetsTopic

__all__ = [
    "CREATE",
    "PUBLISH",
    "Attempt",
    "Broker",
    "Connection",
    "Image",
    "ImageNumber",
    "Observation",
    "PodView",
    "ReplicaView",
]


CREATE = "create"
PUBLISH = "publish"
"""Kinds of pod calls, next to elections, that can be under way."""


class Connection(Enum):
    """What the failure detector says about a pod."""

    UP = "up"  # its stream delivers; what the view says is current
    UNSURE = "unsure"  # the stream ended a moment ago, the reconnect is under way: wait
    DOWN = "down"  # refused, silent, unreachable, or no pod at all


@dataclass(frozen=True, slots=True)
class ReplicaView:
    """One replica as its pod reports it (podapi.models.PartitionStatus)."""

    state: str
    epoch: int  # the highest that it promised
    leader_epoch: int  # in which its pod leads or is about to; -1: it does not
    log_id: str
    used: bool
    high_watermark: int = 0
    reason: str = ""
    message: str = ""


ImageNumber = tuple[int, int]
"""(fencing token, version): orders metadata images. (-1, -1): none."""


@dataclass(frozen=True, slots=True)
class PodView:
    """One pod. `detail` says why it is not UP. `draining`: it is about to end, and takes no election."""

    name: str
    node_id: int
    connection: Connection
    kafka_address: str = ""
    ready: bool = False
    image: ImageNumber = (-1, -1)
    replicas: Mapping[int, ReplicaView] = field(default_factory=dict)
    detail: str = ""
    draining: bool = False


@dataclass(frozen=True, slots=True)
class Attempt:
    """The last election of a partition, as long as it is under way or its failure holds the next one back."""

    in_flight: bool
    held_back: bool
    reason: Reason | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class Broker:
    node_id: int
    host: str
    port: int
    pod: str


@dataclass(frozen=True, slots=True)
class Image:
    """Content of a metadata image: what every pod tells its clients. `leaders`: (node id or -1, epoch) by partition."""

    cluster_id: str
    brokers: tuple[Broker, ...]
    leaders: tuple[tuple[int, int], ...]
    topics: tuple[tuple[str, int], ...]
    any_topic: bool


@dataclass(frozen=True, slots=True)
class Observation:
    """Everything under one key at one moment.

    Objects that do not belong (`topics[1:]`, strange indexes) are in it too, to be told so. `busy`: (kind, pod) of
    calls under way, CREATE or PUBLISH. `failovers`: those that this operator brought about, newest first.
    """

    namespace: str
    name: str
    cluster: CoordinatorCluster | None = None
    topics: tuple[OffsetsTopic, ...] = ()
    partitions: tuple[OffsetsPartition, ...] = ()
    pods: tuple[PodView, ...] = ()
    bootstrap: str = ""
    fencing_token: int = 0
    image: Image | None = None
    image_number: ImageNumber = (-1, -1)
    attempts: Mapping[str, Attempt] = field(default_factory=dict)
    busy: frozenset[tuple[str, str]] = frozenset()
    failovers: tuple[FailoverRecord, ...] = ()
