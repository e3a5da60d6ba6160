"""Carries out the storage effects of one replica: promises, cuts, and a copy of the log. They are durable when
reported.

Threads do this work, except for a promise while the disk is fast: the event loop writes it, as it writes the journal
(ADR 12). An election waits for two promises one after the other, and groups wait for the election.  The core has one
effect under way at a time. Cuts and swaps wait until everything appended is durable, so that no report of an earlier
write follows them, and until no background work uses the log's files.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from muster_coordinator.log.segments.copy import LogCopy
from muster_coordinator.replica.ports import Storage, Turns, Workers
from muster_coordinator.replica.stored import StoredReplica
from muster_coordinator.replication import effects as fx
from muster_coordinator.tuning.pacing import Urgency


async def all_durable(replica: StoredReplica, turns: Turns) -> None:
    """Returns when all that was appended to the log is durable."""
    log = replica.log
    while log.journaled_end != log.end_offset:
        turns.write(Urgency.COMMIT)
        await turns.next_write()


class StorageWork:
    """`done`: called when an effect is durable, or with the error; never after `stop`. `now_s`: a monotonic clock
    in seconds.
    """

    def __init__(
        self,
        replica: StoredReplica,
        storage: Storage,
        turns: Turns,
        workers: Workers,
        done: Callable[[BaseException | None], None],
        log_lock: asyncio.Lock,
        now_s: Callable[[], float],
    ) -> None:
        self._replica = replica
        self._storage = storage
        self._turns = turns
        self._workers = workers
        self._done = done
        self._log_lock = log_lock
        self._now_s = now_s
        self._copy: LogCopy | None = None
        self._horizon = 0  # of the copy
        self._future: asyncio.Future[Any] | None = None
        self.wants_log = False  # a cut or a swap waits for the log's files
        self.changes_log = False
        """A cut or a swap is under way: no state may be made of the log before it."""

    def begin(self, effect: fx.StorageEffect) -> bool:
        """Carry out `effect`. Returns True if it is done already, otherwise `done` is called. Raises OSError."""
        self.changes_log = isinstance(effect, fx.Truncate | fx.SwapCopy)
        match effect:
            case fx.StorePromise(promise=promise) if self._storage.pace.is_fast:
                self._store_promise(promise)
                return True
            case fx.StorePromise(promise=promise):
                self._start(self._workers.blocking(self._replica.store_promise, promise))
            case fx.Truncate(end_offset=end):
                self._start(self._truncate(end))
            case fx.StartCopy():
                self._start(self._start_copy())
            case fx.SwapCopy():
                self._start(self._swap())
        return False

    def stop(self) -> None:
        """The core was given up: the effect that is under way ends without a report."""
        self._done = lambda error: None

    async def ended(self) -> None:
        """Returns when nothing is under way."""
        if self._future is not None:
            await asyncio.wait((self._future,))

    def append_to_copy(self, effect: fx.AppendRange) -> None:
        """Appends to the copy. Raises OSError."""
        copy = self._copy
        if copy is None:
            raise AssertionError("no copy was begun")
        for batch in effect.batches:
            copy.append(batch.data, batch.base_offset, batch.end_offset, batch.epoch)
        copy.skip_to(effect.end)
        self._horizon = effect.horizon

    def _start(self, work: Coroutine[Any, Any, Any]) -> None:
        self._future = self._workers.spawn(work)
        self._future.add_done_callback(self._ended)

    def _ended(self, future: asyncio.Future[Any]) -> None:
        self.changes_log = False
        if not future.cancelled():
            self._done(future.exception())

    def _store_promise(self, promise: fx.Promise) -> None:
        """Writes on the event loop, and now: behind what else the loop has to do it would come milliseconds later."""
        started_s = self._now_s()
        self._replica.store_promise(promise)
        self._storage.pace.note(self._now_s() - started_s)

    async def _truncate(self, end_offset: int) -> None:
        replica, turns = self._replica, self._turns
        self.wants_log = True
        async with self._log_lock:
            self.wants_log = False
            await all_durable(replica, turns)
            log = replica.log
            replica.stage_truncation(end_offset)
            while log.journaled_end != end_offset:
                turns.write(Urgency.COMMIT)
                if not await turns.next_write():  # what was staged is gone
                    raise OSError(f"the storage failed while the log was to be cut at {end_offset}")
            await self._workers.blocking(log.begin_truncate(end_offset))

    async def _start_copy(self) -> None:
        if self._copy is not None:
            self._copy.close()
        self._copy = await self._workers.blocking(self._storage.begin_copy, self._replica)
        self._horizon = 0

    async def _swap(self) -> None:
        copy, self._copy = self._copy, None
        assert copy is not None
        self.wants_log = True
        async with self._log_lock:
            self.wants_log = False
            await all_durable(self._replica, self._turns)
            await self._workers.blocking(self._storage.swap, self._replica, copy, self._horizon)
            self._replica.name_in_journal()
            self._turns.write(Urgency.COMMIT)
