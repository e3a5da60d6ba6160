"""Deletion of a log that left its set, so that volumes do not fill with logs that count for nothing.

Whichever caller asks for it, the pod deletes a log only on a proof of its own (ADR 24): the log has the record of a
final set without it, of the epoch that it promised last, and the replica knows that record to be committed. Only an
election in a higher epoch can name the log again, and before anything of it counts there it has promised that epoch:
then the proof is gone. Where it has not, nothing of it was counted, and it is as good as on a
volume that was lost before.

Two logs need no such proof: one that was never used, and one of a partition that a re-shard has closed, by a record in
that very log, and that the pod's clients do not know any more.
"""

from __future__ import annotations

import structlog

from muster_coordinator.calls import CallStatus
from muster_coordinator.log.writer import JournalWriter
from muster_coordinator.pod.data_directory import DataDirectory
from muster_coordinator.pod.opening import Opening
from muster_coordinator.pod.partitions import Partitions
from muster_coordinator.pod.turns import Turns
from muster_coordinator.pod.workers import PodWorkers
from muster_coordinator.replica.host import ReplicaHost
from muster_coordinator.replica.storage_work import all_durable

logger = structlog.get_logger(__name__)

HIGHER = "it promised a higher epoch"
MAY_COUNT = (
    "it may still count: no committed record of the epoch that it promised last names a final set without it, and no"
    " re-shard has replaced its partition"
)


class Removing:
    def __init__(
        self,
        partitions: Partitions,
        directory: DataDirectory,
        writer: JournalWriter,
        turns: Turns,
        workers: PodWorkers,
        opening: Opening,
    ) -> None:
        self._partitions = partitions
        self._directory = directory
        self._writer = writer
        self._turns = turns
        self._workers = workers
        self._opening = opening

    async def remove(self, host: ReplicaHost, epoch: int, *, is_served: bool) -> tuple[CallStatus, str]:
        """Delete the log of `host`, durably on return, unless it may count again. `is_served`: clients are sent to its
        partition. Raises OSError: the next start of the pod goes on with it.
        """
        partition, replica, core = host.partition, host.replica, host.core
        if replica.promised.epoch > epoch:
            return CallStatus.STALE_EPOCH, HIGHER
        if core is None or core.leading_epoch >= 0 or core.is_candidate:
            return CallStatus.INVALID, "it leads, is a candidate, or is being opened"
        is_retired = not is_served and await host.role.is_closed()
        async with self._opening.lock(partition), host.log_lock:
            if host.core is not core or not (replica.never_used or core.has_left or is_retired):
                return CallStatus.INVALID, MAY_COUNT
            if replica.promised.epoch > epoch or core.leading_epoch >= 0 or core.is_candidate:
                return CallStatus.STALE_EPOCH, HIGHER
            host.give_up("its replica left the set")
            await host.storage_ended()
            await all_durable(replica, self._turns)
            if replica.promised.epoch > epoch:  # that write was under way
                self._opening.start_again(host)
                return CallStatus.STALE_EPOCH, HIGHER
            del self._partitions.hosts[partition], self._directory.replicas[partition]
            self._partitions.shards.pop(partition, None)
            await self._workers.blocking(self._directory.remove_replica, replica)
            while self._writer.is_writing:
                await self._turns.next_write()
            self._directory.journal.forget(partition)
        logger.info("replica_removed", partition=partition, log_id=replica.log_id, epoch=epoch)
        return CallStatus.ACCEPTED, ""
