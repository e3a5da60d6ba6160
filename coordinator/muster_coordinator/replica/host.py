"""One replica in a pod: the protocol core, and what carries out its effects over log, journal, peers and shard.

Every event of the core goes through `_event`, and every effect through `_carry`, in order. Storage effects run in
threads and report when they are durable (`storage_work`). Appends are staged, and are durable after the pod's next
journal write. The core of a leader that is alone in its set does not hear of each batch: the commit point is the
durable end of the log, and the core learns of it before its next event. After a failed write, or an exception in the
core, the host drops the core and makes a new one from what is durable. It makes none after a violation of the protocol:
the new core would not know the commit point, and would do what the one before refused.

Duties: replication.md; docs/replication.md, "The host".
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, Protocol

import structlog

from muster_coordinator.calls import CallResult, CallStatus
from muster_coordinator.errors import ErrorCode
from muster_coordinator.log.errors import DamagedLogError
from muster_coordinator.log.segments.partition_log import PartitionLog
from muster_coordinator.records.batch import CorruptBatchError
from muster_coordinator.records.errors import RecordDecodeError, UnsupportedValueVersionError
from muster_coordinator.replica.calls import PendingCalls
from muster_coordinator.replica.early_requests import EarlyRequests
from muster_coordinator.replica.leader_writer import LeaderWriter
from muster_coordinator.replica.load_turns import LoadTurns
from muster_coordinator.replica.log_reads import LogReads
from muster_coordinator.replica.ports import PartitionEvents, Peers, Storage, StorageFailures, Turns, Workers
from muster_coordinator.replica.received_batches import checked
from muster_coordinator.replica.role import Role, ShardFactory
from muster_coordinator.replica.storage_work import StorageWork
from muster_coordinator.replica.stored import StoredReplica
from muster_coordinator.replication import effects as fx
from muster_coordinator.replication.context import ProtocolViolationError
from muster_coordinator.replication.core import ReplicaCore
from muster_coordinator.replication.log_state import LogState
from muster_coordinator.replication.messages import Append, Batch, Message, Seal
from muster_coordinator.replication.settings import ReplicationSettings
from muster_coordinator.shard.metrics import CommitSample, ShardMetrics
from muster_coordinator.shard.ports import Answer, Clock
from muster_coordinator.shard.shard import Shard
from muster_coordinator.states import FailureReason, ShardState
from muster_coordinator.tuning.pacing import Urgency

logger = structlog.get_logger(__name__)

Event = Callable[[ReplicaCore, int], list[fx.Effect]]
"""Takes the core and the monotonic time in ms, returns effects."""


@dataclass(frozen=True)
class HostSettings:
    """`nomination_ms`: a replica that heard neither operator nor leader for this time, up to twice as long, nominates
    itself; 0: never.
    """

    nomination_ms: int = 0
    replication: ReplicationSettings = field(default_factory=ReplicationSettings)


class Opening(Protocol):
    """Gives a replica its core: at the start of the pod, and again after a failure."""

    def start_again(self, host: ReplicaHost) -> None:
        """Make a new core for `host` from what is durable. Its last core was given up."""
        ...

    def leader_heard(self, host: ReplicaHost) -> None:
        """Another replica leads, or is about to, and this one has no core."""
        ...


class ReplicaHost:
    """`core` is None until the log is open, and while writing fails. `learners` are replicas outside the set that get
    the log.
    """

    def __init__(
        self,
        replica: StoredReplica,
        settings: HostSettings,
        *,
        clock: Clock,
        metrics: ShardMetrics,
        peers: Peers,
        workers: Workers,
        storage: Storage,
        turns: Turns,
        log_reads: LogReads,
        shards: ShardFactory,
        load_turns: LoadTurns,
        opening: Opening,
        failures: StorageFailures,
        events: PartitionEvents,
        random: Random,
    ) -> None:
        self.replica = replica
        self.partition = replica.partition
        self.core: ReplicaCore | None = None
        self.learners: tuple[str, ...] = ()
        self.role = Role(replica, shards, load_turns, workers, clock, metrics, self)
        self.early = EarlyRequests()
        self.log_lock = asyncio.Lock()
        """Held by background work on the files of the log, and by cuts and swaps."""
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        self._peers = peers
        self._workers = workers
        self._storage = storage
        self._turns = turns
        self._log_reads = log_reads
        self._opening = opening
        self._failures = failures
        self._events = events
        self._random = random
        self._effects: deque[fx.Effect] = deque()
        self._carrying = False
        self._changed = False  # something that a status shows
        self._has_left = False  # as the last status shows it
        self._is_electing = False  # likewise
        self._turn_due = False
        self._stored = False  # the storage effect that was carried out is done, and the core does not know it yet
        self._work: StorageWork | None = None
        self._calls = PendingCalls()
        self._sample = CommitSample(metrics.commit_time)

    @property
    def may_tend(self) -> bool:
        """Cleaner, checkpoints and archive may look at it: the log is open, something is known to be committed."""
        return self.replica.is_open and self.commit_point >= 0

    @property
    def shard(self) -> Shard | None:
        """The shard, while this replica leads or is about to."""
        return self.role.shard

    @property
    def alone(self) -> bool:
        """This replica leads, is its whole set, and no other replica gets its log."""
        writer = self.role.writer
        return writer is not None and writer.is_alone

    @property
    def is_electing(self) -> bool:
        return self.core is not None and self.core.is_electing

    @property
    def generation(self) -> int:
        """Changes when the log was cut or replaced, and when a leadership ended. Background work on the log or the
        state gives up then.
        """
        return self.role.generation

    @property
    def commit_point(self) -> int:
        """The end of what this replica knows to be committed; -1: it knows of nothing."""
        if self.shard is not None:
            return self.shard.high_watermark
        return self.core.commit_point if self.core is not None else -1

    @property
    def log_wanted(self) -> bool:
        """Background work that holds `log_lock` should release it: for a cut, a swap, or an election's load, which a
        cleaned log would stop.
        """
        shard = self.shard
        loads = shard is not None and shard.state is ShardState.LOADING
        return loads or self.core is None or (self._work is not None and self._work.wants_log)

    def cleaned(self) -> None:
        """The log's tombstone horizon may have moved, for which nothing was removed yet, or segments were replaced."""
        if self.core is not None:
            self.core.log.cleaned(self.replica.log.cleaned_to.tombstone_horizon)

    # -- life of the core ---------------------------------------------------------------------------------------------

    def start(self, log: LogState) -> None:
        """The log is open, and all of it is durable: take part."""
        period = self._settings.nomination_ms
        now_ms = self._clock.monotonic_ms()
        self.core = ReplicaCore(
            self.partition,
            self.replica.log_id,
            self.replica.promise,
            log,
            now_ms,
            self._settings.replication,
            partial(self._random.randint, period, 2 * period) if period else None,
            may_nominate=lambda: not self._storage.why_full(),
        )
        self._work = StorageWork(
            self.replica,
            self._storage,
            self._turns,
            self._workers,
            self._storage_done,
            self.log_lock,
            self._clock.monotonic_s,
        )
        if self.learners:
            self._event(ReplicaCore.set_learners, self.learners)
        self._events.partition_changed(self.partition)

    def give_up(self, reason: str, status: CallStatus = CallStatus.CANNOT_WRITE) -> None:
        """Drop the core: until the next `start` this replica promises, acks and leads nothing."""
        core, self.core = self.core, None
        if core is None:
            return
        if self._work is not None:
            self._work.stop()
        self._effects.clear()
        self._stored = False
        self.role.end(reason)
        self.early.refuse(ErrorCode.NOT_COORDINATOR)
        self._calls.end_all(CallResult(self.partition, status, core.promise.epoch, reason, core.log_id))

    async def storage_ended(self) -> None:
        """Wait until the storage effect of the last core has ended: promise and log do not change any more then."""
        if self._work is not None:
            await self._work.ended()

    def failed(self, error: Exception) -> None:
        """A defect, or the disk: what the core knows may not be what is durable."""
        logger.error("replica_failed", partition=self.partition, exc_info=error)
        if isinstance(error, DamagedLogError):
            self._failures.log_damaged(self.partition, error)
            self.give_up(str(error), CallStatus.DAMAGED)
        elif isinstance(error, OSError):
            self._failures.storage_failed(error)
        elif isinstance(error, ProtocolViolationError):
            self._stop(str(error))
        else:
            self.give_up(f"{type(error).__name__}: {error}", CallStatus.INVALID)
            self._opening.start_again(self)
        self._events.partition_changed(self.partition)

    def _stop(self, reason: str) -> None:
        """Keeps the replica from taking part until people have looked at it. That is stored here and now, also on a
        slow disk: a process that ended before would be followed by one that knows of nothing. The core had no storage
        effect under way.
        """
        self.give_up(reason, CallStatus.DAMAGED)
        self._failures.replica_stopped(self.partition, reason)
        try:
            self.replica.stop(reason)
        except OSError as error:
            self._failures.storage_failed(error)

    # -- events -------------------------------------------------------------------------------------------------------

    def _event(self, event: Callable[..., list[fx.Effect]], *arguments: object) -> None:
        """`event` of the core, or an `Event`, with `arguments` and the time."""
        core = self.core
        if core is None:
            return
        now_ms = self._clock.monotonic_ms()
        try:
            if self.alone:
                log = self.replica.log
                self._carry(core.advance_alone(log.end_offset, log.journaled_end, now_ms))
            self._carry(event(core, *arguments, now_ms))
        except Exception as error:
            self.failed(error)

    def receive(self, message: Message) -> None:
        """Takes a message from another replica of the partition."""
        if message.to != self.replica.log_id:
            return
        if self.core is None:
            if isinstance(message, Append | Seal):
                self._opening.leader_heard(self)
            return
        try:
            message = checked(message)
        except (CorruptBatchError, RecordDecodeError, UnsupportedValueVersionError) as error:
            logger.error("message_dropped", partition=self.partition, sender=message.sender, error=str(error))
            return
        self._event(ReplicaCore.receive, message)

    def disconnected(self, log_id: str) -> None:
        if self.core is not None and log_id == self.core.promise.leader:
            self._event(ReplicaCore.disconnected, log_id)

    def operator_heard(self) -> None:
        if self.core is not None:
            self.core.operator_heard(self._clock.monotonic_ms())

    def set_learners(self, learners: tuple[str, ...]) -> None:
        if learners != self.learners:
            self.learners = learners
            self._event(ReplicaCore.set_learners, learners)

    def tick(self) -> None:
        """Every 50 ms. A follower replays what was committed since, but nothing of a log that is about to be replaced:
        the new one may lack tombstones and markers, and replayed behind them the state would keep what they ended.
        """
        self._event(ReplicaCore.tick)
        if self.core is None:
            self._settle_early()
        core, work = self.core, self._work
        if core is None or not self.replica.is_open:
            return
        if work is not None and not work.changes_log:
            self.role.follow(core.commit_point, core.live_leader)
        if core.has_left != self._has_left:
            self._has_left = core.has_left
            self._events.partition_changed(self.partition)

    def lost_data(self) -> None:
        self._event(ReplicaCore.lost_data)

    @property
    def open_log(self) -> PartitionLog | None:
        return self.replica.log_or_none

    def log_durable(self, end_offset: int) -> None:
        """A journal write is done that had records of this log. Called by the writer for each log of the write."""
        log = self.replica.log_or_none
        if log is not None:
            log.journaled_end = end_offset
        shard = self.role.shard
        if self.alone and shard is not None:
            shard.parked.committed(end_offset)
            return
        self._event(ReplicaCore.log_durable, end_offset)

    def end_turn(self) -> None:
        """Everything of this turn was appended: push it."""
        self._turn_due = False
        self._event(ReplicaCore.end_turn)

    def _turn_soon(self) -> None:
        if not self._turn_due:
            self._turn_due = True
            self._turns.end_turn_of(self)

    # -- calls --------------------------------------------------------------------------------------------------------

    def call(self, make: Callable[[int], Event]) -> asyncio.Future[CallResult]:
        """An election or a resignation; the answer comes when it has ended."""
        call, answer = self._calls.begin()
        self._event(make(call))
        return answer

    def _call_ended(self, ended: fx.CallEnded) -> None:
        self._calls.end(ended)

    # -- clients ------------------------------------------------------------------------------------------------------

    def submit_early(self, request: Any, answer: Answer) -> None:
        """A request of a client while no shard is here that takes it."""
        self.early.add(request, answer, self._clock.monotonic_ms())
        self._settle_early()

    # -- effects ------------------------------------------------------------------------------------------------------

    def _carry(self, effects: list[fx.Effect]) -> None:
        """Carry out, in order; what an effect brings about comes behind."""
        self._effects.extend(effects)
        if self._carrying:
            return
        self._carrying = True
        try:
            while self._effects:
                effect = self._effects.popleft()
                _CARRIED_OUT_BY[type(effect)](self, effect)
        finally:
            self._carrying = False
        self._settle()
        if self._stored:
            self._stored = False
            self._storage_done(None)

    def _settle(self) -> None:
        """Does after an event what follows from the role that the replica has now."""
        core, shard = self.core, self.shard
        if core is None:
            return
        if shard is not None and core.leading_epoch < 0 and not core.is_candidate:
            self.role.end("the election failed")
            shard = None
        self._settle_early()
        if self.role.writer is not None:
            self.role.writer.core_changed()
        if core.is_electing != self._is_electing:  # an election that fails has no other effect
            self._is_electing = core.is_electing
            self._changed = True
        if self._changed:
            self._changed = False
            self._events.partition_changed(self.partition)

    def _settle_early(self) -> None:
        """Settle the early requests by the state that the replica has now."""
        if not self.early:
            return
        core = self.core
        electing = core is not None and core.is_candidate
        led_elsewhere = core is not None and bool(core.live_leader)
        self.early.settle(self.shard, electing=electing, led_elsewhere=led_elsewhere, now_ms=self._clock.monotonic_ms())

    def _send(self, effect: fx.Send) -> None:
        self._peers.send(self.partition, effect.message)

    def _store(self, effect: fx.StorageEffect) -> None:
        if self._work is not None:
            if not isinstance(effect, fx.StorePromise | fx.StartCopy):
                self.role.log_changes()
            self._stored = self._work.begin(effect)

    def _storage_done(self, error: BaseException | None) -> None:
        self._changed = True
        if error is not None:
            self.failed(error if isinstance(error, Exception) else RuntimeError(repr(error)))
        else:
            self._event(ReplicaCore.storage_done)

    def _append_range(self, effect: fx.AppendRange) -> None:
        if effect.to_copy:
            assert self._work is not None
            self._work.append_to_copy(effect)
            return
        self.role.end("another log was better")
        self.role.arrived(self.replica.end_offset, effect.batches)
        self.replica.append_received(effect.batches, effect.end)
        core = self.core
        of_election = (core is not None and core.is_candidate) or any(batch.sets for batch in effect.batches)
        self._turns.write(Urgency.ELECTION if of_election else Urgency.COMMIT)

    def _read_log(self, effect: fx.ReadLog) -> None:
        core, generation = self.core, self.generation

        def read(end: int, batches: list[Batch], error: Exception | None) -> None:
            if self.core is not core:
                return
            if error is None:
                self._event(ReplicaCore.log_read, effect.ticket, end, batches)
            elif self.generation == generation:  # else the log was cut or swapped meanwhile
                self.failed(error)

        self._log_reads.read(self.replica, effect, read)

    # -- leading ------------------------------------------------------------------------------------------------------

    def _load(self, effect: fx.Load) -> None:
        core, replica = self.core, self.replica
        assert core is not None
        self.role.load(
            effect.epoch,
            LeaderWriter(
                self.partition, replica.log, replica.journal, core, self._clock, self._sample, self._turn_soon
            ),
        )

    def loaded(self, epoch: int) -> None:
        self._event(ReplicaCore.loaded, epoch)

    def log_damaged(self, error: DamagedLogError) -> None:
        self.failed(error)

    def load_failed(self, epoch: int, error: Exception) -> None:
        if isinstance(error, DamagedLogError):
            self.failed(error)
        else:
            self._event(ReplicaCore.load_failed, epoch, f"{type(error).__name__}: {error}")

    def _append_leader_change(self, effect: fx.AppendLeaderChange) -> None:
        """Appends the record with what the requests append that wait for it, and at once: the coming turn is for all
        shards.
        """
        shard, writer, clock = self.role.shard, self.role.writer, self._clock
        if shard is None or writer is None:
            return
        now_ms = clock.monotonic_ms()
        writer.append_leader_change(effect.epoch, effect.sets, clock.wall_ms())
        shard.open_epoch(effect.epoch)
        self._settle_early()
        shard.drain(clock.wall_ms(), now_ms)
        self.end_turn()
        self._turns.write(Urgency.ELECTION)

    def _append_replica_set(self, effect: fx.AppendReplicaSet) -> None:
        if self.role.writer is not None:
            self.role.writer.append_replica_set(effect.epoch, effect.replicas, self._clock.wall_ms())

    def _active(self, effect: fx.Active) -> None:
        if self.shard is not None:
            self.shard.activate()
        self._metrics.leaderships += 1
        self._changed = True

    def _stepped_down(self, effect: fx.SteppedDown) -> None:
        self._changed = True
        self._metrics.step_downs += 1
        self._sample.forget()
        self.role.stepped_down(effect)

    def state_changed(self, shard: Shard) -> None:
        """A shard of this replica has another state. One that FAILED must not lead on with what is in memory."""
        if shard.state is ShardState.FAILED and shard is self.shard:
            self.role.release()
            self.give_up(shard.message)
            if shard.reason != FailureReason.CANNOT_WRITE:  # else when the storage has recovered
                self._opening.start_again(self)
        self._events.partition_changed(self.partition)

    def storage_failed(self, error: Exception) -> None:
        """The shard could not append."""
        self._failures.storage_failed(error)

    def _commit_point_moved(self, effect: fx.CommitPointMoved) -> None:
        if self.shard is not None:
            self.shard.parked.committed(effect.offset)
            self._sample.committed(effect.offset, self._clock.monotonic_s())

    def _reads_confirmed(self, effect: fx.ReadsConfirmed) -> None:
        if self.shard is not None:
            self._metrics.read_rounds += 1
            self.shard.parked.reads_confirmed(effect.round)

    def _note_change(self, effect: fx.Effect) -> None:
        self._changed = True

    def _data_loss_accepted(self, effect: fx.DataLossAccepted) -> None:
        logger.error("data_loss_accepted", partition=self.partition, epoch=effect.epoch, end_offset=effect.end_offset)

    def _discard_checkpoints(self, effect: fx.DiscardCheckpoints) -> None:
        self.role.log_changes()
        self.replica.discard_checkpoint()


_CARRIED_OUT_BY: dict[type, Callable[[ReplicaHost, Any], None]] = {
    fx.Send: ReplicaHost._send,
    fx.StorePromise: ReplicaHost._store,
    fx.Truncate: ReplicaHost._store,
    fx.StartCopy: ReplicaHost._store,
    fx.SwapCopy: ReplicaHost._store,
    fx.AppendRange: ReplicaHost._append_range,
    fx.ReadLog: ReplicaHost._read_log,
    fx.Load: ReplicaHost._load,
    fx.AppendLeaderChange: ReplicaHost._append_leader_change,
    fx.AppendReplicaSet: ReplicaHost._append_replica_set,
    fx.Active: ReplicaHost._active,
    fx.SteppedDown: ReplicaHost._stepped_down,
    fx.CommitPointMoved: ReplicaHost._commit_point_moved,
    fx.ReadsConfirmed: ReplicaHost._reads_confirmed,
    fx.SetFinal: ReplicaHost._note_change,
    fx.DataLossAccepted: ReplicaHost._data_loss_accepted,
    fx.DiscardCheckpoints: ReplicaHost._discard_checkpoints,
    fx.CallEnded: ReplicaHost._call_ended,
}
