"""The input of a plan: declared objects, pods as their status streams show them, and the calls under way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from muster_coordinator.podapi.image import MetadataImage
from muster_coordinator.podapi.models import ReplicaStatus
from muster_operator.api.backup_result import BackupResult
from muster_operator.api.conditions import Reason
from muster_operator.api.models import (
    ConsumerGroup,
    CoordinatorCluster,
    FailoverRecord,
    Layout,
    MusterBackup,
    MusterUser,
    OffsetsPartition,
    OffsetsTopic,
)
from muster_operator.plan.access import AccessState
from muster_operator.plan.group_facts import GroupFacts
from muster_operator.plan.reset_facts import ResetFacts, ResetKey
from muster_operator.plan.restore_facts import RestoreFacts


class CallKind(Enum):
    """A call to a pod, other than an election, that can be under way."""

    ACCESS = "access"
    CREATE = "create"
    FENCE = "fence"
    MOVE = "move"
    MOVES = "moves"
    PUBLISH = "publish"
    REFRESH = "refresh"
    REMOVE = "remove"
    RESET = "reset"
    RESTART = "restart"


class Connection(Enum):
    """The failure detector's view of a pod."""

    UP = "up"  # its status stream delivers: the view is current
    UNSURE = "unsure"  # the stream ended a moment ago and is being reconnected: wait
    SUSPECT = "suspect"  # silent or unreachable from here: dead only if the other pods have lost it too
    DOWN = "down"  # it refuses connections, or does not exist


def ordinal_of(pod: str) -> int:
    """The number at the end of a pod's name; 0 if there is none."""
    digits = pod.rpartition("-")[2]
    return int(digits) if digits.isdigit() else 0


@dataclass(frozen=True, slots=True)
class StrandedVolume:
    """The volume of a pod that runs nowhere, because only nodes that are gone can use it.

    `uid`: of the pod. `claims`: name and uid of its PersistentVolumeClaims for which this holds (its data, its
    archive). `why`: which node, and what became of it. `for_s`: for how many seconds this is known.
    """

    pod: str
    uid: str
    claims: tuple[tuple[str, str], ...]
    why: str
    for_s: float = 0.0

    @property
    def names(self) -> str:
        """The names of the claims, for people."""
        return ", ".join(name for name, _ in self.claims)


@dataclass(frozen=True, slots=True)
class BackupJob:
    """A Job that makes a backup. `asked`: uid of the MusterBackup that it is for; "": it is for the time `slot` of the
    schedule. `finished` is "" while it runs, and as long as its result could not be read. `result` is None if it has
    left none, and `trouble` says what Kubernetes tells of it then; while it runs, why its pod does not."""

    name: str
    asked: str
    slot: str
    started: str
    finished: str = ""
    result: BackupResult | None = None
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class BackupsDue:
    """The backups of a cluster that are due now. `slot`: the last time of the schedule ("": there is none). `trouble`:
    what is wrong with the schedule. `too_old`: the newest backup is older than declared. `verify`: a backup is to be
    read again."""

    slot: str = ""
    trouble: str = ""
    too_old: bool = False
    verify: bool = False


ImageNumber = tuple[int, int]
"""(fencing token, version): orders metadata images. (-1, -1): none."""


