"""Loading is replay: every record of the log goes through the same ``replay`` as at run time.

In slices, so that a long load never delays other shards. Source: CoordinatorLoaderImpl; reference, sections 3.5 and
6.1.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable
from heapq import heappop, heappush
from itertools import count
from time import monotonic, thread_time
from typing import Any
from weakref import WeakKeyDictionary

import msgspec
import structlog

from muster_coordinator.groups.coordinator import GroupCoordinator
from muster_coordinator.groups.snapshot import StatePart
from muster_coordinator.log.partition_log import PartitionLog
from muster_coordinator.records.batch import BatchRecord, RecordBatch
from muster_coordinator.records.control import EndTxnMarker, Fence, decode_control
from muster_coordinator.records.decode import LogDecoder, UnknownRecord
from muster_coordinator.records.group_metadata import GroupMetadataRecord
from muster_coordinator.replica.stored import StoredReplica
from muster_coordinator.shard.metrics import ShardMetrics

logger = structlog.get_logger(__name__)

SLICE_RECORDS = 500
SLICE_S = 0.001
"""A slice is what lies between two returns to the event loop. It ends at so many records, about a millisecond of work,
or after so long: the record of a large group takes as long as a thousand others."""

BUSY_S = 0.000_05
"""An event loop that computes longer than this between two slices has other work: an idle one needs half of it, a
commit more."""
LONGEST_REST_S = 0.010
STANDBY_RESTS = 3
"""A load that no election waits for rests so many times as long: a pod that comes back reads its logs for seconds, on
a machine that has just started it."""
BURST_SHARE = 0.5
LONGEST_BURST_S = 0.004
"""A load goes on for this share of the time for which it had to wait, and for no longer than this: a loop whose turns
are long would otherwise give it too little, and a standby that gets less than what arrives is not warm."""
SHORTEST_BURST_S = SLICE_S / 2
"""Slices may be shorter than this, as those of a checkpoint: their turns would cost as much as they do."""
SHORT_BYTES = 1 << 20
"""An election waits for the replay of this, or less, without rests: those of its groups would last as long as the
work itself, tens of milliseconds."""


class LoadTurns:
    """Which load goes on next: one slice of one load per turn of the event loop, however many there are.

    Those that an election waits for, then the one with the least to do, and of equal ones that which began first: it is
    ACTIVE soonest, and nobody waits longer for it than for a slice. (Kafka loads one partition after the other, in a
    thread of its own.) While the loop has other work, a slice is followed by a rest of the same length, or of a
    multiple where no election waits: requests find an idle loop half of the time, and a process that does not use up
    its share of a contended CPU gets it sooner when one comes. Only a short load that an election waits for does not
    rest.
    """

    def __init__(self) -> None:
        self._waiting: list[tuple[bool, int, int, int, asyncio.Future[None]]] = []
        self._serials = count()
        self._begun: WeakKeyDictionary[asyncio.Task[Any], int] = WeakKeyDictionary()
        self._scheduled = False
        self._resting: asyncio.TimerHandle | None = None
        self._rests = 1  # how often as long as the last slice
        self._began_s = self._ended_s = self._until_s = 0.0  # the last slice
        self._ended_cpu_s = 0.0

    async def next_slice(self, rest_bytes: int, *, waited_for: bool = True) -> float:
        """Returns when the load, in the task that calls, may do one slice; and the time, on the monotonic clock, until
        which it may begin others. ``rest_bytes``: of the log, still to load; ``waited_for``: by an election.
        """
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        task = asyncio.current_task()
        assert task is not None
        begun = self._begun.get(task)
        if begun is None:
            begun = self._begun[task] = next(self._serials)
        heappush(self._waiting, (not waited_for, rest_bytes, begun, next(self._serials), turn))
        if not self._scheduled:
            self._scheduled = True
            loop.call_soon(self._give)
        elif self._resting is not None and self._is_urgent:
            self._resting.cancel()
            self._resting = None
            loop.call_soon(self._give)
        await turn
        return self._until_s

    @property
    def _is_urgent(self) -> bool:
        behind, rest_bytes, *_ = self._waiting[0]
        return not behind and rest_bytes <= SHORT_BYTES

    def _give(self) -> None:
        self._resting = None
        self._began_s = monotonic()
        burst_s = min((self._began_s - self._ended_s) * BURST_SHARE, LONGEST_BURST_S)
        self._until_s = self._began_s + max(burst_s, SHORTEST_BURST_S)
        while self._waiting:
            behind, *_, turn = heappop(self._waiting)
            if not turn.done():  # else the load was given up meanwhile
                turn.set_result(None)
                self._rests = STANDBY_RESTS if behind else 1
                break
        asyncio.get_running_loop().call_soon(self._slice_ended)  # its task runs before that

    def _slice_ended(self) -> None:
        self._ended_s, self._ended_cpu_s = monotonic(), thread_time()
        self._scheduled = bool(self._waiting)
        if self._scheduled:
            asyncio.get_running_loop().call_soon(self._give_or_rest)

    def _give_or_rest(self) -> None:
        # a process that waits for a CPU is not busy
        if self._is_urgent or thread_time() - self._ended_cpu_s < BUSY_S:
            self._give()
        else:
            rest_s = min((self._ended_s - self._began_s) * self._rests, LONGEST_REST_S)
            self._resting = asyncio.get_running_loop().call_later(rest_s, self._give)


def load_log(
    replica: StoredReplica, coordinator: GroupCoordinator, metrics: ShardMetrics, to_offset: int | None = None
) -> Generator[None, None, int]:
    """Checkpoint and what lies behind it, or the whole log; like ``replay_log`` otherwise."""
    from_offset = yield from restore_checkpoint(replica, coordinator)
    return (yield from replay_log(replica.log, coordinator, metrics, from_offset, to_offset))


def restore_checkpoint(replica: StoredReplica, coordinator: GroupCoordinator) -> Generator[None, None, int]:
    """Returns the offset behind it; the start of the log if there is none that can be used."""
    start_offset = replica.log.start_offset
    file = replica.open_checkpoint()
    if file is None:
        return start_offset
    decode = msgspec.msgpack.Decoder(StatePart).decode
    try:
        for part in file.parts():  # all of it first: what was restored from a damaged file could not be taken back
            decode(part)
            yield
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        logger.warning("checkpoint_ignored", directory=str(replica.directory), reason=str(error))
        file.close()
        return start_offset
    try:
        for part in file.parts():
            coordinator.restore(decode(part))
            yield
    finally:
        file.close()
    return file.head.offset


def replay_log(
    log: PartitionLog,
    coordinator: GroupCoordinator,
    metrics: ShardMetrics,
    from_offset: int | None = None,
    to_offset: int | None = None,
    now_s: Callable[[], float] = monotonic,
    batches: Iterable[RecordBatch] | None = None,
) -> Generator[None, None, int]:
    """Replay ``log`` into ``coordinator``, from its start, or from ``from_offset``, between two batches, to its end, or
    the last batch that ends at or below ``to_offset``. Yields after each slice; returns the offset behind the last
    record. ``batches``: what the log has from ``from_offset`` on, if the caller has it at hand.

    Raises DamagedLogError if a batch is unreadable, CorruptBatchError if its records are, RecordDecodeError if a key
    or a value is, UnsupportedValueVersionError on a known record with an unknown value version (KIP-915). Unknown
    record types are skipped, counted and logged once per type.
    """
    decode = LogDecoder().decode
    unknown_types: set[int] = set()
    end_offset = log.start_offset if from_offset is None else from_offset
    left, ends_s, began_s = SLICE_RECORDS, now_s() + SLICE_S, 0.0
    for batch in log.read_batches(end_offset) if batches is None else batches:
        if to_offset is not None and batch.end_offset > to_offset:
            break
        producer = (batch.producer_id, batch.producer_epoch) if batch.is_transactional else (-1, -1)
        if left <= 0:
            _observe_slice(metrics, began_s)
            yield
            left, ends_s, began_s = SLICE_RECORDS, now_s() + SLICE_S, thread_time()
        for records in batch.slices(SLICE_RECORDS):
            if batch.is_control:
                _replay_control(records, coordinator, producer)
                continue
            for record in records:
                change = decode(record.key, record.value)
                if type(change) is UnknownRecord:
                    _count_unknown(change, record.offset, log, metrics, unknown_types)
                else:
                    coordinator.replay(change, record.offset, record.timestamp_ms, *producer)
                left -= 1
                if left <= 0 or (type(change) is GroupMetadataRecord and now_s() >= ends_s):
                    _observe_slice(metrics, began_s)
                    yield
                    left, ends_s, began_s = SLICE_RECORDS, now_s() + SLICE_S, thread_time()
        left -= 1  # batches that the cleaner has emptied are work too
        end_offset = batch.end_offset
        metrics.records_loaded += batch.records_count
    return end_offset


def _observe_slice(metrics: ShardMetrics, began_s: float) -> None:
    """The first slice is not measured: a follower's many small steps have no other, and this clock is a system call."""
    if began_s:
        metrics.load_slice_time.observe((thread_time() - began_s) * 1000)


def _replay_control(records: list[BatchRecord], coordinator: GroupCoordinator, producer: tuple[int, int]) -> None:
    for record in records:
        control = decode_control(record.key, record.value)
        if isinstance(control, EndTxnMarker):
            coordinator.replay_transaction_marker(
                *producer, control.committed, record.offset, control.coordinator_epoch
            )
        elif isinstance(control, Fence):
            coordinator.replay_fence(control)


def _count_unknown(
    change: UnknownRecord, offset: int, log: PartitionLog, metrics: ShardMetrics, seen: set[int]
) -> None:
    metrics.unknown_records += 1
    if change.type not in seen:
        seen.add(change.type)
        logger.warning("unknown_record_type", directory=str(log.directory), type=change.type, offset=offset)
