"""A pod's partitions: replicas, elections and resignations, and what a storage failure does.

The rules are those of replication.md ("Identity", "Promise", "Election", "Resignation"), for sets of one replica so
far.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import structlog

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.coordinator import GroupCoordinator
from muster_coordinator.log.disk import Disk
from muster_coordinator.replication.promise import NOBODY, EpochJumpError, check_epoch
from muster_coordinator.shard.archiving import Archiver, ArchiverSettings
from muster_coordinator.shard.background import Background
from muster_coordinator.shard.checkpointing import Checkpointer, CheckpointerSettings
from muster_coordinator.shard.cleaning import CleanerSettings, LogCleaner
from muster_coordinator.shard.loading import LoadTurns
from muster_coordinator.shard.metrics import ShardMetrics
from muster_coordinator.shard.outcome import Outcome, OutcomeCode
from muster_coordinator.shard.ports import Clock
from muster_coordinator.shard.replica import Replica
from muster_coordinator.shard.shard import Shard
from muster_coordinator.shard.states import FailureReason, ShardState
from muster_coordinator.shard.storage import DamagedLogError, Storage, StorageSettings
from muster_coordinator.shard.turns import Turns

logger = structlog.get_logger(__name__)

ELECTION_WAIT_S = 1.0
"""How long an election's caller waits for ACTIVE; a longer load is answered LOADING and ends as an event."""

HOUSEKEEPING_S = 0.5
STORAGE_RETRY_S = 1.0