@dataclass(frozen=True, slots=True)
class PodView:
    """One pod as its status stream and Kubernetes show it.

    `detail`: why it is not UP. `draining`: it is about to end and takes no election. `gone`: it was deleted by
    force, and can end at any moment. `steady_s`: seconds since it came UP, or since it was lost. `noticed_s`: how
    long after its last word it was in doubt. `lost_peers`: pods that it does not hear. `fencing_token`: the highest
    that it has seen (-1: none). `node`, `zone`: where it runs, "" if unknown. `outdated`: it runs an older template
    than declared. `cordoned`: it, or its node, is about to be emptied. `fenced`: it is elected for nothing.
    `hidden`: clients are not told of it. `node_lost`: its node is silent, which counts as one more witness for the
    death of a SUSPECT pod. `uid`: tells pods of the same name apart. `cluster_id`, `layouts`: of the last image
    that its volume has taken ("" and (): none). `container_image`: what it runs. `trouble`: why its container does
    not run. `endpoints`: addresses for clients of other listeners than the Internal one, by name. `mirror_problem`:
    why it can follow nothing of the upstream. `mirror_bypassed`: groups of this cluster's that have members at the
    upstream, with their clients. `access`: fingerprint of the users and ACLs that it was given ("": none yet; None:
    it takes none). `site_problem`: why it answers no client, because of the claims of sites.
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
    noticed_s: float = 0.0
    node: str = ""
    zone: str = ""
    outdated: bool = False
    cordoned: bool = False
    fenced: bool = False
    hidden: bool = False
    node_lost: bool = False
    uid: str = ""
    cluster_id: str = ""
    layouts: tuple[Layout, ...] = ()
    container_image: str = ""
    trouble: str = ""
    endpoints: Mapping[str, str] = field(default_factory=dict)
    mirror_problem: str = ""
    mirror_bypassed: str = ""
    access: str | None = None
    site_problem: str = ""

    @property
    def is_up(self) -> bool:
        return self.connection is Connection.UP


@dataclass(frozen=True, slots=True)
class Attempt:
    """The elections of a partition since it was last led.

    `in_flight`: a call is under way. `reason`, `message`: of that call, or else of the last answer. `held_back`: the
    next call has to wait. `refused`: pods that lately answered that they cannot lead. `better`: the log id that an
    answer named as the better one. `sets`: (replicas, previous replicas) that the log names, if an answer has them.
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
class Observation:
    """Everything that belongs to one cluster at one moment.

    It includes objects that do not count (`topics[1:]`, partitions of other indexes), because their status says so.
    `image`: the last one that was published. `busy`: calls under way, with their pods. `failovers`: those that this
    operator carried out, newest first. `applied`: `outdated` of the pods is about the present spec. `conflict`: the
    object of the cluster's name that belongs to somebody else. `refusal`: why the pods' objects are refused.
    `rollout_waits`: why no pod that serves is to be replaced now. `default_image`: what this operator brings.
    `invalid_settings`: what a pod would refuse in spec.settings. `outdated_definitions`: resource definitions of
    another version. `volumes`: of how many pods there are volumes, counted up to the highest (negative: nobody has
    looked yet). `volume_size`, `archive_size`: of the largest. `growing`: volumes that are smaller than declared.
    `growth_refused`: why they stay so. `stranded`: volumes that pods wait for in vain, by name of the pod.
    `certificates`: why they cannot be kept, `certificates_end`: when the first of them ends (seconds since 1970).
    `gateway_waits`: what of the gateway is not there yet. `gateway_trouble`: why it cannot be. `gateway_bootstrap`: for
    its clients. All "" if there is none.
    `backups`: the MusterBackups; `backup_jobs`: Jobs that make backups (None: nobody knows); `backups_due`: by
    the clock. `restore`: what there is of a restore that is not over (None: nobody has looked yet).
    `users`: the MusterUsers (None: they cannot be read); `access`: what of them pods are to have (None: that is not
    known yet).
    `groups`: the ConsumerGroups (None: they cannot be read); `group_facts`: what pods have said of each, by its id;
    `reset_facts`: what they have said of resets.
    """

    namespace: str
    name: str
    cluster: CoordinatorCluster | None = None
    topics: tuple[OffsetsTopic, ...] = ()
    partitions: tuple[OffsetsPartition, ...] = ()
    pods: tuple[PodView, ...] = ()
    bootstrap: str = ""
    fencing_token: int = 0
    image: MetadataImage | None = None
    attempts: Mapping[str, Attempt] = field(default_factory=dict)
    busy: frozenset[tuple[CallKind, str]] = frozenset()
    failovers: tuple[FailoverRecord, ...] = ()
    applied: bool = True
    conflict: str = ""
    refusal: str = ""
    rollout_waits: str = ""
    default_image: str = ""
    invalid_settings: str = ""
    outdated_definitions: str = ""
    volumes: int = 0
    volume_size: str = ""
    archive_size: str = ""
    growing: str = ""
    growth_refused: str = ""
    stranded: tuple[StrandedVolume, ...] = ()
    certificates: str = ""
    certificates_end: float = 0.0
    gateway_waits: str = ""
    gateway_trouble: str = ""
    gateway_bootstrap: str = ""
    users: tuple[MusterUser, ...] | None = ()
    access: AccessState | None = None
    groups: tuple[ConsumerGroup, ...] | None = ()
    group_facts: Mapping[str, GroupFacts] = field(default_factory=dict)
    reset_facts: Mapping[ResetKey, ResetFacts] = field(default_factory=dict)
    backups: tuple[MusterBackup, ...] = ()
    backup_jobs: tuple[BackupJob, ...] | None = None
    backups_due: BackupsDue = BackupsDue()
    restore: RestoreFacts | None = None
