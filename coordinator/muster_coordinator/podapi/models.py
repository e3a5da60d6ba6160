"""What goes over the pod API: calls of an operator and their answers, status and events of a pod."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec

from muster_coordinator.podapi.fields import Answer, Epoch, FencingToken, LogId, Partition, Request
from muster_coordinator.states import LEADING_STATES, OPEN_STATES, FailureReason, ReplicaRole, ShardState

__all__ = [
    "CallStatus",
    "Election",
    "ElectionResult",
    "ElectionsRequest",
    "ElectionsResponse",
    "FenceStatus",
    "FollowerStatus",
    "HeartbeatEvent",
    "PartitionEvent",
    "PodStatus",
    "RemovalRequest",
    "RemovalResult",
    "RemovalsRequest",
    "RemovalsResponse",
    "ReplicaRequest",
    "ReplicaResult",
    "ReplicaStatus",
    "ReplicasRequest",
    "ReplicasResponse",
    "Resignation",
    "ResignationResult",
    "ResignationsRequest",
    "ResignationsResponse",
    "StatusEvent",
    "WatchEvent",
]


class CallStatus(StrEnum):
    """Outcome of one partition of a call. `code` is the HTTP status that it would have on its own."""

    ACCEPTED = "accepted"  # done: an election's leader is ACTIVE, a resignation's promise is durable
    LOADING = "loading"  # this election is under way; the watch stream tells its end
    STALE_EPOCH = "staleEpoch"  # the epoch is not higher than what the replica promised: the answer carries that one
    WRONG_REPLICA = "wrongReplica"  # the log id is not here, or in no set of the call
    CANNOT_WRITE = "cannotWrite"  # disk full or I/O error; nothing was promised
    DAMAGED = "damaged"  # the log here must not be served; the message says why
    INVALID = "invalid"  # the call makes no sense for this partition; the message says why
    SET_CONFLICT = "setConflict"  # the log names other sets than the call: the answer carries them
    LEADER_LIVES = "leaderLives"  # a majority hears a leader; nothing was promised; `force` would go on
    BETTER_LOG = "betterLog"  # nothing was promised; `better_log_id` names the replica that should be elected
    NO_MAJORITY = "noMajority"  # too few replicas answered; the promise of the epoch may stand

    @property
    def code(self) -> int:
        return _CODES[self]


_CODES: dict[CallStatus, int] = {
    CallStatus.ACCEPTED: 200,
    CallStatus.LOADING: 425,
    CallStatus.STALE_EPOCH: 409,
    CallStatus.WRONG_REPLICA: 409,
    CallStatus.CANNOT_WRITE: 507,
    CallStatus.DAMAGED: 500,
    CallStatus.INVALID: 400,
    CallStatus.SET_CONFLICT: 409,
    CallStatus.LEADER_LIVES: 409,
    CallStatus.BETTER_LOG: 409,
    CallStatus.NO_MAJORITY: 503,
}


# POST /v1/replicas


class ReplicaRequest(Request, frozen=True):
    """One replica to create where none is. `segment_bytes`: offsets.topic.segment.bytes, None: the pod's own."""

    partition: Partition
    segment_bytes: Annotated[int, msgspec.Meta(ge=1024, le=2**31 - 1)] | None = None


class ReplicasRequest(Request, frozen=True):
    fencing_token: FencingToken
    partitions: tuple[ReplicaRequest, ...]


class ReplicaResult(Answer, frozen=True):
    """The replica that is here now.

    `used`: it ever promised an epoch or held a record; only an unused one takes a bootstrap.
    `log_id` is "" when it could not be created (`status` and `message` say why).
    """

    partition: int
    status: CallStatus
    code: int
    log_id: str = ""
    end_offset: int = 0
    used: bool = False
    message: str = ""

    @classmethod
    def of(
        cls,
        partition: int,
        status: CallStatus,
        *,
        log_id: str = "",
        end_offset: int = 0,
        used: bool = False,
        message: str = "",
    ) -> ReplicaResult:
        return cls(partition, status, status.code, log_id, end_offset, used, message)


class ReplicasResponse(Answer, frozen=True):
    results: tuple[ReplicaResult, ...]


# POST /v1/removals


class RemovalRequest(Request, frozen=True):
    """A replica that is in no set any more, by what the leader of `epoch` committed: its log is to be deleted."""

    partition: Partition
    log_id: LogId
    epoch: Epoch


