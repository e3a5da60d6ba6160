"""What a replica serves: the shard while it leads, a warm standby while it follows.

``load`` makes a shard of the standby, ``end`` makes a standby of the shard. A state that holds records that are not
committed is kept for as long as the log holds them too; when the log is cut, it is built anew from checkpoint and log.
Source: replication.md, "Election" (4), "Resignation".
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import structlog

from muster_coordinator.groups.coordinator import GroupCoordinator
from muster_coordinator.log.errors import DamagedLogError
from muster_coordinator.pod.runtime import Runtime
from muster_coordinator.replica.standby import NOTHING, Standby
from muster_coordinator.replica.stored import StoredReplica
from muster_coordinator.replication import effects as fx
from muster_coordinator.replication.messages import Batch
from muster_coordinator.shard.shard import Shard
from muster_coordinator.states import LEADING_STATES, FailureReason, ShardState

__all__ = ["Role"]

logger = structlog.get_logger(__name__)


class Role:
    """``shard``: None while this replica does not lead. ``generation`` changes when a leadership ends.

    ``on_loaded`` hears the epoch of a ``load`` that is done, ``on_load_failed`` epoch and error of one that failed;
    ``on_error`` of a log that turns out to be damaged meanwhile.
    """

    def __init__(
        self,
        replica: StoredReplica,
        runtime: Runtime,
        on_loaded: Callable[[int], None],
        on_load_failed: Callable[[int, Exception], None],
        on_error: Callable[[DamagedLogError], None],
    ) -> None:
        self.shard: Shard | None = None
        self.generation = 0
        self._replica = replica
        self._partition = replica.partition
        self._runtime = runtime
        self._on_loaded = on_loaded
        self._on_load_failed = on_load_failed
        self._on_error = on_error
        self._standby: Standby | None = None  # while the shard is LOADING: what loads its state
        self._loading: asyncio.Task[None] | None = None

    # -- following ----------------------------------------------------------------------------------------------------

    def follow(self, commit_point: int, leader: str) -> None:
        """A follower replays up to there, in the background. What failed here while it led is over once there is a
        ``leader``.
        """
        if self.shard is None and leader:
            self._forget_failed()
        if self.shard is None and commit_point >= 0:
            if self._standby is None or not self._standby.fits:
                self._drop_standby()
                self._standby = self._new_standby(self._runtime.new_coordinator())
            self._standby.follow(commit_point)

    def _forget_failed(self) -> None:
        failed = self._runtime.shards.pop(self._partition, None)
        if failed is not None:
            failed.close("another replica leads")

    def arrived(self, start: int, batches: Sequence[Batch]) -> None:
        """A follower's log, which ended at ``start``, got ``batches``."""
        if self._standby is not None:
            self._standby.arrived(start, batches)

    def log_changes(self) -> None:
        """What was loaded may be more than the log holds soon."""
        self.generation += 1
        self.end("another log was better")
        self._drop_standby()

    def _new_standby(self, coordinator: GroupCoordinator, replayed: int = NOTHING) -> Standby:
        runtime = self._runtime
        return Standby(self._replica, coordinator, runtime.metrics, runtime.load_turns, self._on_error, replayed)

    def _drop_standby(self) -> None:
        standby, self._standby = self._standby, None
        if standby is not None:
            standby.stop()

    @property
    def state_at_rest(self) -> tuple[GroupCoordinator, int] | None:
        """The state, and up to which offset it is that of the log, which may lie above the commit point. For whoever
        looks at it before the event loop goes on. None while it is being built.
        """
        shard, standby = self.shard, self._standby
        if shard is not None:
            return (shard.coordinator, self._replica.end_offset) if shard.state is ShardState.ACTIVE else None
        return (standby.coordinator, standby.replayed) if standby is not None and standby.is_at_rest else None

    # -- leading ------------------------------------------------------------------------------------------------------

    def load(self, epoch: int) -> None:
        """Replay everything up to the log's end; what is replayed already stays. ``on_loaded`` follows."""
        shard = self.shard
        if shard is not None and shard.state is ShardState.ACTIVE:  # held
            self._on_loaded(epoch)
            return
        self.end(f"superseded by epoch {epoch}", log_stands=True)
        standby = self._standby
        if standby is None or standby.failed or not standby.fits:
            self._drop_standby()
            standby = self._standby = self._new_standby(self._runtime.new_coordinator())
        shard = self._new_shard(standby.coordinator, epoch)
        started_ms = self._runtime.clock.monotonic_ms()
        try:
            loaded = standby.load_at_once()
        except Exception as error:
            self._load_failed(shard, error)
            return
        if loaded:
            self._loaded(shard, started_ms)
        else:
            self._loading = self._runtime.spawn(self._load_rest(shard, standby, started_ms))

    def _new_shard(self, coordinator: GroupCoordinator, epoch: int) -> Shard:
        runtime = self._runtime
        before = runtime.shards.get(self._partition)
        if before is not None:
            before.close(f"superseded by epoch {epoch}")
        shard = Shard(
            self._replica,
            coordinator,
            epoch=epoch,
            scheduler=runtime.turns,
            events=runtime.shard_events,
            clock=runtime.clock,
            metrics=runtime.metrics,
            commit_timeout_ms=runtime.commit_timeout_ms,
        )
        self.shard = runtime.shards[self._partition] = shard
        shard.start_loading()
        return shard

    async def _load_rest(self, shard: Shard, standby: Standby, started_ms: int) -> None:
        try:
            await standby.load()
        except Exception as error:
            self._load_failed(shard, error)
        else:
            self._loaded(shard, started_ms)

    def _loaded(self, shard: Shard, started_ms: int) -> None:
        if self.shard is shard:
            metrics = self._runtime.metrics
            metrics.loads += 1
            metrics.load_time.observe(self._runtime.clock.monotonic_ms() - started_ms)
            self._on_loaded(shard.epoch)

    def _load_failed(self, shard: Shard, error: Exception) -> None:
        if self.shard is not shard:
            return
        logger.error("load_failed", partition=self._partition, exc_info=error)
        self._runtime.metrics.load_failures += 1
        self.shard = None
        self._drop_standby()
        if isinstance(error, DamagedLogError):
            shard.fail(FailureReason.LOG_DAMAGED, str(error))
        else:
            shard.fail(FailureReason.LOAD_FAILED, f"{type(error).__name__}: {error}")
        self._on_load_failed(shard.epoch, error)

    def stepped_down(self, effect: fx.SteppedDown) -> None:
        """An ACTIVE shard that was elected again keeps what is loaded, and the requests that wait."""
        self.generation += 1
        shard = self.shard
        if effect.elected_again and shard is not None and shard.state is ShardState.ACTIVE:
            shard.hold()
        else:
            self.end(effect.reason, log_stands=True)

    def end(self, reason: str, *, log_stands: bool = False) -> None:
        """Answer NOT_COORDINATOR to all that waits, if this replica leads or is about to. ``log_stands``: no write
        failed, so the log holds all that was appended, committed or not.
        """
        shard, standby = self.shard, self._standby
        if shard is None:
            return
        log_end = self._replica.end_offset
        log_stands = log_stands or shard.high_watermark >= log_end
        leads = shard.state in LEADING_STATES
        if leads and shard.is_opened:
            standby = self._new_standby(shard.coordinator, log_end)
        self.release()
        if self._runtime.shards.get(self._partition) is shard:
            del self._runtime.shards[self._partition]
        shard.close(reason)
        if leads and log_stands:
            self._standby = standby

    def release(self) -> Shard | None:
        """The shard, which is none of this replica's from now on; its state is of no use to a follower."""
        shard, self.shard = self.shard, None
        if shard is not None:
            self.generation += 1
            self._drop_standby()
            loading, self._loading = self._loading, None
            if loading is not None:
                loading.cancel()
        return shard
