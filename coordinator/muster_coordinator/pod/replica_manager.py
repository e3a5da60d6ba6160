"""A pod's partitions: their replicas, the calls of the operator, and what other pods send (Kafka: ReplicaManager).

Each replica has a host, `replica.host.ReplicaHost`. All rules of elections, resignations and commits are those of the
protocol core in there. Source: replication.md.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random, SystemRandom
from typing import Any

from muster_coordinator.calls import CallResult, CallStatus
from muster_coordinator.errors import ErrorCode
from muster_coordinator.log.disk import Disk
from muster_coordinator.log.errors import DamagedLogError
from muster_coordinator.log.writer import JournalWriter
from muster_coordinator.pod.chores.archiving import Archiver, ArchiverSettings
from muster_coordinator.pod.chores.checkpointing import Checkpointer, CheckpointerSettings
from muster_coordinator.pod.chores.chore import Background
from muster_coordinator.pod.chores.cleaning import CleanerSettings, LogCleaner
from muster_coordinator.pod.data_directory import DataDirectory, StorageSettings
from muster_coordinator.pod.events import PodEvents
from muster_coordinator.pod.opening import Opening
from muster_coordinator.pod.partitions import Partitions
from muster_coordinator.pod.removing import Removing
from muster_coordinator.pod.storage_health import StorageHealth
from muster_coordinator.pod.storage_upkeep import SegmentFlush, StorageRecovery
from muster_coordinator.pod.ticks import Ticks
from muster_coordinator.pod.turns import Turns
from muster_coordinator.pod.workers import PodWorkers
from muster_coordinator.replica.early_requests import PATIENCE_MS, may_wait
from muster_coordinator.replica.host import HostSettings, ReplicaHost
from muster_coordinator.replica.load_turns import LoadTurns
from muster_coordinator.replica.log_reads import LogReads
from muster_coordinator.replica.ports import Peers
from muster_coordinator.replica.role import ShardFactory
from muster_coordinator.replication.election import ElectionCall
from muster_coordinator.replication.messages import Message
from muster_coordinator.replication.sets import Sets
from muster_coordinator.replication.settings import ReplicationSettings
from muster_coordinator.shard.metrics import RunCounts, ShardMetrics
from muster_coordinator.shard.ports import Answer, Clock
from muster_coordinator.state_machine import StateMachine
from muster_coordinator.states import FailureReason, ShardState


@dataclass(frozen=True)
class ManagerSettings:
    """Without their settings, logs are never cleaned, checkpoints are never taken, nothing is archived.

    `self_nomination_ms`: a replica that heard neither operator nor leader for this time, up to twice as long, nominates
    itself; 0: never.
    """

    storage: StorageSettings
    commit_timeout_ms: int
    cleaner: CleanerSettings | None = None
    checkpointer: CheckpointerSettings | None = None
    archiver: ArchiverSettings | None = None
    self_nomination_ms: int = 0
    replication: ReplicationSettings = field(default_factory=ReplicationSettings)


class ReplicaManager:
    """All methods run on the event loop; blocking work goes to the pod's threads.

    `hosts` and `shards`: those of `partitions`. `replicas`: what `hosts` host. `draining`: it takes no election.
    """

    def __init__(
        self,
        partitions: Partitions,
        data_dir: Path,
        disk: Disk,
        settings: ManagerSettings,
        clock: Clock,
        peers: Peers,
        new_machine: Callable[[int], StateMachine],
        events: PodEvents,
        must_restart: Callable[[], None],
        random: Random | None = None,
    ) -> None:
        """`must_restart` is called when only a new process may go on with the logs (`StorageHealth.must_restart`).
        `random`: of log ids and of the times of self-nomination; by default the operating system's.
        """
        random = random or SystemRandom()
        self.draining = False
        self.metrics = metrics = ShardMetrics()
        self.hosts, self.shards = partitions.hosts, partitions.shards
        self.health = health = StorageHealth(partitions, metrics, events)
        self._clock = clock
        self._events = events
        self._workers = workers = PodWorkers()
        self._directory = directory = DataDirectory(data_dir, disk, settings.storage, health, random.randbytes)
        self.replicas = directory.replicas
        self._writer = writer = JournalWriter(self.hosts, directory.pace, health.storage_failed, clock.monotonic_s)
        self._turns = turns = Turns(writer, clock, metrics, rests=not settings.storage.flush_os)
        self._opening = opening = Opening(self.hosts, directory, health, turns, workers, events, random)
        self._new_host = partial(
            ReplicaHost,
            settings=HostSettings(settings.self_nomination_ms, settings.replication),
            clock=clock,
            metrics=metrics,
            peers=peers,
            workers=workers,
            storage=directory,
            turns=turns,
            log_reads=LogReads(workers, clock.monotonic_s),
            shards=ShardFactory(self.shards, new_machine, turns, clock, metrics, settings.commit_timeout_ms),
            load_turns=LoadTurns(clock.monotonic_s),
            opening=opening,
            failures=health,
            events=events,
            random=random,
        )
        self._removing = Removing(partitions, directory, writer, turns, workers, opening)
        self._recovery = StorageRecovery(health, self.hosts, writer, turns, opening, events, must_restart)
        self._flush = SegmentFlush(self.hosts, settings.storage.flush_interval_ms, health.storage_failed)
        self._ticks = Ticks(partitions)
        self._chores = self._new_chores(disk, settings, new_machine)
        self._locks: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)

    def _new_chores(
        self, disk: Disk, settings: ManagerSettings, new_machine: Callable[[int], StateMachine]
    ) -> list[Background]:
        hosts, clock, blocking = self.hosts, self._clock, self._workers.blocking
        chores: list[Background] = []
        archived_to = None
        if settings.archiver is not None:
            archiver = Archiver(disk, settings.archiver, hosts, blocking)
            archived_to = archiver.archived_to
            chores.append(archiver)
        if settings.cleaner is not None:
            failed = self.health.storage_failed
            chores.append(LogCleaner(disk, settings.cleaner, clock, hosts, blocking, failed, archived_to))
        if settings.checkpointer is not None:
            chores.append(Checkpointer(disk, settings.checkpointer, clock, hosts, new_machine, blocking))
        return chores

    @property
    def background_counts(self) -> dict[str, RunCounts]:
        """The counts of runs of the chores that are switched on, by their kind."""
        return {chore.kind: chore.counts for chore in self._chores}

    @property
    def is_settled(self) -> bool:
        """Nothing goes on in the background that ends by itself: logs are open, loads are done."""
        return self._workers.is_idle

    # -- life ---------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Recover the journal and find the replicas. Raises OSError: the pod cannot start."""
        await self._workers.blocking(self._directory.open)
        self._writer.start(self._directory.journal, self._turns.write_ended)
        for partition, replica in self.replicas.items():
            self.hosts[partition] = self._new_host(replica)
        self._flush.start()
        self._recovery.start()
        self._ticks.start()
        self._workers.spawn(self._opening.open_all())
        for chore in self._chores:
            chore.start()

    def start_draining(self) -> None:
        """Take no election any more."""
        self.draining = True

    async def stop(self) -> None:
        """Stop serving and write everything out. Promises stay; leadership is not handed over here (see `Pod.drain`).
        Raises OSError: the journal failed.
        """
        self.health.close()
        self._ticks.stop()
        self._recovery.stop()
        self._workers.cancel_tasks()
        for chore in self._chores:
            await chore.stop()
        for host in self.hosts.values():
            host.give_up("the pod stops")
            host.role.log_changes()
        for shard in tuple(self.shards.values()):
            shard.close("the pod stops")
        self._flush.stop()
        await self._writer.close()
        await self._directory.close()
        self._workers.close()

    # -- replicas -----------------------------------------------------------------------------------------------------

    async def create_replica(self, partition: int, segment_bytes: int | None = None) -> CallResult:
        """Make sure that a log with a log id and a promise file is here. Idempotent; durable on return."""
        async with self._locks[partition]:
            if self.health.cannot_write:
                return CallResult(partition, CallStatus.CANNOT_WRITE, message=self.health.cannot_write)
            try:
                host = await self._create(partition)
            except DamagedLogError as error:
                self._events.partition_changed(partition)
                return CallResult(partition, CallStatus.DAMAGED, message=str(error))
            except OSError as error:
                return CallResult(partition, CallStatus.CANNOT_WRITE, message=str(error))
            self._events.partition_changed(partition)
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
            replica = await self._workers.blocking(self._directory.create_replica, partition)
            self.replicas[partition] = replica
            host = self.hosts[partition] = self._new_host(replica)
        await self._opening.open(host)
        return host

    async def remove_replica(self, partition: int, log_id: str, epoch: int, *, is_served: bool = True) -> CallResult:
        """Delete this log if it proves that it does not count. Idempotent; durable on return. `is_served`: clients are
        sent to this partition."""
        async with self._locks[partition]:
            host = self.hosts.get(partition)
            if host is None or host.replica.log_id != log_id:
                return CallResult(partition, CallStatus.ACCEPTED, message="it is not here")
            refused = await self._prepare(partition)
            if refused is not None:
                return refused
            try:
                status, message = await self._removing.remove(host, epoch, is_served=is_served)
            except DamagedLogError as error:
                status, message = CallStatus.DAMAGED, str(error)
            except OSError as error:
                self.health.storage_failed(error)
                status, message = CallStatus.CANNOT_WRITE, str(error)
            self.metrics.replicas_removed += status is CallStatus.ACCEPTED
            return self._refused(host, status, message)

    def receive(self, partition: int, message: Message) -> None:
        """Takes a message from another pod's replica of `partition`."""
        host = self.hosts.get(partition)
        if host is not None:
            host.receive(message)

    def disconnected(self, log_id: str) -> None:
        """The connection to the pod that has the replica `log_id` was closed by it, or refused."""
        for host in self.hosts.values():
            host.disconnected(log_id)

    @property
    def log_ids(self) -> dict[int, str]:
        """Log id of each replica here, by partition."""
        return {partition: replica.log_id for partition, replica in self.replicas.items()}

    def doubled(self, partition: int, pods: str) -> None:
        """`pods` have the log of the replica here: it takes no part until only this pod has it (`pods` is "")."""
        self.health.doubled.pop(partition, None)
        host = self.hosts.get(partition)
        if host is None:
            return
        if pods:
            reason = f"log {host.replica.log_id} is on pods {pods}: remove the volume that is a copy"
            self.health.doubled[partition] = reason
            host.give_up(reason, CallStatus.DAMAGED)
        elif host.replica.is_open:
            self._opening.start_again(host)
        self._events.partition_changed(partition)

    def submit_early(self, partition: int, request: Any, answer: Answer) -> None:
        """A request for a partition that no shard leads here; one may be about to."""
        host = self.hosts.get(partition)
        if host is not None and (host.is_electing or (may_wait(request) and not self.health.why_idle(partition))):
            host.submit_early(request, answer)
        else:
            answer.refuse(ErrorCode.NOT_COORDINATOR)

    def set_learners(self, partition: int, log_ids: tuple[str, ...]) -> None:
        """Names the learners that get the log of `partition` too while this pod leads it; again: does nothing."""
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
        full = self._directory.why_full()
        answer = host.call(lambda call: lambda core, now_ms: core.elect(call, election, now_ms, cannot_write=full))
        await asyncio.wait((answer,), timeout=PATIENCE_MS / 1000)
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
        """The reason why a call cannot even be given to the replica; None: it can."""
        absent = CallResult(partition, CallStatus.WRONG_REPLICA, message="no replica of this partition is here")
        host = self.hosts.get(partition)
        if host is None:
            return absent
        try:
            await self._opening.open(host)
        except DamagedLogError as error:
            self._events.partition_changed(partition)
            return self._refused(host, CallStatus.DAMAGED, str(error))
        except OSError as error:
            return self._refused(host, CallStatus.CANNOT_WRITE, str(error))
        if self.hosts.get(partition) is not host:  # it was removed while this call waited
            return absent
        if self.health.cannot_write:
            return self._refused(host, CallStatus.CANNOT_WRITE, self.health.cannot_write)
        if idle := self.health.why_idle(partition):
            return self._refused(host, CallStatus.DAMAGED, idle)
        return None

    @staticmethod
    def _refused(host: ReplicaHost, status: CallStatus, message: str) -> CallResult:
        replica = host.replica
        return CallResult(replica.partition, status, replica.promised.epoch, message, replica.log_id)


_STATUS_OF_REASON: dict[str, CallStatus] = {
    FailureReason.LOG_DAMAGED: CallStatus.DAMAGED,
    FailureReason.CANNOT_WRITE: CallStatus.CANNOT_WRITE,
}
