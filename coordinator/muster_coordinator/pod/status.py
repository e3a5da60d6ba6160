"""The status of one replica, for the pod API."""

from __future__ import annotations

import msgspec

from muster_coordinator.pod.cluster_view import ClusterView
from muster_coordinator.pod.replica_manager import ReplicaManager
from muster_coordinator.podapi.models import FenceStatus, FollowerStatus, OpenTransactions, ReplicaStatus
from muster_coordinator.replication.core import ReplicaCore
from muster_coordinator.states import OPEN_STATES, FailureReason, ReplicaRole, ShardState

NAMES_MAX = 3
"""Open transactions that are told by name."""

_Held = tuple[int, int]
"""(token, version) of a metadata image."""


def held_by(view: ClusterView) -> _Held | None:
    """The image by which no transaction begins in this pod; None: they do begin."""
    image = view.image
    return (image.token, image.version) if image is not None and view.holds_transactions else None


def replica_status(manager: ReplicaManager, partition: int, held: _Held | None = None) -> ReplicaStatus | None:
    """The status of the replica here; None: there is none. A directory whose promise cannot be read has no log id."""
    damage = manager.health.damage.get(partition, "")
    replica = manager.replicas.get(partition)
    if replica is None:
        return _unreadable_replica(partition, damage) if damage else None
    shard = manager.shards.get(partition)
    host = manager.hosts.get(partition)
    core = host.core if host is not None else None
    state = shard.state if shard is not None else ShardState.INITIAL
    reason, message = (shard.reason, shard.message) if shard is not None else ("", "")
    if not reason and partition in manager.health.set_aside:
        reason, message = FailureReason.LOG_SET_ASIDE, manager.health.set_aside[partition]
    if partition in manager.health.doubled:
        state, reason = ShardState.FAILED, FailureReason.DUPLICATE_LOG
        message = manager.health.doubled[partition]
    if partition in manager.health.stopped:
        state, reason = ShardState.FAILED, FailureReason.PROTOCOL_VIOLATION
        message = manager.health.stopped[partition]
    if partition in manager.health.unopened:
        state, reason = ShardState.FAILED, FailureReason.CANNOT_WRITE
        message = manager.health.unopened[partition]
    if damage:
        state, reason, message = ShardState.FAILED, FailureReason.LOG_DAMAGED, damage
    status = ReplicaStatus(
        partition=partition,
        state=state,
        epoch=replica.promised.epoch,
        log_id=replica.log_id,
        used=not replica.is_open or not replica.never_used,
        log_end_offset=replica.end_offset if replica.is_open else -1,
        high_watermark=shard.high_watermark if shard is not None else -1,
        reason=reason,
        message=message,
        groups=shard.machine.key_count if shard is not None else 0,
        leader=replica.promised.leader,
        rebuilding=replica.promised.rebuilding,
        last_epoch=replica.log.epochs.last_epoch if replica.is_open else -1,
    )
    if core is None or damage:
        return status
    fence = shard.committed_fence if shard is not None else None
    shown = None if fence is None else FenceStatus(*msgspec.structs.astuple(fence))
    status = _with_role(msgspec.structs.replace(status, fence=shown), core)
    if held is None or shard is None or status.state is not ShardState.ACTIVE or not status.leads:
        return status
    if status.high_watermark < status.log_end_offset:
        return status  # what would be counted could still be lost
    open_now = OpenTransactions(*held, *shard.machine.open_transactions(NAMES_MAX))
    return msgspec.structs.replace(status, open_transactions=open_now)


def _with_role(status: ReplicaStatus, core: ReplicaCore) -> ReplicaStatus:
    """Add what the protocol core knows. A candidate that promised its epoch to itself counts as a leader that loads."""
    leading_epoch = core.leading_epoch
    if leading_epoch < 0 and core.is_electing:
        leading_epoch = core.promise.epoch
    state = status.state
    if leading_epoch >= 0 and not (core.is_active and state in OPEN_STATES):
        state = ShardState.LOADING  # a shard whose leader is elected again keeps its state, and is held
    sets = core.log.sets
    return msgspec.structs.replace(
        status,
        state=state,
        role=_role(core, leading_epoch),
        leader_epoch=leading_epoch,
        high_watermark=max(status.high_watermark, core.commit_point),
        replicas=sets.replicas if sets is not None else (),
        previous_replicas=sets.previous_replicas if sets is not None else (),
        sets_committed=sets is not None and core.commit_point > core.log.sets_offset,
        needs_higher_epoch=core.needs_higher_epoch,
        followers=tuple(FollowerStatus(*follower) for follower in core.followers),
    )


def _role(core: ReplicaCore, leading_epoch: int) -> ReplicaRole:
    if leading_epoch >= 0:
        return ReplicaRole.LEADER
    return ReplicaRole.FOLLOWER if core.live_leader else ReplicaRole.NONE


def _unreadable_replica(partition: int, damage: str) -> ReplicaStatus:
    return ReplicaStatus(
        partition,
        ShardState.FAILED,
        used=True,
        log_end_offset=-1,
        reason=FailureReason.LOG_DAMAGED,
        message=damage,
    )
