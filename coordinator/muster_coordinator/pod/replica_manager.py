"""A pod's partitions: replicas, the calls of the operator, what other pods send, and what a storage failure does.

Each replica has a host (``replication_host``), and all rules of elections, resignations and commits are the protocol
core's in there. Source: replication.md.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import structlog

from muster_coordinator.calls import CallResult, CallStatus
from muster_coordinator.errors import ErrorCode
from muster_coordinator.log.disk import Disk
from muster_coordinator.pod.chores.archiving import Archiver, ArchiverSettings
from muster_coordinator.pod.chores.checkpointing import Checkpointer, CheckpointerSettings
from muster_coordinator.pod.chores.chore import Background
from muster_coordinator.pod.chores.cleaning import CleanerSettings, LogCleaner
from muster_coordinator.pod.data_directory import DamagedLogError, Storage, StorageSettings
from muster_coordinator.pod.opening import Opening
from muster_coordinator.pod.removing import remove
from muster_coordinator.pod.runtime import Runtime
from muster_coordinator.pod.turns import Turns
from muster_coordinator.replica.host import ReplicaHost
from muster_coordinator.replica.ports import Peers
from muster_coordinator.replica.role import ShardFactory
from muster_coordinator.replica.stored import StoredReplica
from muster_coordinator.replication.election import ElectionCall
from muster_coordinator.replication.messages import Message
from muster_coordinator.replication.sets import Sets
from muster_coordinator.shard.metrics import RunCounts, ShardMetrics
from muster_coordinator.shard.ports import Answer, Clock
from muster_coordinator.shard.shard import Shard
from muster_coordinator.state_machine import StateMachine
from muster_coordinator.states import FailureReason, ShardState

logger = structlog.get_logger(__name__)

ELECTION_WAIT_S = 1.0
"""How long an election's caller waits for its end; a longer one is answered LOADING and ends as an event."""

TICK_S = 0.05
"""How often the protocol cores hear that time passes."""
ALONE_TICKS = 20
"""A leader that is alone in its set has nobody to hear: every so many ticks are enough."""
HOUSEKEEPING_S = 0.5
"""How often metrics, disks and promises are looked after."""
STORAGE_RETRY_S = 1.0
"""Between attempts to open the journal again after a write failed."""