class RemovalsRequest(Request, frozen=True):
    fencing_token: FencingToken
    removals: tuple[RemovalRequest, ...]


class RemovalResult(Answer, frozen=True):
    """ACCEPTED: this log is not here, any more or at all. STALE_EPOCH: it promised `epoch`, a higher one than that of
    the call, so it may count again. INVALID: it is in use, as the message says.
    """

    partition: int
    status: CallStatus
    code: int
    epoch: int = -1
    message: str = ""

    @classmethod
    def of(cls, partition: int, status: CallStatus, *, epoch: int = -1, message: str = "") -> RemovalResult:
        return cls(partition, status, status.code, epoch, message)


class RemovalsResponse(Answer, frozen=True):
    results: tuple[RemovalResult, ...]


# POST /v1/elections


class Election(Request, frozen=True):
    """onElection for one partition.

    `replicas` is the set of log ids that count, `previous_replicas` the one before it while a change of the set runs.
    `bootstrap` opens the first epoch of a never-used log; `force` skips the question whether a better leader lives.
    `allow_data_loss`: a person accepts the best log of those that can be reached, without a majority.
    """

    partition: Partition
    epoch: Epoch
    replicas: tuple[LogId, ...]
    previous_replicas: tuple[LogId, ...] = ()
    bootstrap: bool = False
    force: bool = False
    allow_data_loss: bool = False


class ElectionsRequest(Request, frozen=True):
    fencing_token: FencingToken
    elections: tuple[Election, ...]


class ElectionResult(Answer, frozen=True):
    """`epoch` is the highest promised by now (-1: none); `log_id` the replica that is here ("": none).

    `replicas` and `previous_replicas`: what the log names, with `setConflict`. `better_log_id`: with `betterLog`.
    """

    partition: int
    status: CallStatus
    code: int
    epoch: int = -1
    message: str = ""
    log_id: str = ""
    replicas: tuple[str, ...] = ()
    previous_replicas: tuple[str, ...] = ()
    better_log_id: str = ""

    @classmethod
    def of(
        cls,
        partition: int,
        status: CallStatus,
        *,
        epoch: int = -1,
        message: str = "",
        log_id: str = "",
        replicas: tuple[str, ...] = (),
        previous_replicas: tuple[str, ...] = (),
        better_log_id: str = "",
    ) -> ElectionResult:
        return cls(partition, status, status.code, epoch, message, log_id, replicas, previous_replicas, better_log_id)


class ElectionsResponse(Answer, frozen=True):
    results: tuple[ElectionResult, ...]


# POST /v1/resignations


class Resignation(Request, frozen=True):
    """onResignation for one partition. `epoch` is the new, higher one, promised to nobody."""

    partition: Partition
    epoch: Epoch


class ResignationsRequest(Request, frozen=True):
    fencing_token: FencingToken
    resignations: tuple[Resignation, ...]


class ResignationResult(Answer, frozen=True):
    """`ended_epoch` is the epoch in which this pod led until now (-1: it did not lead)."""

    partition: int
    status: CallStatus
    code: int
    epoch: int = -1
    ended_epoch: int = -1
    message: str = ""

    @classmethod
    def of(
        cls, partition: int, status: CallStatus, *, epoch: int = -1, ended_epoch: int = -1, message: str = ""
    ) -> ResignationResult:
        return cls(partition, status, status.code, epoch, ended_epoch, message)


class ResignationsResponse(Answer, frozen=True):
    results: tuple[ResignationResult, ...]


# GET /v1/status, /v1/partitions, /v1/watch


class FenceStatus(Answer, frozen=True):
    """A Fence record of re-shard `reshard`: `closed` to clients or open again. `imported`: records that a new partition
    has taken in, -1: it is none; `complete`: those were all."""

    reshard: int
    closed: bool
    imported: int = -1
    complete: bool = False


class FollowerStatus(Answer, frozen=True):
    """Another replica, or a learner, as the leader sees it. `end_offset`: durable and verified there, -1: not known."""

    log_id: str
    end_offset: int = -1
    rebuilding: bool = False


