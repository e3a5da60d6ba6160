"""One replica as the pod API shows it."""

from __future__ import annotations

from muster_coordinator.podapi.models import PartitionStatus
from muster_coordinator.shard.manager import ShardManager
from muster_coordinator.shard.states import FailureReason, ShardState

__all__ = ["partition_status"]


def partition_status(manager: ShardManager, partition: int) -> PartitionStatus | None:
    """None: no replica is here. A directory that is none because its promise cannot be read has no log id."""
    damage = manager.damage.get(partition, "")
    replica = manager.replicas.get(partition)
    if replica is None:
        return _unreadable_replica(partition, damage) if damage else None
    shard = manager.shards.get(partition)
    leads = shard is not None and shard.state in (ShardState.LOADING, ShardState.ACTIVE)
    state = shard.state if shard is not None else ShardState.INITIAL
    reason, message = (shard.reason, shard.message) if shard is not None else ("", "")
    if damage:
        state, reason, message = ShardState.FAILED, FailureReason.LOG_DAMAGED, damage
    return PartitionStatus(
        partition=partition,
        state=state.value,
        role="leader" if leads else "none",
        epoch=replica.promised.epoch,
        leader_epoch=shard.epoch if shard is not None and leads else -1,
        log_id=replica.log_id,
        used=not replica.is_open or not replica.never_used,
        log_end_offset=replica.end_offset if replica.is_open else -1,
        high_watermark=shard.high_watermark if shard is not None else -1,
        reason=reason,
        message=message,
        groups=sum(shard.coordinator.group_counts().values()) if shard is not None else 0,
    )


def _unreadable_replica(partition: int, damage: str) -> PartitionStatus:
    return PartitionStatus(
        partition,
        ShardState.FAILED.value,
        used=True,
        log_end_offset=-1,
        reason=FailureReason.LOG_DAMAGED,
        message=damage,
    )
