"""The role of a replica in its pod: it leads with a shard, or it follows with a warm standby.

`load` makes a shard of the standby, `end` makes a standby of the shard. A state with records that are not committed is
kept as long as the log has these records. When the log is cut, the state is loaded again from checkpoint and log.
Source: replication.md, "Election" (4), "Resignation".
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

import structlog

from muster_coordinator.log.errors import DamagedLogError
from muster_coordinator.partition_numbers import topic_of
from muster_coordinator.replica.leader_writer import LeaderWriter
from muster_coordinator.replica.load_turns import LoadTurns
from muster_coordinator.replica.ports import Workers
from muster_coordinator.replica.standby import NOTHING, Standby
from muster_coordinator.replica.stored import StoredReplica
from muster_coordinator.replication import effects as fx
from muster_coordinator.replication.messages import Batch
from muster_coordinator.shard.metrics import ShardMetrics
from muster_coordinator.shard.ports import Clock, Scheduler, ShardEvents
from muster_coordinator.shard.replayed import ReplayedState
from muster_coordinator.shard.shard import Shard
from muster_coordinator.state_machine import StateMachine
from muster_coordinator.states import LEADING_STATES, FailureReason, ShardState

logger = structlog.get_logger(__name__)


class RoleEvents(ShardEvents[Shard], Protocol):
    """The host of a replica, as its role and its shard see it."""

    def loaded(self, epoch: int) -> None:
        """A `Role.load` is done."""
        ...

    def load_failed(self, epoch: int, error: Exception) -> None:
        """A `Role.load` failed."""
        ...

    def log_damaged(self, error: DamagedLogError) -> None:
        """The standby could not read the log."""
        ...


class ShardFactory:
    """Makes the state machines and shards of one pod. `shards` are those of partitions that this pod leads, or failed
    to lead."""

    def __init__(
        self,
        shards: dict[int, Shard],
        new_machine: Callable[[int], StateMachine],
        scheduler: Scheduler[Shard],
        clock: Clock,
        metrics: ShardMetrics,
        commit_timeout_ms: int,
    ) -> None:
        self.shards = shards
        self._new_machine = new_machine
        self._scheduler = scheduler
        self._clock = clock
        self._metrics = metrics
        self._commit_timeout_ms = commit_timeout_ms

    def new_state(self, partition: int) -> ReplayedState:
        return ReplayedState(self._new_machine(partition))

    def new_shard(
        self, partition: int, state: ReplayedState, writer: LeaderWriter, epoch: int, events: ShardEvents[Shard]
    ) -> Shard:
        """Returns a LOADING shard, and closes the one before it."""
        before = self.shards.get(partition)
        if before is not None:
            before.close(f"superseded by epoch {epoch}")
        shard = self.shards[partition] = Shard(
            partition,
            state,
            writer,
            epoch=epoch,
            scheduler=self._scheduler,
            events=events,
            clock=self._clock,
            metrics=self._metrics,
            commit_timeout_ms=self._commit_timeout_ms,
        )
        shard.start_loading()
        return shard


class Role:
    """`shard`: None while this replica does not lead. `generation` changes when a leadership ends."""

    def __init__(
        self,
        replica: StoredReplica,
        factory: ShardFactory,
        load_turns: LoadTurns,
        workers: Workers,
        clock: Clock,
        metrics: ShardMetrics,
        events: RoleEvents,
    ) -> None:
        self.shard: Shard | None = None
        self.writer: LeaderWriter | None = None
        """The writer to which the shard appends; None while this replica does not lead."""
        self.generation = 0
        self._replica = replica
        self._partition = replica.partition
        self._factory = factory
        self._shards = factory.shards
        self._load_turns = load_turns
        self._workers = workers
        self._clock = clock
        self._metrics = metrics
        self._events = events
        self._standby: Standby | None = None  # while the shard is LOADING: what loads its state
        self._loading: asyncio.Task[None] | None = None

    # -- following ----------------------------------------------------------------------------------------------------

    def follow(self, commit_point: int, leader: str) -> None:
        """Replay up to `commit_point` in the background, if this replica follows. Once another replica is the `leader`,
        a shard that FAILED here is closed.
        """
        if self.shard is None and leader:
            self._forget_failed()
        if self.shard is None and commit_point >= 0:
            if self._standby is None or not self._standby.fits:
                self._drop_standby()
                self._standby = self._new_standby(self._factory.new_state(self._partition))
            self._standby.follow(commit_point)

    def _forget_failed(self) -> None:
        failed = self._shards.pop(self._partition, None)
        if failed is not None:
            failed.close("another replica leads")

    def arrived(self, start: int, batches: Sequence[Batch]) -> None:
        """The log of a follower, which ended at `start`, got `batches`."""
        if self._standby is not None:
            self._standby.arrived(start, batches)

    def log_changes(self) -> None:
        """The log will be cut or replaced: the loaded state may have more than the log."""
        self.generation += 1
        self.end("another log was better")
        self._drop_standby()

    def _new_standby(self, state: ReplayedState, replayed: int = NOTHING) -> Standby:
        return Standby(self._replica, state, self._metrics, self._load_turns, self._events.log_damaged, replayed)

    def _drop_standby(self) -> None:
        standby, self._standby = self._standby, None
        if standby is not None:
            standby.stop()

    @property
    def state_at_rest(self) -> tuple[ReplayedState, int] | None:
        """The state and the offset up to which it is that of the log, which may be above the commit point. It is valid
        until the event loop goes on. None while the state is being loaded.
        """
        shard, standby = self.shard, self._standby
        if shard is not None:
            return (shard.replayed, self._replica.end_offset) if shard.state is ShardState.ACTIVE else None
        return (standby.state, standby.replayed) if standby is not None and standby.is_at_rest else None

    async def is_closed(self) -> bool:
        """True if the log has closed the partition for a re-shard. Reads the log if no state of it is loaded. Raises
        what `Standby.load` raises.
        """
        loaded = self.state_at_rest
        if loaded is not None:
            return loaded[0].is_closed
        standby = self._new_standby(self._factory.new_state(self._partition))
        await standby.load()
        return standby.state.is_closed

    # -- leading ------------------------------------------------------------------------------------------------------

    def load(self, epoch: int, writer: LeaderWriter) -> None:
        """Replay the log to its end. A state that is loaded already is kept. `RoleEvents.loaded` or `.load_failed`
        follows. The shard will append to `writer`.
        """
        shard = self.shard
        if shard is not None and shard.state is ShardState.ACTIVE:  # elected again: it holds, and keeps its writer
            self._events.loaded(epoch)
            return
        self.end(f"superseded by epoch {epoch}", log_is_complete=True)
        standby = self._standby
        if standby is None or standby.failed or not standby.fits:
            self._drop_standby()
            standby = self._standby = self._new_standby(self._factory.new_state(self._partition))
        shard = self.shard = self._factory.new_shard(self._partition, standby.state, writer, epoch, self._events)
        self.writer = writer
        started_ms = self._clock.monotonic_ms()
        try:
            loaded = standby.load_at_once()
        except Exception as error:
            self._load_failed(shard, error)
            return
        if loaded:
            self._loaded(shard, started_ms)
        else:
            self._loading = self._workers.spawn(self._load_rest(shard, standby, started_ms))

    async def _load_rest(self, shard: Shard, standby: Standby, started_ms: int) -> None:
        try:
            await standby.load()
        except Exception as error:
            self._load_failed(shard, error)
        else:
            self._loaded(shard, started_ms)

    def _loaded(self, shard: Shard, started_ms: int) -> None:
        if self.shard is shard:
            self._metrics.loads += 1
            load_time = self._metrics.load_times[topic_of(self._partition).name]
            load_time.observe(self._clock.monotonic_ms() - started_ms)
            self._events.loaded(shard.epoch)

    def _load_failed(self, shard: Shard, error: Exception) -> None:
        if self.shard is not shard:
            return
        logger.error("load_failed", partition=self._partition, exc_info=error)
        self._metrics.load_failures += 1
        self.shard = self.writer = None
        self._drop_standby()
        if isinstance(error, DamagedLogError):
            shard.fail(FailureReason.LOG_DAMAGED, str(error))
        else:
            shard.fail(FailureReason.LOAD_FAILED, f"{type(error).__name__}: {error}")
        self._events.load_failed(shard.epoch, error)

    def stepped_down(self, effect: fx.SteppedDown) -> None:
        """The core no longer leads. An ACTIVE shard that was elected again keeps its state and the waiting requests."""
        self.generation += 1
        shard = self.shard
        if effect.elected_again and shard is not None and shard.state is ShardState.ACTIVE:
            shard.hold()
        else:
            self.end(effect.reason, log_is_complete=True)

    def end(self, reason: str, *, log_is_complete: bool = False) -> None:
        """Refuse all waiting requests with NOT_COORDINATOR, if this replica leads or is about to lead.
        `log_is_complete`: no write failed, so the log has all that was appended, committed or not.
        """
        shard, standby = self.shard, self._standby
        if shard is None:
            return
        log_end = self._replica.end_offset
        log_is_complete = log_is_complete or shard.high_watermark >= log_end
        leads = shard.state in LEADING_STATES
        if leads and shard.is_opened:
            standby = self._new_standby(shard.replayed, log_end)
        self.release()
        if self._shards.get(self._partition) is shard:
            del self._shards[self._partition]
        shard.close(reason)
        if leads and log_is_complete:
            self._standby = standby

    def release(self) -> None:
        """Forget the shard and its state, which a follower cannot use."""
        if self.shard is None:
            return
        self.shard = self.writer = None
        self.generation += 1
        self._drop_standby()
        loading, self._loading = self._loading, None
        if loading is not None:
            loading.cancel()