class ReplicaManager:
    """Implements `shard.ports.ShardEvents`. All methods run on the event loop; blocking work goes to its threads."""

    def __init__(
        self,
        data_dir: Path,
        disk: Disk,
        storage_settings: StorageSettings,
        clock: Clock,
        peers: Peers,
        new_machine: Callable[[], StateMachine],
        commit_timeout_ms: int,
        cleaner_settings: CleanerSettings | None = None,
        checkpointer_settings: CheckpointerSettings | None = None,
        archiver_settings: ArchiverSettings | None = None,
        self_nomination_ms: int = 0,
    ) -> None:
        """Without their settings, logs are never cleaned, checkpoints are never taken, nothing is archived.

        ``self_nomination_ms``: without operator and leader for so long, up to twice, a replica nominates itself; 0:
        never.
        """
        self.metrics = ShardMetrics()
        self.cannot_write = ""  # why this pod's storage takes no writes; "" when it does
        self.draining = False
        self.on_partition_change: Callable[[int], None] = lambda partition: None
        self.on_pod_change: Callable[[], None] = lambda: None
        self.on_must_restart: Callable[[], None] = lambda: None  # see ``must_restart``
        self._storage = Storage(data_dir, disk, storage_settings, self._durable, self.storage_failed)
        self._turns = Turns(self._storage, clock, self.metrics)
        self.shards: dict[int, Shard] = {}  # partitions that this pod leads, or failed to lead
        self._runtime = runtime = Runtime(
            clock=clock,
            peers=peers,
            storage=self._storage,
            turns=self._turns,
            metrics=self.metrics,
            nomination_ms=self_nomination_ms,
            shard_factory=ShardFactory(
                self.shards, new_machine, self._turns, self, clock, self.metrics, commit_timeout_ms
            ),
            storage_failed=self.storage_failed,
            is_failed=lambda: bool(self.cannot_write),
            partition_changed=lambda partition: self.on_partition_change(partition),
        )
        self._turns.end_turn = runtime.end_turn
        runtime.opening = self._opening = Opening(runtime)
        self.hosts: dict[int, ReplicaHost] = runtime.hosts
        self._locks: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._timers: list[asyncio.TimerHandle] = []
        self._ticks = 0
        self._stopped = False
        self._background: list[Background] = []
        archived_to = None
        if archiver_settings is not None:
            archiver = Archiver(disk, archiver_settings, self.hosts, runtime.blocking)
            archived_to = archiver.archived_to
            self._background.append(archiver)
        if cleaner_settings is not None:
            self._background.append(
                LogCleaner(
                    disk, cleaner_settings, clock, self.hosts, runtime.blocking, self.storage_failed, archived_to
                )
            )
        if checkpointer_settings is not None:
            self._background.append(
                Checkpointer(disk, checkpointer_settings, clock, self.hosts, new_machine, runtime.blocking)
            )

    @property
    def background_counts(self) -> dict[str, RunCounts]:
        """What background work that is switched on has done, by its kind."""
        return {background.kind: background.counts for background in self._background}

    @property
    def replicas(self) -> dict[int, StoredReplica]:
        return self._storage.replicas

    @property
    def damage(self) -> dict[int, str]:
        """Partitions whose replica here must not serve, with the reason."""
        return self._storage.damage

    @property
    def set_aside(self) -> dict[int, str]:
        """Partitions whose log here was damaged and began anew since the pod started, with the damage."""
        return self._storage.set_aside

    @property
    def is_settled(self) -> bool:
        """Nothing goes on in the background that ends by itself: logs are open, loads are done."""
        return self._runtime.is_idle

    # -- life ---------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Recover the journal and find the replicas. Raises OSError: the pod cannot start."""
        await self._runtime.blocking(self._storage.open)
        self._storage.start()
        for replica in self.replicas.values():
            self.hosts[replica.partition] = ReplicaHost(replica, self._runtime)
        self._tick()
        self._housekeep()
        self._runtime.spawn(self._opening.open_all())
        for background in self._background:
            background.start()

    async def stop(self) -> None:
        """Stop serving and write everything out. Promises stay; leadership is not handed over here (see ``drain``)."""
        self._stopped = True
        for timer in self._timers:
            timer.cancel()
        self._runtime.cancel_tasks()
        for background in self._background:
            await background.stop()
        for host in self.hosts.values():
            host.give_up("the pod stops")
            host.role.log_changes()
        for shard in tuple(self.shards.values()):
            shard.close("the pod stops")
        await self._storage.close()
        self._runtime.close()

    def _housekeep(self) -> None:
        for shard in self.shards.values():
            shard.refuse_overdue()
        self._again(HOUSEKEEPING_S, self._housekeep)

    def _tick(self) -> None:
        self._ticks += 1
        for host in self.hosts.values():
            if not host.alone or self._ticks % ALONE_TICKS == 0:
                host.tick()
        self._again(TICK_S, self._tick)

    def _again(self, delay_s: float, call: Callable[[], None]) -> None:
        self._timers = [timer for timer in self._timers if timer.when() > asyncio.get_running_loop().time()]
        self._timers.append(asyncio.get_running_loop().call_later(delay_s, call))

    # -- ShardEvents --------------------------------------------------------------------------------------------------

    def state_changed(self, shard: Shard) -> None:
        if shard.state is ShardState.FAILED:
            self.hosts[shard.partition].shard_failed(shard)
        self.on_partition_change(shard.partition)

    # -- storage events -----------------------------------------------------------------------------------------------

    def _durable(self, ends: dict[int, int]) -> None:
        hosts = self.hosts
        for partition, end_offset in ends.items():
            host = hosts.get(partition)
            if host is not None:
                host.log_durable(end_offset)
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
        for host in self.hosts.values():
            host.give_up(self.cannot_write)
        self.on_pod_change()
        self._runtime.spawn(self._recover_storage())

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
            self._turns.wake()
            logger.info("storage_recovered")
            await self._opening.open_all()
            self.on_pod_change()
            return
        logger.error("storage_needs_a_new_process", reason=self.must_restart)
        self.on_must_restart()

    @property
    def must_restart(self) -> str:
        """Why only a new process may go on: what a failed sync left in the page cache is not what is on the disk."""
        failed = self._storage.failed_logs
        return "; ".join(f"sync of partition {p} failed: {error}" for p, error in failed.items())

    # -- replicas -----------------------------------------------------------------------------------------------------

    async def create_replica(self, partition: int, segment_bytes: int | None = None) -> CallResult:
        """Make sure that a log with a log id and a promise file is here. Idempotent; durable on return."""
        async with self._locks[partition]:
            if self.cannot_write:
                return CallResult(partition, CallStatus.CANNOT_WRITE, message=self.cannot_write)
            try:
                host = await self._create(partition)
            except DamagedLogError as error:
                self.on_partition_change(partition)
                return CallResult(partition, CallStatus.DAMAGED, message=str(error))
            except OSError as error:
                return CallResult(partition, CallStatus.CANNOT_WRITE, message=str(error))
            self.on_partition_change(partition)
            replica = host.replica
            return CallResult(
                partition,
                CallStatus.ACCEPTED,
                epoch=replica.promised.epoch,
                log_id=replica.log_id,
                end_offset=replica.end_offset,
                used=not replica.never_used,
            )

    async def _create(self, partition: int) -> ReplicaHost:
        host = self.hosts.get(partition)
        if host is None:
            replica = await self._runtime.blocking(self._storage.create_replica, partition)
            self._storage.add(replica)
            host = self.hosts[partition] = ReplicaHost(replica, self._runtime)
        await self._opening.open(host)
        return host

    async def remove_replica(self, partition: int, log_id: str, epoch: int) -> CallResult:
        """Delete this log: the leader of ``epoch`` has committed a set without it. Idempotent; durable on return."""
        async with self._locks[partition]:
            host = self.hosts.get(partition)
            if host is None or host.replica.log_id != log_id:
                return CallResult(partition, CallStatus.ACCEPTED, message="it is not here")
            refused = await self._prepare(partition)
            if refused is not None:
                return refused
            try:
                status, message = await remove(host, epoch, self._runtime)
            except OSError as error:
                self.storage_failed(error)
                status, message = CallStatus.CANNOT_WRITE, str(error)
            return self._refused(host, status, message)

    def receive(self, partition: int, message: Message) -> None:
        """From another pod's replica of ``partition``."""
        host = self.hosts.get(partition)
        if host is not None:
            host.receive(message)

    def disconnected(self, log_id: str) -> None:
        """The connection to the pod that has the replica ``log_id`` was closed by it, or refused."""
        for host in self.hosts.values():
            host.disconnected(log_id)

    def submit_early(self, partition: int, request: Any, answer: Answer) -> None:
        """A request for a partition that no shard leads here; one may be about to."""
        host = self.hosts.get(partition)
        if host is not None and host.is_electing:
            host.early.add(request, answer, self._runtime.clock.monotonic_ms())
        else:
            answer.refuse(ErrorCode.NOT_COORDINATOR)

    def set_learners(self, partition: int, log_ids: tuple[str, ...]) -> None:
        """Who else gets the log of ``partition`` while this pod leads it. Does nothing if that is so already."""
        host = self.hosts.get(partition)
        if host is not None:
            host.set_learners(tuple(log_id for log_id in log_ids if log_id != host.replica.log_id))

    def operator_heard(self) -> None:
        """Somebody is there who elects: no replica nominates itself for now."""
        for host in self.hosts.values():
            host.operator_heard()

    # -- elections and resignations -----------------------------------------------------------------------------------

    async def elect(
        self,
        partition: int,
        epoch: int,
        replicas: tuple[str, ...],
        previous_replicas: tuple[str, ...] = (),
        *,
        bootstrap: bool = False,
        force: bool = False,
        allow_data_loss: bool = False,
    ) -> CallResult:
        """onElection. Idempotent within one run of the process; waits a moment for the end."""
        refused = await self._prepare(partition)
        if refused is not None:
            return refused
        host = self.hosts[partition]
        if self.draining:
            return self._refused(host, CallStatus.CANNOT_WRITE, "the pod drains and takes no election")
        failed = self.shards.get(partition)
        if failed is not None and failed.epoch == epoch and failed.state is ShardState.FAILED:
            return self._refused(host, _STATUS_OF_REASON.get(failed.reason, CallStatus.STALE_EPOCH), failed.message)
        election = ElectionCall(
            epoch, Sets(replicas, previous_replicas), host.learners, bootstrap, force, allow_data_loss
        )
        answer = host.call(lambda call: lambda core, now_ms: core.elect(call, election, now_ms))
        await asyncio.wait((answer,), timeout=ELECTION_WAIT_S)
        if not answer.done():
            return self._refused(host, CallStatus.LOADING, "the election is under way")
        return answer.result()

    async def resign(self, partition: int, epoch: int) -> CallResult:
        """onResignation with the new, higher epoch, which is promised to nobody: the first election of it fills the
        name."""
        refused = await self._prepare(partition)
        if refused is not None:
            return refused
        host = self.hosts[partition]
        answer = host.call(lambda call: lambda core, now_ms: core.resign(call, epoch, now_ms))
        return await answer

    async def _prepare(self, partition: int) -> CallResult | None:
        """Why a call cannot even be given to the replica; None: it can."""
        host = self.hosts.get(partition)
        if host is None:
            return CallResult(partition, CallStatus.WRONG_REPLICA, message="no replica of this partition is here")
        try:
            await self._opening.open(host)
        except DamagedLogError as error:
            self.on_partition_change(partition)
            return self._refused(host, CallStatus.DAMAGED, str(error))
        except OSError as error:
            return self._refused(host, CallStatus.CANNOT_WRITE, str(error))
        if self.cannot_write:
            return self._refused(host, CallStatus.CANNOT_WRITE, self.cannot_write)
        return None

    @staticmethod
    def _refused(host: ReplicaHost, status: CallStatus, message: str) -> CallResult:
        replica = host.replica
        return CallResult(replica.partition, status, replica.promised.epoch, message, replica.log_id)


_STATUS_OF_REASON: dict[str, CallStatus] = {
    FailureReason.LOG_DAMAGED: CallStatus.DAMAGED,
    FailureReason.CANNOT_WRITE: CallStatus.CANNOT_WRITE,
}