class ReplicaStatus(Answer, frozen=True):
    """One replica as its pod sees it.

    `epoch` is the highest promised one, `leader_epoch` the one in which this pod leads or is about to (-1: it does
    not). `leader` is the log id that `epoch` was promised to ("": none). `used`: it ever promised an epoch or held a
    record. `log_end_offset` is -1 while the log is not open. `replicas` and `previous_replicas` are the sets that the
    log names last (empty: none yet); while `previous_replicas` is not empty a change runs, and `sets_committed` says
    that what the log names is committed. `rebuilding`: data that was acked is missing here, so the replica is counted
    nowhere. `needs_higher_epoch`: some replica takes nothing from this leader any more; an election of it in a higher
    epoch, with `force`, gets it back. `followers`: the leader's view, learners included. `reason` is a stable code, ""
    when the replica has no failure to show: a `FailureReason`, or another code that says nothing to a program;
    `message` is its text. `fence`: the last committed state of a re-shard in this partition, if this pod leads it.
    """

    partition: int
    state: ShardState
    role: ReplicaRole = ReplicaRole.NONE
    epoch: int = -1
    leader_epoch: int = -1
    log_id: str = ""
    used: bool = False
    log_end_offset: int = 0
    high_watermark: int = 0
    reason: str = ""
    message: str = ""
    groups: int = 0
    leader: str = ""
    replicas: tuple[str, ...] = ()
    previous_replicas: tuple[str, ...] = ()
    sets_committed: bool = False
    rebuilding: bool = False
    needs_higher_epoch: bool = False
    followers: tuple[FollowerStatus, ...] = ()
    fence: FenceStatus | None = None

    @property
    def leads(self) -> bool:
        """It leads in its highest epoch, or is about to."""
        return self.state in LEADING_STATES and self.leader_epoch >= 0 and self.leader_epoch == self.epoch

    @property
    def is_active(self) -> bool:
        """It leads in its highest epoch, and answers unless a re-shard has closed it."""
        return self.state in OPEN_STATES and self.leads

    @property
    def is_damaged(self) -> bool:
        """Its log must not be served until a person has looked at it."""
        return self.state is ShardState.FAILED and self.reason == FailureReason.LOG_DAMAGED

    @property
    def follows(self) -> str:
        """Log id of the leader that this replica hears; "": it hears none."""
        return self.leader if self.role is ReplicaRole.FOLLOWER else ""

    def follower(self, log_id: str) -> FollowerStatus | None:
        """The replica `log_id` as this leader sees it; None: this replica does not feed it."""
        return next((each for each in self.followers if each.log_id == log_id), None)

    def without_positions(self) -> ReplicaStatus:
        """The same without what changes with every commit. Whether a position is known at all (not -1) remains."""
        return msgspec.structs.replace(
            self,
            log_end_offset=min(self.log_end_offset, 0),
            high_watermark=min(self.high_watermark, 0),
            groups=0,
            followers=tuple(FollowerStatus(f.log_id, min(f.end_offset, 0), f.rebuilding) for f in self.followers),
        )


class PodStatus(Answer, frozen=True):
    """One pod. `boot_id` is the machine's; `metadata_token` and `metadata_version` name the image that it serves.

    `started`: the logs are open, so `partitions` is complete. Before that, a replica that is not listed may still be
    here. `draining`: the pod is about to end, and takes no election. `peer_address`: where other pods reach this one's
    replicas. `lost_peers`: names of pods that share a partition with this one by the metadata image, and that it does
    not hear (connection refused, closed or silent): evidence for failure detection.
    """

    pod: str
    node_id: int
    pod_uid: str
    boot_id: str
    version: str
    kafka_address: str
    ready: bool
    started: bool = True
    draining: bool = False
    metadata_token: int = -1
    metadata_version: int = -1
    partitions: tuple[ReplicaStatus, ...] = ()
    peer_address: str = ""
    lost_peers: tuple[str, ...] = ()


class StatusEvent(Answer, frozen=True, tag_field="type", tag="status"):
    """The whole status: the first line of a stream, and again when something changes that is not of one partition."""

    status: PodStatus


class PartitionEvent(Answer, frozen=True, tag_field="type", tag="partition"):
    """One partition changed; replaces what was known of it."""

    partition: ReplicaStatus


class HeartbeatEvent(Answer, frozen=True, tag_field="type", tag="heartbeat"):
    """The pod's event loop turns. `now` is its wall clock in milliseconds, for people and logs only."""

    now: int


WatchEvent = StatusEvent | PartitionEvent | HeartbeatEvent
