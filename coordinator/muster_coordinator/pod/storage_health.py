"""The unusable parts of a pod's disk: writes that fail, and logs that are damaged."""

from __future__ import annotations

import asyncio

import structlog

from muster_coordinator.errors import ErrorCode
from muster_coordinator.log.errors import DamagedLogError
from muster_coordinator.pod.events import PodEvents
from muster_coordinator.pod.partitions import Partitions
from muster_coordinator.shard.metrics import ShardMetrics
from muster_coordinator.states import FailureReason

logger = structlog.get_logger(__name__)


class StorageHealth:
    """Implements `replica.ports.StorageFailures`.

    `cannot_write`: why the pod's storage takes no writes, "" when it does. `damage`: why the replica of a partition
    must not serve. `stopped`: why people have to look at the replica of a partition. `doubled`: why a replica must take
    no part while another pod has the same log. `set_aside`: the damage of logs that began anew since the pod started.
    `unopened`: why the log of a partition could not be opened, though it is not damaged. `unnoted`: why it could not be
    noted that all logs know of a power loss. `failed`: set while `cannot_write`, `unopened` or `unnoted` says
    something, so that it is to be tried again.
    """

    def __init__(self, partitions: Partitions, metrics: ShardMetrics, events: PodEvents) -> None:
        self.cannot_write = ""
        self.damage: dict[int, str] = {}
        self.stopped: dict[int, str] = {}
        self.doubled: dict[int, str] = {}
        self.set_aside: dict[int, str] = {}
        self.unopened: dict[int, str] = {}
        self.unnoted = ""
        self.failed = asyncio.Event()
        self._partitions = partitions
        self._metrics = metrics
        self._events = events
        self._closed = False

    def storage_failed(self, error: Exception) -> None:
        """Disk full or I/O error: nothing more is written, no answer is given for what was not written, and files stay
        as they are.
        """
        if self.cannot_write or self._closed:
            return
        self.cannot_write = f"{type(error).__name__}: {error}"
        self._metrics.storage_failures += 1
        logger.error("storage_failed", error=self.cannot_write)
        for shard in tuple(self._partitions.shards.values()):
            shard.fail(FailureReason.CANNOT_WRITE, self.cannot_write, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        for host in self._partitions.hosts.values():
            host.give_up(self.cannot_write)
        self.failed.set()
        self._events.pod_changed()

    def recovered(self) -> None:
        """The storage takes writes again."""
        self.cannot_write = ""
        self._tried()
        logger.info("storage_recovered")

    def _tried(self) -> None:
        if not self.cannot_write and not self.unopened and not self.unnoted:
            self.failed.clear()

    def close(self) -> None:
        """The pod stops: a write that fails from now on changes nothing."""
        self._closed = True

    @property
    def must_restart(self) -> str:
        """The reason why only a new process may go on, "" if this one may: what a failed sync left in the page cache is
        not what is on the disk.
        """
        logs = {partition: host.open_log for partition, host in self._partitions.hosts.items()}
        failed = {
            partition: log.failed for partition, log in logs.items() if log is not None and log.failed is not None
        }
        return "; ".join(f"sync of partition {partition} failed: {error}" for partition, error in failed.items())

    def log_damaged(self, partition: int, error: DamagedLogError) -> None:
        logger.error("log_damaged", partition=partition, error=str(error))
        self.damage[partition] = str(error)

    def log_not_opened(self, partition: int, error: OSError) -> None:
        """Disk full or I/O error, when this log was to be recovered. The others of the pod go on."""
        if self.unopened.get(partition) != str(error):
            logger.error("log_not_opened", partition=partition, error=str(error))
        self.unopened[partition] = str(error)
        self.failed.set()

    def log_was_tried(self, partition: int) -> None:
        """It was opened, or is known to be damaged now."""
        self.unopened.pop(partition, None)
        self._tried()

    def power_loss_not_noted(self, error: OSError) -> None:
        """Disk full or I/O error. The replicas take part all the same."""
        if self.unnoted != str(error):
            logger.error("power_loss_not_noted", error=str(error))
        self.unnoted = str(error)
        self.failed.set()

    def power_loss_was_noted(self) -> None:
        self.unnoted = ""
        self._tried()

    def why_idle(self, partition: int) -> str:
        """The reason why the replica of a partition gets no core, though its disk is fine; "": it gets one."""
        return self.stopped.get(partition, "") or self.doubled.get(partition, "")

    def replica_stopped(self, partition: int, reason: str) -> None:
        logger.error("replica_stopped", partition=partition, reason=reason)
        self.stopped[partition] = reason

    def log_began_anew(self, partition: int) -> None:
        """The damaged log was set aside, and an empty one is in its place."""
        self.set_aside[partition] = self.damage.pop(partition, "")
