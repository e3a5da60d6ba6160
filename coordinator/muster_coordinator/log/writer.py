"""Writes the journal, and calls back on the event loop when a write is durable.

`submit` is called at the end of a turn. If no write runs, it starts one with everything that is staged; otherwise the
next write starts as soon as the present one ends. So a write carries what was staged during the one before it, without
a timer. What is only staged waits for the next `submit`.

A write is done by the event loop itself while the disk is fast, else by a thread (ADR 12): one hand-over to it and one
back cost more than a write to a fast disk, and on a busy machine each of them waits for a processor.

In the background it asks the operating system every second to start writing what the segments got: otherwise the next
sync on the disk, of any process, takes 100 ms. It also gives full journal files back: it syncs the logs with batches in
them one after the other, then reuses the file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import Protocol

import structlog

from muster_coordinator.log.journal.journal import Journal, JournalFile, Staged
from muster_coordinator.log.segments.partition_log import PartitionLog
from muster_coordinator.log.segments.sync import WriteBack
from muster_coordinator.tuning.descriptors import NO_DESCRIPTOR

logger = structlog.get_logger(__name__)

HOUSEKEEPING_INTERVAL_S = 1.0
"""Shortest time between two attempts to give files back: a file may have to wait for a log that is not open yet."""

FAST_S = 0.001
"""A write that takes longer is slow. In a thread it is measured with its wait for the interpreter, which is longer than
the write where processors are busy: a smaller bound would keep the writes of a fast disk there."""
STALLED_S = 0.1
"""A write that takes this long waits for the disk, not for a processor."""
TOLD = 100
"""The line about a slow write has the ends of so many logs at most."""
WINDOW = 32
"""The event loop writes itself while fewer than half of about this many last writes were slow."""
INLINE_BYTES_MAX = 64 << 10
"""The event loop writes at most this much at a time."""


class Pace:
    """The pace of the disk: `is_fast` after some twenty fast writes, and some hundred after one that stalled.
    Then the event loop may write a little by itself. `note` is told how long each write took.
    """

    def __init__(self) -> None:
        self._slow = 1.0  # share of the last writes that were slow; more than 1 after one that stalled

    @property
    def is_fast(self) -> bool:
        return self._slow < 0.5

    def note(self, seconds: float) -> None:
        """A durable write took `seconds`."""
        if seconds >= STALLED_S:
            self._slow = float(WINDOW)
        else:
            self._slow += ((seconds > FAST_S) - self._slow) / WINDOW


class Journaled(Protocol):
    """The owner of one log of the journal."""

    @property
    def open_log(self) -> PartitionLog | None:
        """The log; None while it is not open."""
        ...

    def log_durable(self, end_offset: int) -> None:
        """A write is done that had records of this log, which is durable up to `end_offset` now."""
        ...


class JournalWriter:
    """`owners`: by partition, those of the logs, as they are at any time. After each write the writer calls those whose
    records it had, then what was given to `start`. `failed` is called when a journal write failed, after which nothing
    is written until `recover`, or when a log could not be synced, which then has `failed`. All on the event loop.
    `now_s`: a monotonic clock in seconds.
    """

    _journal: Journal
    _after_write: Callable[[], None]

    def __init__(
        self,
        owners: Mapping[int, Journaled],
        pace: Pace,
        failed: Callable[[OSError], None],
        now_s: Callable[[], float],
    ) -> None:
        self.ended = 0
        """The number of the last write that has ended."""
        self._owners = owners
        self._on_failed = failed
        self._now_s = now_s
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="journal")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pace = pace
        self.is_writing = False
        """A write is on its way, or about to begin."""
        self._again = False  # `submit` was called during the write that is on its way
        self._closing = False
        self._idle = asyncio.Event()
        self._written_to: set[int] = set()  # partitions, since the last write-back
        self._housekeeping: asyncio.Task[None] | None = None
        self._next_housekeeping = 0.0  # in loop time

    def start(self, journal: Journal, after_write: Callable[[], None]) -> None:
        """Within the event loop that owns the journal. `after_write` is called after each write."""
        self._journal = journal
        self._after_write = after_write
        self._loop = asyncio.get_running_loop()
        self._idle.set()
        self._keep_house()

    def submit(self) -> int:
        """Write what is staged: now, or right after the write that is on its way. Returns the number of that write."""
        if self._closing or self._journal.failed is not None:
            return self.ended
        if self.is_writing:
            self._again = True
            return self.ended + 2
        if not self._journal.staged:
            return self.ended
        self._idle.clear()
        self._begin()
        return self.ended + 1

    def _begin(self) -> None:
        self.is_writing = True
        assert self._loop is not None
        if self._pace.is_fast:
            self._loop.call_soon(self._write_here)  # what goes to other replicas is sent before
        else:
            self._write_in_thread(self._journal.take())

    async def recover(self, logs: Iterable[PartitionLog]) -> None:
        """Recover from a failed write: sync every log, then go on in a new journal file. Raises OSError: still failed.

        `logs`: all that are open. Nothing may be appended to them meanwhile.
        """
        await self._idle.wait()
        self._journal.take()  # the segments get it instead
        ends: dict[int, int] = {}
        for log in logs:
            ends[log.partition] = log.journaled_end = log.end_offset
            await asyncio.to_thread(log.begin_sync().run)
        await asyncio.to_thread(self._journal.go_on, ends)
        logger.info("journal_recovered")

    async def close(self) -> None:
        """Write what is staged, then stop the thread. The logs and the journal stay open."""
        self.submit()
        self._closing = True
        await self._idle.wait()
        if self._housekeeping is not None:
            self._housekeeping.cancel()
            await asyncio.wait((self._housekeeping,))
        self._executor.shutdown()  # nothing runs in it

    # --- a write -----------------------------------------------------------------------------------------------------

    def _write_in_thread(self, staged: Staged | None) -> None:
        assert self._loop is not None
        assert staged is not None
        writing = self._loop.run_in_executor(self._executor, self._write, staged)
        writing.add_done_callback(partial(self._written_in_thread, staged))

    def _written_in_thread(self, staged: Staged, writing: asyncio.Future[float]) -> None:
        """Runs on the event loop when the thread has written."""
        try:
            took_s = writing.result()
        except OSError as exc:
            self._failed(exc)
        else:
            self._written(staged.ends, took_s)

    def _write_here(self) -> None:
        """Writes on the event loop, unless it turns out to be more than one small write."""
        journal = self._journal
        staged = journal.take()
        assert staged is not None
        if not journal.is_simple(staged, INLINE_BYTES_MAX):
            self._write_in_thread(staged)
            return
        started_s = self._now_s()
        try:
            journal.write(staged)
        except OSError as exc:
            self._failed(exc)
        else:
            self._written(staged.ends, self._now_s() - started_s)

    def _write(self, staged: Staged) -> float:
        """Returns how long it took, in seconds. Raises OSError."""
        started_s = self._now_s()
        self._journal.write(staged)
        return self._now_s() - started_s

    def _written(self, ends: dict[int, int], took_s: float) -> None:
        self._pace.note(took_s)
        if took_s >= STALLED_S:
            told = dict(islice(ends.items(), TOLD))
            logger.warning("journal_write_slow", ms=round(took_s * 1000), partitions=len(ends), ends=told)
        self.is_writing = False
        self.ended += 1
        again, self._again = self._again, False
        if again and self._journal.staged:
            self._begin()
        else:
            self._idle.set()
        self._written_to.update(ends)
        self._keep_house()
        for partition, end_offset in ends.items():
            owner = self._owners.get(partition)
            if owner is not None:
                owner.log_durable(end_offset)
        self._after_write()

    def _log_of(self, partition: int) -> PartitionLog | None:
        owner = self._owners.get(partition)
        return owner.open_log if owner is not None else None

    def _failed(self, exc: OSError) -> None:
        self.is_writing = False
        self.ended += 1
        self._idle.set()
        logger.error("journal_write_failed", error=str(exc))
        self._on_failed(exc)

    # --- in the background -------------------------------------------------------------------------------------------

    def _keep_house(self) -> None:
        """Begins what is to be done in the background, if that is not going on."""
        assert self._loop is not None
        if self._housekeeping is not None or self._closing:
            return
        if not self._written_to and not self._journal.wants_housekeeping:
            return
        if self._loop.time() >= self._next_housekeeping:
            self._next_housekeeping = self._loop.time() + HOUSEKEEPING_INTERVAL_S
            self._housekeeping = self._loop.create_task(self._house_keeping())
            self._housekeeping.add_done_callback(self._housekept)

    def _housekept(self, task: asyncio.Task[None]) -> None:
        self._housekeeping = None
        if not task.cancelled() and (exc := task.exception()) is not None:
            # The journal goes on without: it grows until a later try succeeds.
            logger.error("journal_housekeeping_failed", error=str(exc))

    async def _house_keeping(self) -> None:
        await self._write_back()
        for file in self._journal.closed_files():
            if not await self._sync_logs(file):
                break
            await asyncio.to_thread(self._journal.retire, file)
        if self._journal.wants_spare:
            await asyncio.to_thread(self._journal.prepare_spare)

    async def _write_back(self) -> None:
        logs = [log for partition in self._written_to if (log := self._log_of(partition)) is not None]
        self._written_to.clear()
        tasks = [task for log in logs if (task := log.begin_write_back()) is not None]
        if tasks:
            await asyncio.to_thread(_run_all, tasks)

    async def _sync_logs(self, file: JournalFile) -> bool:
        """False if a log with batches in the file is not open or cannot be synced: the file may be all that it has."""
        for partition in sorted(file.partitions):
            log = self._log_of(partition)
            if log is None or log.failed is not None:
                return False
            try:
                await asyncio.to_thread(log.begin_sync().run)
            except OSError as exc:
                logger.error("log_sync_failed", partition=partition, error=str(exc))
                if exc.errno not in NO_DESCRIPTOR or log.failed is not None:  # else it is tried again in a second
                    self._on_failed(exc)
                return False
        return True


def _run_all(tasks: Sequence[WriteBack]) -> None:
    for task in tasks:
        task.run()
