"""The actions of a plan. Each can be repeated without harm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from muster_coordinator.podapi.image import MetadataImage
from muster_coordinator.podapi.users import AccessImage
from muster_operator.api.conditions import Reason
from muster_operator.api.models import (
    ConsumerGroup,
    ConsumerGroupStatus,
    CoordinatorCluster,
    CoordinatorClusterStatus,
    MusterBackup,
    MusterBackupStatus,
    MusterUser,
    MusterUserStatus,
    OffsetsPartition,
    OffsetsPartitionStatus,
    OffsetsTopic,
    OffsetsTopicStatus,
    RestorePlan,
)
from muster_operator.plan.observation import StrandedVolume
from muster_operator.plan.restore_facts import Made, RestoreClaim


@dataclass(frozen=True, slots=True)
class RecordLeadership:
    """Compare-and-swap the record of the topic: all partitions whose leader, epoch or sets change, in one write.

    `leaderships` is the whole record as it shall be: lines of LeadershipRecords by partition number.
    """

    seen: OffsetsTopic
    leaderships: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Elect:
    """Call onElection at `pod`, after this epoch and pod are recorded. If that record fails, the call must not happen.

    `resign`: the pod that led until now. Once the new leader serves, it is told so in the same epoch (onResignation).
    `reason`, `message`: why the election happens, for people.
    """

    partition: str  # name of the OffsetsPartition
    index: int
    pod: str
    epoch: int
    replicas: tuple[str, ...]
    previous_replicas: tuple[str, ...] = ()
    bootstrap: bool = False
    force: bool = False
    allow_data_loss: bool = False
    resign: str = ""
    reason: Reason = Reason.ELECTING
    message: str = ""


@dataclass(frozen=True, slots=True)
class PublishMetadata:
    """Give the image to these pods."""

    pods: tuple[str, ...]
    image: MetadataImage


@dataclass(frozen=True, slots=True)
class GiveAccess:
    """Give users and ACLs to these pods."""

    pods: tuple[str, ...]
    image: AccessImage


@dataclass(frozen=True, slots=True)
class CreatePartitions:
    """Create OffsetsPartition objects of the topic."""

    topic: OffsetsTopic
    indexes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CreateReplicas:
    """Have `pod` create a log for each index; the log ids come back with its status."""

    pod: str
    indexes: tuple[int, ...]
    segment_bytes: int


@dataclass(frozen=True, slots=True)
class RemoveReplicas:
    """Have `pod` delete logs that left their sets: (partition, log id, epoch of a leader whose set is without it)."""

    pod: str
    removals: tuple[tuple[int, str, int], ...]


@dataclass(frozen=True, slots=True)
class Refresh:
    """Ask `pod` how far its followers are, for a move or a change of the set that waits for one of them."""

    pod: str


@dataclass(frozen=True, slots=True)
class RecordReshard:
    """Compare-and-swap the next phase of a re-shard into the status of the topic. Later plans act on it."""

    seen: OffsetsTopic
    status: OffsetsTopicStatus


@dataclass(frozen=True, slots=True)
class SetFence:
    """Close or open a partition for the re-shard with this number. `importing`: it is a new partition."""

    index: int
    reshard: int
    open: bool = False
    importing: bool = False


@dataclass(frozen=True, slots=True)
class SetFences:
    """Set the fences of partitions that `pod` leads."""

    pod: str
    fences: tuple[SetFence, ...]


@dataclass(frozen=True, slots=True)
class RestartPod:
    """Replace a pod by one of the declared template. It leads nothing that another pod could lead."""

    pod: str
    uid: str


@dataclass(frozen=True, slots=True)
class ReplaceVolume:
    """Have a pod get an empty volume in place of one that no node can use. All that it has is on other pods."""

    volume: StrandedVolume


@dataclass(frozen=True, slots=True)
class WritePartitionStatus:
    """Show people what was decided about a partition. No decision depends on this write."""

    seen: OffsetsPartition
    status: OffsetsPartitionStatus


@dataclass(frozen=True, slots=True)
class WriteTopicStatus:
    seen: OffsetsTopic
    status: OffsetsTopicStatus


@dataclass(frozen=True, slots=True)
class WriteClusterStatus:
    seen: CoordinatorCluster
    status: CoordinatorClusterStatus


@dataclass(frozen=True, slots=True)
class WriteUserStatus:
    seen: MusterUser
    status: MusterUserStatus


@dataclass(frozen=True, slots=True)
class AskedMove:
    """`group`: its id. `back`: to Kafka. `generation`: of what declares it."""

    group: str
    back: bool
    generation: int


@dataclass(frozen=True, slots=True)
class StartMoves:
    """Ask this pod, which leads their partitions, to move groups."""

    pod: str
    groups: tuple[AskedMove, ...]


@dataclass(frozen=True, slots=True)
class AskResets:
    """Ask this pod, which leads their partitions, what the declared resets of groups would do, or to do what is in
    their statuses."""

    pod: str
    groups: tuple[ConsumerGroup, ...]


@dataclass(frozen=True, slots=True)
class WriteGroupStatus:
    seen: ConsumerGroup
    status: ConsumerGroupStatus


@dataclass(frozen=True, slots=True)
class StartBackup:
    """Have a Job make a backup: for `asked`, or else for the time `slot` of the schedule."""

    asked: MusterBackup | None
    slot: str
    verify: bool


@dataclass(frozen=True, slots=True)
class StartRestoreJob:
    """Have a Job make the volume of pod number `pod`, whose claim has the uid `claim`, as planned. READS in place of a
    pod: it only chooses the backup and reads it, and there is no plan yet."""

    pod: int
    claim: str = ""
    plan: RestorePlan | None = None


@dataclass(frozen=True, slots=True)
class MakeClaim:
    """Make the claim of the volume of pod number `pod`, noted with the plan of the restore."""

    pod: int
    plan: RestorePlan


@dataclass(frozen=True, slots=True)
class MarkClaims:
    """Note on these claims how far the restore is."""

    claims: tuple[RestoreClaim, ...]
    made: Made


@dataclass(frozen=True, slots=True)
class WriteBackupStatus:
    seen: MusterBackup
    status: MusterBackupStatus


Action = (
    RecordLeadership
    | Elect
    | PublishMetadata
    | GiveAccess
    | CreatePartitions
    | CreateReplicas
    | RemoveReplicas
    | RecordReshard
    | SetFences
    | Refresh
    | RestartPod
    | ReplaceVolume
    | WritePartitionStatus
    | WriteTopicStatus
    | WriteClusterStatus
    | WriteUserStatus
    | StartMoves
    | AskResets
    | WriteGroupStatus
    | StartBackup
    | WriteBackupStatus
    | StartRestoreJob
    | MakeClaim
    | MarkClaims
)
