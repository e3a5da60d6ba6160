"""The turns of a pod: which shards have work, one durable write for all of them, and when their timers fire.

While the write of a turn is on its way no shard is drained: its answers would wait for that write anyway, and what
comes meanwhile makes one larger batch. A write for an election holds up no turn: when a pod dies, such writes come one
after the other, and the groups of other partitions would have no turn between them. A turn of a pod with many clients
also waits for most of those that came with the turns before, for up to REST_S: half as many turns, each with its write
and its messages to other replicas (ADR 14). Where the operating system syncs, a write costs too little for that.
"""

from __future__ import annotations

import asyncio

from muster_coordinator.log.writer import JournalWriter
from muster_coordinator.replica.ports import InTurn
from muster_coordinator.shard.metrics import ShardMetrics
from muster_coordinator.shard.ports import Clock
from muster_coordinator.shard.shard import Shard
from muster_coordinator.tuning.pacing import Urgency

REST_S = 0.004
"""Longest time in seconds from the start of a turn to the start of the next: what it adds to a commit at most (ADR 14).
"""

MAY_LACK = 4
"""A turn waits until all but one in MAY_LACK of the shards that had work recently have it again. With fewer shards than
that it does not wait: it would gain nothing."""

RECENT = 0.9
"""The weight of a turn in the next one: a shard that stays away is waited for in about ten turns."""


class Turns:
    """Implements `shard.ports.Scheduler` and `replica.ports.Turns`. `writer` calls `write_ended` after each write."""

    def __init__(self, writer: JournalWriter, clock: Clock, metrics: ShardMetrics, rests: bool) -> None:
        """`rests`: between turns of many shards."""
        self._writer = writer
        self._clock = clock
        self._metrics = metrics
        self._rests = rests
        self._dirty: list[Shard] = []
        self._ending: list[InTurn] = []
        self._running = False
        self._staged = False  # something besides the batches of dirty shards waits for the write
        self._scheduled = False
        self._resting: asyncio.TimerHandle | None = None
        self._started_s = 0.0  # of the last turn, on the monotonic clock
        self._shards_recently = 0.0
        self._first_queued_s = 0.0  # when the first shard of the coming turn got work, on the monotonic clock
        self._submitted_s = 0.0  # when the last write began
        self._write = 0  # the number of the write that has what the last turn staged
        self._waiting: list[asyncio.Future[bool]] = []
        self._timers: dict[Shard, tuple[int, asyncio.TimerHandle]] = {}

    # -- work ---------------------------------------------------------------------------------------------------------

    def drain_soon(self, shard: Shard) -> None:
        """`shard` has work: drain it in the coming turn."""
        if not self._dirty:
            self._first_queued_s = self._clock.monotonic_s()
        self._dirty.append(shard)
        if not self._is_held:
            self._run_soon()

    def end_turn_of(self, replica: InTurn) -> None:
        self._ending.append(replica)
        self.write(Urgency.COMMIT)

    def write(self, urgency: Urgency) -> None:
        """Something was staged, or is to be sent to other replicas, by others than shards.

        COMMIT: it goes with the coming turn. ELECTION: it is written at once, and waits neither for a rest nor until
        all shards have drained their queues.
        """
        if self._running:
            return  # the write follows
        if urgency is Urgency.ELECTION:
            if not self._writer.is_writing:
                self._submitted_s = self._clock.monotonic_s()
            self._writer.submit()
            return
        self._staged = True
        if not self._is_held:
            self._run_soon()

    @property
    def _is_held(self) -> bool:
        """The write of the last turn is on its way, or follows that of an election."""
        return self._write > self._writer.ended and self._writer.is_writing

    # -- a turn -------------------------------------------------------------------------------------------------------

    def _run_soon(self) -> None:
        """Now, or when the pod has rested; called again while it rests, now if enough shards have work by then."""
        if self._scheduled:
            return
        loop = asyncio.get_running_loop()
        if self._rests and not self._have_come:
            if self._resting is not None:
                return
            rest_s = self._started_s + REST_S - self._clock.monotonic_s()
            if rest_s > 0:
                self._resting = loop.call_later(rest_s, self.run)
                return
        self._scheduled = True
        loop.call_soon(self.run)

    @property
    def _have_come(self) -> bool:
        """True if no turn has to wait for more shards."""
        recently = self._shards_recently
        return recently < MAY_LACK or len(self._dirty) >= recently - recently / MAY_LACK

    def run(self) -> None:
        """One turn, unless the last one's write is on its way: every shard with work drains its queue, replicas send
        what was appended, then one write follows.
        """
        self._scheduled = False
        if self._resting is not None:
            self._resting.cancel()
            self._resting = None
        if self._is_held or not (self._dirty or self._staged):
            return
        self._staged = False
        self._running = True
        clock = self._clock
        started_s = self._started_s = clock.monotonic_s()
        self._shards_recently = max(len(self._dirty), self._shards_recently * RECENT)
        if self._dirty:
            dirty, self._dirty = self._dirty, []
            now_ms, monotonic_ms = clock.wall_ms(), int(started_s * 1000)
            for shard in dirty:
                shard.drain(now_ms, monotonic_ms)
            ended_s = clock.monotonic_s()
            self._metrics.queue_time.observe((started_s - self._first_queued_s) * 1000)
            self._metrics.processing_time.observe((ended_s - started_s) * 1000)
        while self._ending:
            ending, self._ending = self._ending, []
            for replica in ending:
                replica.end_turn()
        self._running = False
        self._submitted_s = clock.monotonic_s()
        self._write = self._writer.submit()

    # -- writes -------------------------------------------------------------------------------------------------------

    def write_ended(self) -> None:
        """A write is durable and its answers are released. The next turn comes when the sockets have been read once
        more: what waits there makes one larger batch.
        """
        took_s = self._clock.monotonic_s() - self._submitted_s
        self._wake(True)
        if self._dirty or self._staged:
            self._run_soon()
        self._metrics.flush_time.observe(took_s * 1000)

    def storage_recovered(self) -> None:
        """Drops the staged work; work that waits for a write goes on."""
        self._wake(False)

    def next_write(self) -> asyncio.Future[bool]:
        """Done when the write that is on its way has ended, or the next one if there is none. False: the storage failed
        and has recovered, so what was staged is gone.
        """
        waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        return waiter

    def _wake(self, written: bool) -> None:
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(written)

    # -- timers -------------------------------------------------------------------------------------------------------

    def arm_timer(self, shard: Shard, deadline_ms: int) -> None:
        """Call `shard.fire_timers` at `deadline_ms`, unless that happens earlier anyway."""
        armed = self._timers.get(shard)
        if armed is not None:
            if armed[0] <= deadline_ms:
                return
            armed[1].cancel()
        delay_s = max(0, deadline_ms - self._clock.monotonic_ms()) / 1000
        handle = asyncio.get_running_loop().call_later(delay_s, self._fire, shard)
        self._timers[shard] = (deadline_ms, handle)

    def disarm(self, shard: Shard) -> None:
        """`shard` serves no more."""
        armed = self._timers.pop(shard, None)
        if armed is not None:
            armed[1].cancel()

    def _fire(self, shard: Shard) -> None:
        del self._timers[shard]
        shard.fire_timers()
