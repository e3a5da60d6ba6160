"""Messages of the pod API: calls of an operator and their answers, status and events of a pod."""

from __future__ import annotations

from typing import Annotated

import msgspec

from muster_coordinator.calls import CallResult
from muster_coordinator.partition_numbers import TRANSACTIONS
from muster_coordinator.podapi.fields import Answer, Epoch, FencingToken, LogId, Partition, Request
from muster_coordinator.states import LEADING_STATES, OPEN_STATES, FailureReason, ReplicaRole, ShardState


class CallResults(Answer, frozen=True):
    """One result for each partition of the call, in the order of the request."""

    results: tuple[CallResult, ...]


# POST /v1/replicas


class ReplicaRequest(Request, frozen=True):
    """Create a replica if none is here. `segment_bytes`: offsets.topic.segment.bytes (None: the pod's)."""

    partition: Partition
    segment_bytes: Annotated[int, msgspec.Meta(ge=1024, le=2**31 - 1)] | None = None


class ReplicasRequest(Request, frozen=True):
    fencing_token: FencingToken
    partitions: tuple[ReplicaRequest, ...]


# POST /v1/removals


class RemovalRequest(Request, frozen=True):
    """Delete the log of a replica that is in no set any more, as the leader of `epoch` has committed."""

    partition: Partition
    log_id: LogId
    epoch: Epoch


class RemovalsRequest(Request, frozen=True):
    fencing_token: FencingToken
    removals: tuple[RemovalRequest, ...]


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
    """`trace`: the span of the call, as W3C's traceparent has it; "": nobody traces it."""

    elections: tuple[Election, ...]
    trace: str = ""


# POST /v1/resignations


class Resignation(Request, frozen=True):
    """onResignation for one partition. `epoch` is the new, higher one, promised to nobody."""

    partition: Partition
    epoch: Epoch


class ResignationsRequest(Request, frozen=True):
    resignations: tuple[Resignation, ...]


# GET /v1/status, /v1/partitions, /v1/watch


class FenceStatus(Answer, frozen=True):
    """A Fence record of re-shard `reshard`: the partition is `closed` to clients or open again. `imported`: number of
    records that a new partition has taken in (-1: it is not a new one); `complete`: those are all.
    """

    reshard: int
    closed: bool
    imported: int = -1
    complete: bool = False


class OpenTransactions(Answer, frozen=True):
    """The number of open transactions in a partition, and the ids of some of them. No other one can have begun
    there since: all that was counted is committed, and the metadata image `token`.`version` lets none begin.
    """

    token: int
    version: int
    count: int
    some: tuple[str, ...] = ()


class FollowerStatus(Answer, frozen=True):
    """Another replica, or a learner, as the leader sees it. `end_offset`: durable and verified there, -1: not known."""

    log_id: str
    end_offset: int = -1
    rebuilding: bool = False


