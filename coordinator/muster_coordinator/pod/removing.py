"""Deletion of a log that left its set, so that volumes do not fill with what counts for nothing.

Why it is safe: the set of the call's epoch, without this log, is committed. Only an election in a higher epoch can name
the log again, and before anything of it counts there it has promised that epoch: then it is kept. Where it has not,
nothing of it was counted, and it is as good as on a volume that was lost before.
"""

from __future__ import annotations

import structlog

from muster_coordinator.calls import CallStatus
from muster_coordinator.pod.runtime import Runtime
from muster_coordinator.replica.host import ReplicaHost
from muster_coordinator.replica.storage_work import all_durable

__all__ = ["remove"]

logger = structlog.get_logger(__name__)

HIGHER = "it promised a higher epoch"


async def remove(host: ReplicaHost, epoch: int, runtime: Runtime) -> tuple[CallStatus, str]:
    """Durable on return. Raises OSError: the next start goes on with it."""
    partition, replica, core = host.partition, host.replica, host.core
    if replica.promised.epoch > epoch:
        return CallStatus.STALE_EPOCH, HIGHER
    if core is None or core.leading_epoch >= 0 or core.is_candidate:
        return CallStatus.INVALID, "it leads, is a candidate, or is being opened"
    async with host.log_lock:
        host.give_up("its replica left the set")
        await host.storage_ended()
        await all_durable(replica, runtime)
        if replica.promised.epoch > epoch:  # that write was under way
            runtime.opening.start_again(host)
            return CallStatus.STALE_EPOCH, HIGHER
        del runtime.hosts[partition], runtime.storage.replicas[partition]
        runtime.shard_factory.shards.pop(partition, None)
        await runtime.blocking(runtime.storage.remove_replica, replica)
        while runtime.storage.is_writing:
            await runtime.turns.next_write()
        runtime.storage.forget(partition)
    logger.info("replica_removed", partition=partition, log_id=replica.log_id, epoch=epoch)
    runtime.metrics.replicas_removed += 1
    return CallStatus.ACCEPTED, ""
