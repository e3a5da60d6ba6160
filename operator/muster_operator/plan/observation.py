"""What a plan is made from: declared objects, pods as their streams show them, and what is already under way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from muster_coordinator.podapi.models import ReplicaStatus
from muster_operator.api.conditions import Reason
from muster_operator.api.models import CoordinatorCluster, FailoverRecord, OffsetsPartition, OffsetsTopic

__all__ = [
    "CREATE",
    "FENCE",
    "PUBLISH",
    "REFRESH",
    "REMOVE",
    "RESTART",
    "Attempt",
    "Broker",
    "Connection",
    "Image",
    "ImageNumber",
    "Observation",
    "PodView",
]


CREATE = "create"
FENCE = "fence"
PUBLISH = "publish"
REFRESH = "refresh"
REMOVE = "remove"
RESTART = "restart"
"""Kinds of calls, next to elections, that can be under way for a pod."""


class Connection(Enum):
    """What the failure detector says about a pod."""

    UP = "up"  # its stream delivers; what the view says is current
    UNSURE = "unsure"  # the stream ended a moment ago, the reconnect is under way: wait
    SUSPECT = "suspect"  # silent or unreachable from here: dead only if the other pods do not hear it either
    DOWN = "down"  # refused, or no pod at all


ImageNumber = tuple[int, int]
"""(fencing token, version): orders metadata images. (-1, -1): none."""


@dataclass(frozen=True, slots=True)
class PodView:
    """One pod. `detail` says why it is not UP. `draining`: it is about to end, and takes no election; `gone`: at any
    moment, because it was deleted by force.

    `steady_s`: seconds since it came UP, or since it was lost. `fencing_token`: the highest one that it has seen
    (-1: none). `lost_peers`: pods that it does not hear.
    `node`, `zone`: where it runs, "" if that is not known. `outdated`: it runs an older template than is declared.
    `cordoned`: its node is about to be emptied. `node_lost`: nothing is heard of its node, which is one witness more
    for the death of a pod that is SUSPECT. `uid`: which of the pods that had this name it is.
    """

    name: str
    node_id: int
    connection: Connection
    kafka_address: str = ""
    ready: bool = False
    image: ImageNumber = (-1, -1)
    replicas: Mapping[int, ReplicaStatus] = field(default_factory=dict)
    detail: str = ""
    draining: bool = False
    gone: bool = False
    peer_address: str = ""
    fencing_token: int = -1
    lost_peers: frozenset[str] = frozenset()
    steady_s: float = 0.0
    node: str = ""
    zone: str = ""
    outdated: bool = False
    cordoned: bool = False
    node_lost: bool = False
    uid: str = ""

    @property
    def is_up(self) -> bool:
        return self.connection is Connection.UP


@dataclass(frozen=True, slots=True)
class Attempt:
    """The elections of a partition since it was last led: what is under way, and what the answers say.

    `reason`, `message`: of the call while it is `in_flight`, then of its answer. `held_back`: the next one has to wait.
    `refused`: pods that said lately that they cannot lead. `better`: the log id that an answer named as the better one.
    `sets`: (replicas, previous replicas) that the log names, if an answer says.
    """

    in_flight: bool
    held_back: bool
    reason: Reason | None = None
    message: str = ""
    pod: str = ""
    refused: frozenset[str] = frozenset()
    better: str = ""
    sets: tuple[tuple[str, ...], tuple[str, ...]] | None = None


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
    peers: tuple[tuple[str, str], ...] = ()  # (pod, address) where its replicas are reached
    places: tuple[tuple[int, str, str], ...] = ()  # (partition, log id, pod)
    offsets_base: int = 0  # the partition of the first of `leaders`


@dataclass(frozen=True, slots=True)
class Observation:
    """Everything under one key at one moment.

    Objects that do not belong (`topics[1:]`, strange indexes) are in it too, to be told so. `busy`: (kind, pod) of
    calls under way, CREATE and the like. `failovers`: those that this operator brought about, newest first.
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