class ReplicaStatus(Answer, frozen=True):
    """One replica as its pod sees it.

    `epoch` is the highest promised one, `leader_epoch` the one in which this pod leads or is about to (-1: it does
    not). `leader` is the log id that `epoch` was promised to ("": none). `used`: the log has records, or lost some, or
    is not open. `log_end_offset` is -1 while the log is not open. `replicas` and `previous_replicas` are the sets that
    the log names last (empty: none yet); while `previous_replicas` is not empty a change runs, and `sets_committed`
    says that what the log names is committed. `rebuilding`: data that was acked is missing here, so the replica is
    counted nowhere. `needs_higher_epoch`: some replica takes nothing from this leader any more; an election of it in a
    higher epoch, with `force`, gets it back. `followers`: the leader's view, learners included. `reason` is a stable
    code, "" when the replica has no failure to show: a `FailureReason`, or another code that says nothing to a program;
    `message` is its text. `fence`: the last committed state of a re-shard in this partition, if this pod leads it.
    `last_epoch`: of the last record of the log (-1: none, or the log is not open); together with `log_end_offset` it
    orders the logs of a partition as an election does. `open_transactions`: of a leader, while its pod's metadata image
    holds transactions (None: it does not, or not all is committed).
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
    last_epoch: int = -1
    open_transactions: OpenTransactions | None = None

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
        damage = (FailureReason.LOG_DAMAGED, FailureReason.PROTOCOL_VIOLATION)
        return self.state is ShardState.FAILED and self.reason in damage

    @property
    def has_left(self) -> bool:
        """Its own log proves that it does not count: a committed final set of its last epoch is without it."""
        final = bool(self.replicas) and not self.previous_replicas and self.log_id not in self.replicas
        return final and self.sets_committed and self.last_epoch == self.epoch

    @property
    def follows(self) -> str:
        """Log id of the leader that this replica hears; "": it hears none."""
        return self.leader if self.role is ReplicaRole.FOLLOWER else ""

    def follower(self, log_id: str) -> FollowerStatus | None:
        """The replica `log_id` as this leader sees it; None: this replica does not feed it."""
        return next((each for each in self.followers if each.log_id == log_id), None)

    def without_positions(self) -> ReplicaStatus:
        """This status without what changes with every commit. It still tells whether a position is known (not -1)."""
        return msgspec.structs.replace(
            self,
            log_end_offset=min(self.log_end_offset, 0),
            high_watermark=min(self.high_watermark, 0),
            groups=0,
            followers=tuple(FollowerStatus(f.log_id, min(f.end_offset, 0), f.rebuilding) for f in self.followers),
        )


class SiteStatus(Answer, frozen=True):
    """The right of a pod of site `name` to answer clients. `holder`: the site of claim `term` ("": nobody), which the
    pod has read last. `held`: it may answer; otherwise `problem` says why not."""

    name: str
    held: bool
    holder: str = ""
    term: int = -1
    problem: str = ""


class PodStatus(Answer, frozen=True):
    """One pod. `boot_id` is the machine's; `metadata_token` and `metadata_version` name the image that it serves.

    `started`: the logs are open, so `partitions` is complete. Before that, a replica that is not listed may still be
    here. `draining`: the pod is about to end, and takes no election. `peer_address`: where other pods reach this one's
    replicas. `fencing_token`: the highest one that the pod has seen (-1: none). `lost_peers`: names of pods that share
    a partition with this one by the metadata image, and that it does not hear (connection refused, closed or silent):
    evidence for failure detection. `cluster_id` and the first number and the count of each topic: of the last metadata
    image that this data directory has taken, also in an earlier run ("" and 0: none yet). `mirror_problem`: why it can
    follow nothing of the upstream ("": nothing is wrong, or there is none). `mirror_bypassed`: groups of this cluster's
    that have members at the upstream itself, with their clients ("": none has). `access`: the fingerprint of the users
    and ACLs that the operator gave ("": none yet; None: this pod takes none). `site`: None: it is of no site.
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
    fencing_token: int = -1
    lost_peers: tuple[str, ...] = ()
    cluster_id: str = ""
    offsets_base: int = 0
    offsets_partitions: int = 0
    transaction_base: int = TRANSACTIONS.first
    transaction_partitions: int = 0
    mirror_problem: str = ""
    mirror_bypassed: str = ""
    access: str | None = None
    site: SiteStatus | None = None

    @property
    def layouts(self) -> tuple[tuple[int, int], ...]:
        """(first number, count) of each topic that has partitions."""
        topics = (
            (self.offsets_base, self.offsets_partitions),
            (self.transaction_base, self.transaction_partitions),
        )
        return tuple(each for each in topics if each[1])


class StatusEvent(Answer, frozen=True, tag_field="type", tag="status"):
    """The whole status: the first event of a stream, and sent again when more changes than one partition."""

    status: PodStatus


class PartitionEvent(Answer, frozen=True, tag_field="type", tag="partition"):
    """The replica of one partition has changed; this status replaces the last one."""

    partition: ReplicaStatus


class HeartbeatEvent(Answer, frozen=True, tag_field="type", tag="heartbeat"):
    """The pod's event loop runs. `now` is its wall clock in milliseconds since 1970, for people and logs only."""

    now: int


WatchEvent = StatusEvent | PartitionEvent | HeartbeatEvent
