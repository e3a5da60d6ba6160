"""Opening replicas: at the start of a pod, after failures, and anew where a log is damaged and others have it.

`log_state` is what the protocol core must know of a log: end, epochs, horizon, and the sets that it names. Only those
that may still be cut matter, and the last ones: so nothing is read below what is known to be committed (a checkpoint,
or the cleaner's mark) but the record that names the sets there. Each epoch begins with its leader-change record; a set
record follows the leader-change record of a change closely.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from random import Random

import structlog

from muster_coordinator.log.errors import DamagedLogError
from muster_coordinator.log.segments.partition_log import PartitionLog
from muster_coordinator.pod.data_directory import DataDirectory
from muster_coordinator.pod.events import PodEvents
from muster_coordinator.pod.storage_health import StorageHealth
from muster_coordinator.pod.turns import Turns
from muster_coordinator.pod.workers import PodWorkers
from muster_coordinator.records.batch import CorruptBatchError, read_batch
from muster_coordinator.records.errors import RecordDecodeError, UnsupportedValueVersionError
from muster_coordinator.replica.host import ReplicaHost
from muster_coordinator.replica.received_batches import sets_of
from muster_coordinator.replica.storage_work import all_durable
from muster_coordinator.replica.stored import StoredReplica
from muster_coordinator.replication.log_state import LogState
from muster_coordinator.replication.sets import Sets
from muster_coordinator.tuning.pacing import POLL_S, Urgency

logger = structlog.get_logger(__name__)


class Opening:
    """Gives hosts their cores, one attempt per partition at a time."""

    def __init__(
        self,
        hosts: Mapping[int, ReplicaHost],
        directory: DataDirectory,
        health: StorageHealth,
        turns: Turns,
        workers: PodWorkers,
        events: PodEvents,
        random: Random,
    ) -> None:
        self._hosts = hosts
        self._directory = directory
        self._health = health
        self._turns = turns
        self._workers = workers
        self._events = events
        self._random = random
        self._locks: dict[int, asyncio.Lock] = {}
        self._noted_by: dict[str, int] = {}  # log id -> incarnation that notes the power loss
        self._noting = asyncio.Lock()
        self._rebuilt: set[int] = set()  # partitions whose log is being set aside

    def lock(self, partition: int) -> asyncio.Lock:
        """The lock under which the replica of `partition` is opened, started or removed.

        It is taken before the `log_lock` of the replica's host.
        """
        return self._locks.setdefault(partition, asyncio.Lock())

    async def open(self, host: ReplicaHost) -> None:
        """Recover the log, if that was not done, and take part; not with a replica that was removed meanwhile. Raises
        DamagedLogError, OSError.
        """
        async with self.lock(host.partition):
            is_here = self._hosts.get(host.partition) is host
            if host.core is not None or self._health.cannot_write or not is_here:
                return
            recovered = not host.replica.is_open
            await self._workers.blocking(self._directory.open_log, host.replica)
            if recovered and self._directory.lost_power:
                promised = host.replica.promised
                if promised.used:  # what it writes from now on, no power loss has taken
                    self._noted_by.setdefault(host.replica.log_id, promised.incarnation + 1)
                # The journal may have lost entries in front of others: a later start would take those for this log's.
                host.replica.name_in_journal()
                self._turns.write(Urgency.COMMIT)
            await self._start(host)
            self._health.log_was_tried(host.partition)

    async def _start(self, host: ReplicaHost) -> None:
        """Starts with a core that knows the log as durable: so all that was appended before has to be."""
        await host.storage_ended()
        await all_durable(host.replica, self._turns)
        stopped = self._health.stopped.get(host.partition, "")
        if stopped and not host.replica.stopped:  # it could not be written when that was found
            await self._workers.blocking(host.replica.stop, stopped)
        try:
            state = await self._workers.blocking(log_state, host.replica, self._random.getrandbits(31))
        except DamagedLogError as error:
            self._health.log_damaged(host.partition, error)
            raise
        if host.core is None and not self._health.cannot_write and not self._health.why_idle(host.partition):
            host.start(state)
            if not self._has_noted(host):  # the core before was given up before it had stored that, or there was none
                host.lost_data()

    async def open_all(self) -> None:
        """Recover every log before it is asked for. Each replica takes part as soon as its log is open.

        Where the disk refuses that, `StorageRecovery` calls this again.
        """
        for partition, host in sorted(self._hosts.items()):
            try:
                await self.open(host)
            except DamagedLogError:  # as `StorageHealth.damage` and the status say
                self._health.log_was_tried(partition)
            except OSError as error:
                self._health.log_not_opened(partition, error)
            self._events.partition_changed(partition)
        try:
            await self._workers.blocking(self._directory.salvage_unclaimed)
        except OSError as error:
            logger.error("journaled_batches_not_saved", error=str(error))
        if self._directory.lost_power:
            await self._note_power_loss()

    async def _note_power_loss(self) -> None:
        """Waits until every replica has stored that it lost data: up to then the next start has to find it out again. A
        disk that refuses the note is asked again by `StorageRecovery`: without it that start takes logs for lost that
        are whole.
        """
        hosts = tuple(self._hosts.values())
        for host in hosts:
            while host.core is not None and not self._has_noted(host):  # noqa: ASYNC110
                await asyncio.sleep(POLL_S)
        async with self._noting:
            if not self._directory.lost_power or not all(self._has_noted(host) for host in hosts):
                return
            try:
                await self._workers.blocking(self._directory.power_loss_is_noted)
            except OSError as error:
                self._health.power_loss_not_noted(error)
            else:
                self._health.power_loss_was_noted()

    def _has_noted(self, host: ReplicaHost) -> bool:
        """True also if its log is damaged, which begins anew in any case, or if people have to look at it."""
        if host.partition in self._health.damage or host.partition in self._health.stopped:
            return True
        replica = host.replica
        return replica.is_open and replica.promised.incarnation >= self._noted_by.get(replica.log_id, 0)

    def start_again(self, host: ReplicaHost) -> None:
        """Its core was given up: with one of what is durable."""
        self._workers.spawn(self._start_again(host))

    async def _start_again(self, host: ReplicaHost) -> None:
        try:
            async with self.lock(host.partition):
                await self._start(host)
            if self._directory.lost_power:
                await self._note_power_loss()
        except DamagedLogError as error:
            logger.error("log_not_opened", partition=host.partition, error=str(error))
        except OSError as error:
            self._health.storage_failed(error)

    def leader_heard(self, host: ReplicaHost) -> None:
        """Another replica leads, or is about to, and this one has no core. If the log here is damaged, set it aside:
        the leader fills an empty one.
        """
        health, busy = self._health, self._rebuilt
        if host.partition in health.damage and host.partition not in health.stopped and host.partition not in busy:
            self._rebuilt.add(host.partition)
            self._workers.spawn(self._rebuild(host))

    async def _rebuild(self, host: ReplicaHost) -> None:
        try:
            async with self.lock(host.partition), host.log_lock:
                reason = self._health.damage.get(host.partition)
                if reason is not None and not self._health.cannot_write:
                    logger.warning("log_set_aside", partition=host.partition, reason=reason)
                    host.role.log_changes()
                    await self._workers.blocking(self._directory.begin_anew, host.replica)
                    host.replica.name_in_journal()
                    self._turns.write(Urgency.COMMIT)
                    await self._start(host)
        except (DamagedLogError, OSError) as error:
            logger.error("replica_not_rebuilt", partition=host.partition, error=str(error))
        finally:
            self._rebuilt.discard(host.partition)


def log_state(replica: StoredReplica, copy_mark: int = 0) -> LogState:
    """Blocks. All that the log holds must be durable. Raises DamagedLogError, OSError."""
    log = replica.log
    file = replica.open_checkpoint(None)
    committed = log.cleaned_to.end_offset
    if file is not None:
        committed = max(committed, file.head.offset)
        file.close()
    found: list[tuple[int, Sets]] = []
    entries = log.epochs.entries
    for index in range(len(entries) - 1, -1, -1):
        start = entries[index][1]
        end = entries[index + 1][1] if index + 1 < len(entries) else log.end_offset
        found = _sets_of_epoch(log, max(start, log.start_offset), end) + found
        if found and start <= committed:
            break
    return LogState(log.end_offset, entries, found, log.cleaned_to.tombstone_horizon, copy_mark)


def _sets_of_epoch(log: PartitionLog, start: int, end: int) -> list[tuple[int, Sets]]:
    found: list[tuple[int, Sets]] = []
    for raw in _first_batches(log, start, end):
        try:
            batch = read_batch(raw)
            sets = sets_of(batch) if batch.is_control else None
        except (CorruptBatchError, RecordDecodeError, UnsupportedValueVersionError) as error:
            raise DamagedLogError(log.directory, 0, f"a batch of the epoch that begins at {start}: {error}") from error
        if sets is not None:
            found.append((batch.base_offset, sets))
        if not found or not found[-1][1].previous_replicas:
            break
    return found


def _first_batches(log: PartitionLog, start: int, end: int) -> Iterator[bytes]:
    while start < end:
        start, batches = log.read_range(start, 1).run()
        for base, _, _, data in batches:
            if base < end:
                yield data