class ShardManager:
    """Implements ``shard.ports.Host``. All methods run on the event loop; blocking work goes to its threads."""

    def __init__(
        self,
        data_dir: Path,
        disk: Disk,
        storage_settings: StorageSettings,
        clock: Clock,
        new_coordinator: Callable[[], GroupCoordinator],
        commit_timeout_ms: int,
        cleaner_settings: CleanerSettings | None = None,
        checkpointer_settings: CheckpointerSettings | None = None,
        archiver_settings: ArchiverSettings | None = None,
    ) -> None:
        """Without their settings, logs are never cleaned, checkpoints are never taken, nothing is archived."""
        self.metrics = ShardMetrics()
        self.shards: dict[int, Shard] = {}  # partitions that this pod leads, or failed to lead
        self.cannot_write = ""  # why this pod's storage takes no writes; "" when it does
        self.draining = False
        self.on_partition_change: Callable[[int], None] = lambda partition: None
        self.on_pod_change: Callable[[], None] = lambda: None
        self._clock = clock
        self._new_coordinator = new_coordinator
        self._commit_timeout_ms = commit_timeout_ms
        self._threads = ThreadPoolExecutor(max_workers=8, thread_name_prefix="storage")
        self._storage = Storage(data_dir, disk, storage_settings, self._durable, self.storage_failed)
        self._locks: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._load_turns = LoadTurns()
        self._turns = Turns(self._storage, clock, self.metrics)
        self._activations: dict[Shard, asyncio.Future[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._housekeeping: asyncio.TimerHandle | None = None
        self._stopped = False
        self._background: list[Background] = []
        archived_to = None
        if archiver_settings is not None:
            archiver = Archiver(disk, archiver_settings, self.shards, self._blocking)
            archived_to = archiver.archived_to
            self._background.append(archiver)
        if cleaner_settings is not None:
            self._background.append(
                LogCleaner(disk, cleaner_settings, clock, self.shards, self._blocking, self.storage_failed, archived_to)
            )
        if checkpointer_settings is not None:
            self._background.append(
                Checkpointer(disk, checkpointer_settings, clock, self.shards, new_coordinator, self._blocking)
            )

    @property
    def replicas(self) -> dict[int, Replica]:
        return self._storage.replicas

    @property
    def damage(self) -> dict[int, str]:
        """Partitions whose replica here must not serve, with the reason."""
        return self._storage.damage

    # -- life ---------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Recover the journal and find the replicas. Raises OSError: the pod cannot start."""
        self._loop = asyncio.get_running_loop()
        await self._blocking(self._storage.open)
        self._storage.start()
        self._housekeep()
        self._spawn(self._open_logs())
        for background in self._background:
            background.start()

    async def _open_logs(self) -> None:
        """Recover every log before it is asked for, so that the status is whole and journal files can be given back."""
        for partition, replica in sorted(self.replicas.items()):
            async with self._locks[partition]:
                try:
                    await self._blocking(self._storage.open_log, replica)
                except (DamagedLogError, OSError) as error:
                    logger.error("log_not_opened", partition=partition, error=str(error))
            self.on_partition_change(partition)
        try:
            await self._blocking(self._storage.salvage_unclaimed)
        except OSError as error:
            logger.error("journaled_batches_not_saved", error=str(error))

    async def stop(self) -> None:
        """Stop serving and write everything out. Promises stay; leadership is not handed over here (see ``drain``)."""
        self._stopped = True
        if self._housekeeping is not None:
            self._housekeeping.cancel()
        for task in tuple(self._tasks):
            task.cancel()
        for background in self._background:
            await background.stop()
        for shard in self.shards.values():
            shard.close("the pod stops")
        await self._storage.close()
        self._threads.shutdown(wait=True)

    def _housekeep(self) -> None:
        for shard in self.shards.values():
            shard.refuse_overdue()
        self._housekeeping = self._loop.call_later(HOUSEKEEPING_S, self._housekeep)

    async def _blocking(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await self._loop.run_in_executor(self._threads, function, *arguments)

    def _spawn(self, coroutine: Any) -> None:
        task: asyncio.Task[None] = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- Host: called by shards ---------------------------------------------------------------------------------------

    def flush_soon(self, shard: Shard) -> None:
        self._turns.flush_soon(shard)

    def arm_timer(self, shard: Shard, deadline_ms: int) -> None:
        self._turns.arm_timer(shard, deadline_ms)

    def state_changed(self, shard: Shard) -> None:
        if shard.state is not ShardState.LOADING:
            activation = self._activations.pop(shard, None)
            if activation is not None and not activation.done():
                activation.set_result(None)
        if shard.state in (ShardState.CLOSED, ShardState.FAILED):
            self._turns.disarm(shard)
        self.on_partition_change(shard.partition)

    # -- storage events -----------------------------------------------------------------------------------------------

    def _durable(self, ends: dict[int, int]) -> None:
        for partition, end_offset in ends.items():
            shard = self.shards.get(partition)
            if shard is not None:
                shard.log_durable(end_offset)
        self._turns.write_ended()

    def storage_failed(self, error: Exception) -> None:
        """Disk full or I/O error: nothing more is written and no answer is given for what was not; files stay as they
        are."""
        if self.cannot_write or self._stopped:
            return
        self.cannot_write = f"{type(error).__name__}: {error}"
        self.metrics.storage_failures += 1
        logger.error("storage_failed", error=self.cannot_write)
        for shard in tuple(self.shards.values()):
            shard.fail(FailureReason.CANNOT_WRITE, self.cannot_write, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self.on_pod_change()
        self._spawn(self._recover_storage())

    async def _recover_storage(self) -> None:
        """Come back by itself when there is room. A log whose sync failed needs a new process: see ``must_restart``."""
        while not self.must_restart:
            await asyncio.sleep(STORAGE_RETRY_S)
            try:
                await self._storage.recover()
            except OSError as error:
                logger.warning("storage_still_failing", error=str(error))
                continue
            self.cannot_write = ""
            self._turns.run()
            logger.info("storage_recovered")
            self.on_pod_change()
            return

    @property
    def must_restart(self) -> str:
        """Why only a new process may go on: what a failed sync left in the page cache is not what is on the disk."""
        failed = self._storage.failed_logs
        return "; ".join(f"sync of partition {p} failed: {error}" for p, error in failed.items())

    # -- replicas -----------------------------------------------------------------------------------------------------

    async def create_replica(self, partition: int, segment_bytes: int | None = None) -> Outcome:
        """Make sure that a log with a log id and a promise file is here. Idempotent; durable on return."""
        async with self._locks[partition]:
            if self.cannot_write:
                return Outcome(partition, OutcomeCode.CANNOT_WRITE, message=self.cannot_write)
            try:
                replica = self.replicas.get(partition)
                if replica is None:
                    replica = await self._blocking(self._storage.create_replica, partition)
                    self._storage.add(replica)
                else:
                    await self._blocking(self._storage.open_log, replica)
            except DamagedLogError as error:
                self.on_partition_change(partition)
                return Outcome(partition, OutcomeCode.DAMAGED, message=str(error))
            except OSError as error:
                return Outcome(partition, OutcomeCode.CANNOT_WRITE, message=str(error))
            self.on_partition_change(partition)
            return Outcome(
                partition,
                OutcomeCode.ACCEPTED,
                epoch=replica.promised.epoch,
                log_id=replica.log_id,
                end_offset=replica.end_offset,
                used=not replica.never_used,
            )

    # -- elections ----------------------------------------------------------------------------------------------------

    async def elect(
        self,
        partition: int,
        epoch: int,
        replicas: tuple[str, ...],
        previous_replicas: tuple[str, ...] = (),
        *,
        bootstrap: bool = False,
    ) -> Outcome:
        """onElection. Idempotent within one run of the process; waits a moment for ACTIVE."""
        async with self._locks[partition]:
            outcome = await self._begin_election(partition, epoch, replicas, previous_replicas, bootstrap)
        if outcome.code is not OutcomeCode.LOADING:
            return outcome
        shard = self.shards.get(partition)
        activation = self._activations.get(shard) if shard is not None else None
        if activation is not None:
            await asyncio.wait([activation], timeout=ELECTION_WAIT_S)
        return self._state_of_election(partition, epoch)

    async def _begin_election(
        self,
        partition: int,
        epoch: int,
        replicas: tuple[str, ...],
        previous_replicas: tuple[str, ...],
        bootstrap: bool,
    ) -> Outcome:
        replica = self.replicas.get(partition)
        refused = self._refuse_election(partition, epoch, replica, replicas, previous_replicas)
        if refused is not None or replica is None:
            return refused or Outcome(partition, OutcomeCode.WRONG_REPLICA)
        if replica.leading_epoch == epoch:
            return self._state_of_election(partition, epoch)
        promised = replica.promised
        if epoch < promised.epoch or (epoch == promised.epoch and promised.leader != NOBODY):
            return self._outcome(
                replica,
                OutcomeCode.STALE_EPOCH,
                f"epoch {epoch} is not higher than {promised.epoch}, which was promised",
            )
        try:
            await self._blocking(self._storage.open_log, replica)
        except DamagedLogError as error:
            self.on_partition_change(partition)
            return self._outcome(replica, OutcomeCode.DAMAGED, str(error))
        except OSError as error:
            return self._outcome(replica, OutcomeCode.CANNOT_WRITE, str(error))
        if bootstrap != replica.never_used:
            found = f"it ends at {replica.end_offset}, epoch {promised.epoch} was promised"
            what = "bootstrap of a used log" if bootstrap else "an empty log is only opened by a bootstrap"
            return self._outcome(replica, OutcomeCode.INVALID, f"{what} ({found})")
        shard = self.shards.get(partition)
        if shard is not None:
            shard.hold()  # promising a higher epoch ends the old one; nothing is appended in it any more
        try:
            await self._blocking(promised.store, epoch, replica.log_id)
        except OSError as error:
            self.storage_failed(error)
            return self._outcome(replica, OutcomeCode.CANNOT_WRITE, f"the promise could not be written: {error}")
        replica.leading_epoch = epoch
        self._lead(replica, epoch, replicas, previous_replicas)
        return self._state_of_election(partition, epoch)

    def _refuse_election(
        self,
        partition: int,
        epoch: int,
        replica: Replica | None,
        replicas: tuple[str, ...],
        previous_replicas: tuple[str, ...],
    ) -> Outcome | None:
        """What speaks against an election before anything durable is done; None: nothing."""
        if self.draining:
            return Outcome(partition, OutcomeCode.CANNOT_WRITE, message="the pod drains and takes no election")
        if self.cannot_write:
            return Outcome(partition, OutcomeCode.CANNOT_WRITE, message=self.cannot_write)
        if replica is None:
            return Outcome(partition, OutcomeCode.WRONG_REPLICA, message="no replica of this partition is here")
        if replica.log_id not in replicas and replica.log_id not in previous_replicas:
            return self._outcome(
                replica, OutcomeCode.WRONG_REPLICA, f"log id {replica.log_id} is in no set of the call"
            )
        if len(replicas) != 1 or previous_replicas:
            return self._outcome(replica, OutcomeCode.INVALID, "sets of more than one replica are not supported yet")
        try:
            check_epoch(replica.promised.epoch, epoch)
        except EpochJumpError as error:
            return self._outcome(replica, OutcomeCode.INVALID, str(error))
        return None

    def _lead(
        self, replica: Replica, epoch: int, replicas: tuple[str, ...], previous_replicas: tuple[str, ...]
    ) -> None:
        """The promise is durable: lead in ``epoch``. What an ACTIVE shard has loaded stays."""
        shard = self.shards.get(replica.partition)
        if shard is not None and shard.state is ShardState.ACTIVE:
            shard.advance_epoch(epoch, replicas, previous_replicas)
            return
        if shard is not None:
            shard.close(f"superseded by epoch {epoch}")
        shard = Shard(
            replica,
            self._new_coordinator(),
            epoch=epoch,
            host=self,
            clock=self._clock,
            metrics=self.metrics,
            commit_timeout_ms=self._commit_timeout_ms,
        )
        self.shards[replica.partition] = shard
        self._activations[shard] = self._loop.create_future()
        shard.start_loading()
        self._spawn(self._load(shard, replicas, previous_replicas))

    async def _load(self, shard: Shard, replicas: tuple[str, ...], previous_replicas: tuple[str, ...]) -> None:
        started_ms = self._clock.monotonic_ms()
        log_bytes = shard.replica.log.size
        try:
            await self._load_turns.next_slice(log_bytes)
            for _ in shard.load():
                await self._load_turns.next_slice(log_bytes)
                if shard.state is not ShardState.LOADING:
                    return
            shard.open_epoch(replicas, previous_replicas)
        except DamagedLogError as error:
            self._storage.mark_damaged(shard.partition, error)
            self.metrics.load_failures += 1
            shard.fail(FailureReason.LOG_DAMAGED, str(error))
        except Exception as error:  # whatever it is: a shard that stayed LOADING would never say so
            logger.exception("load_failed", partition=shard.partition)
            self.metrics.load_failures += 1
            shard.fail(FailureReason.LOAD_FAILED, f"{type(error).__name__}: {error}")
        else:
            self.metrics.loads += 1
            self.metrics.load_time.observe(self._clock.monotonic_ms() - started_ms)

    def _state_of_election(self, partition: int, epoch: int) -> Outcome:
        """The answer for (epoch, this pod), as often as it is asked."""
        replica = self.replicas.get(partition)
        shard = self.shards.get(partition)
        if replica is None:
            return Outcome(partition, OutcomeCode.WRONG_REPLICA, message="no replica of this partition is here")
        if shard is not None and shard.epoch == epoch:
            if shard.state is ShardState.ACTIVE:
                return self._outcome(replica, OutcomeCode.ACCEPTED)
            if shard.state is ShardState.LOADING:
                return self._outcome(replica, OutcomeCode.LOADING, "the log is being loaded")
            if shard.reason == FailureReason.LOG_DAMAGED:
                return self._outcome(replica, OutcomeCode.DAMAGED, shard.message)
            if shard.reason == FailureReason.CANNOT_WRITE:
                return self._outcome(replica, OutcomeCode.CANNOT_WRITE, shard.message)
        return self._outcome(
            replica,
            OutcomeCode.STALE_EPOCH,
            f"epoch {epoch} ended here: {shard.reason or 'superseded'}"
            if shard is not None
            else f"epoch {epoch} ended",
        )

    @staticmethod
    def _outcome(replica: Replica, code: OutcomeCode, message: str = "", ended_epoch: int = -1) -> Outcome:
        return Outcome(replica.partition, code, replica.promised.epoch, message, replica.log_id, ended_epoch)

    # -- resignations -------------------------------------------------------------------------------------------------

    async def resign(self, partition: int, epoch: int) -> Outcome:
        """onResignation with the new, higher epoch, which is promised to nobody: the first election of it fills the
        name."""
        async with self._locks[partition]:
            replica = self.replicas.get(partition)
            if replica is None:
                return Outcome(partition, OutcomeCode.WRONG_REPLICA, message="no replica of this partition is here")
            promised = replica.promised
            if epoch == promised.epoch and promised.leader == NOBODY:
                return self._outcome(replica, OutcomeCode.ACCEPTED, ended_epoch=-1)
            if epoch <= promised.epoch:
                return self._outcome(
                    replica, OutcomeCode.STALE_EPOCH, f"epoch {epoch} is not higher than {promised.epoch}"
                )
            try:
                check_epoch(promised.epoch, epoch)
            except EpochJumpError as error:
                return self._outcome(replica, OutcomeCode.INVALID, str(error))
            ended_epoch = self._step_down(partition, f"resigned for epoch {epoch}")
            try:
                await self._blocking(promised.store, epoch, NOBODY)
            except OSError as error:
                self.storage_failed(error)
                return self._outcome(
                    replica, OutcomeCode.CANNOT_WRITE, f"the promise could not be written: {error}", ended_epoch
                )
            replica.leading_epoch = -1
            return self._outcome(replica, OutcomeCode.ACCEPTED, ended_epoch=ended_epoch)

    def _step_down(self, partition: int, reason: str) -> int:
        """End this pod's leadership of ``partition``; returns its epoch, -1 when it did not lead."""
        shard = self.shards.pop(partition, None)
        if shard is None:
            return -1
        led = shard.state in (ShardState.ACTIVE, ShardState.LOADING)
        shard.close(reason)
        return shard.epoch if led else -1

    async def drain(self) -> None:
        """Resign from everything that this pod leads and take no election from now on."""
        self.draining = True
        self.on_pod_change()  # first of all, so that nobody elects this pod for what it gives up now
        led = [s.partition for s in self.shards.values() if s.state in (ShardState.ACTIVE, ShardState.LOADING)]
        await asyncio.gather(*(self.resign(p, self.replicas[p].promised.epoch + 1) for p in led))
        self.on_pod_change()
