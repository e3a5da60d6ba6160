"""Loading is replay: every record of the log goes through the same `replay` as at run time (Kafka:
CoordinatorLoaderImpl).

A load is a generator that yields after each slice, so that a long load never delays other shards.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from time import thread_time

import msgspec
import structlog

from muster_coordinator.log.segments.partition_log import PartitionLog
from muster_coordinator.records.batch import RecordBatch
from muster_coordinator.records.errors import RecordDecodeError
from muster_coordinator.records.structs import UnknownRecord
from muster_coordinator.replica.stored import StoredReplica
from muster_coordinator.shard.metrics import ShardMetrics
from muster_coordinator.shard.ports import NO_PRODUCER
from muster_coordinator.shard.replayed import ReplayedState

logger = structlog.get_logger(__name__)

SLICE_RECORDS = 500
"""The work between two returns to the event loop: well below a millisecond for small records."""
SLICE_PARTS = 4
"""The same for the parts of a checkpoint."""
RECORD_BYTES_BITS = 6
"""A large value counts as one record more for each 64 bytes: it takes about as long to decode as that many small
ones."""


def load_log(
    replica: StoredReplica, state: ReplayedState, metrics: ShardMetrics, to_offset: int | None = None
) -> Generator[None, None, int]:
    """Load the checkpoint and the log after it, or the whole log. Like `replay_log` otherwise."""
    from_offset = yield from restore_checkpoint(replica, state)
    return (yield from replay_log(replica.log, state, metrics, from_offset, to_offset))


def restore_checkpoint(replica: StoredReplica, state: ReplayedState) -> Generator[None, None, int]:
    """Load the checkpoint. Returns its offset; the start of the log if there is no checkpoint that can be used."""
    start_offset = replica.log.start_offset
    file = replica.open_checkpoint(state.machine.snapshot_version)
    if file is None:
        return start_offset
    try:
        yield from _in_slices(state.check(file.parts()))
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        logger.warning("checkpoint_ignored", directory=str(replica.directory), reason=str(error))
        file.close()
        return start_offset
    try:
        yield from _in_slices(state.restore(file.parts()))
    finally:
        file.close()
    return file.head.offset


def _in_slices(steps: Iterable[object]) -> Generator[None, None, None]:
    for number, _ in enumerate(steps):
        if number % SLICE_PARTS == 0:
            yield


def replay_log(
    log: PartitionLog,
    state: ReplayedState,
    metrics: ShardMetrics,
    from_offset: int | None = None,
    to_offset: int | None = None,
    batches: Iterable[RecordBatch] | None = None,
) -> Generator[None, None, int]:
    """Replay `log` into `state`, from its start or from `from_offset`, which lies between two batches, to its end or to
    the last batch that ends at or below `to_offset`. Yields after each slice. Returns the offset after the last record.
    `batches`: those of the log from `from_offset` on, if the caller has them in memory.

    Raises DamagedLogError if a batch is unreadable, CorruptBatchError if its records are, RecordDecodeError if a key
    or a value is, UnsupportedValueVersionError on a known record with an unknown value version (KIP-915); the last two
    name log and offset. Unknown
    record types are skipped, counted, and logged once per type.
    """
    decode, replay = state.machine.new_decoder(), state.machine.replay
    unknown_types: set[int] = set()
    end_offset = log.start_offset if from_offset is None else from_offset
    left, began_s = SLICE_RECORDS, 0.0
    for batch in log.read_batches(end_offset) if batches is None else batches:
        if to_offset is not None and batch.end_offset > to_offset:
            break
        producer = (batch.producer_id, batch.producer_epoch) if batch.is_transactional else NO_PRODUCER
        if left <= 0:
            _observe_slice(metrics, began_s)
            yield
            left, began_s = SLICE_RECORDS, thread_time()
        for records in batch.slices(SLICE_RECORDS):
            if batch.is_control:
                state.replay_control(records, producer)
                continue
            for record in records:
                try:
                    change = decode(record.key, record.value)
                except RecordDecodeError as error:
                    error.args = (f"the record at offset {record.offset} of {log.directory.name}: {error}",)
                    raise
                if type(change) is UnknownRecord:
                    _count_unknown(change, record.offset, log, metrics, unknown_types)
                else:
                    replay(change, record.offset, record.timestamp_ms, *producer)
                left -= 1 if record.value is None else 1 + (len(record.value) >> RECORD_BYTES_BITS)
                if left <= 0:
                    _observe_slice(metrics, began_s)
                    yield
                    left, began_s = SLICE_RECORDS, thread_time()
        left -= 1  # batches that the cleaner has emptied take time too
        end_offset = batch.end_offset
        metrics.records_loaded += batch.records_count
    return end_offset


def _observe_slice(metrics: ShardMetrics, began_s: float) -> None:
    """Measure all slices but the first: a follower replays in many small steps of one slice each, and this clock is a
    system call."""
    if began_s:
        metrics.load_slice_time.observe((thread_time() - began_s) * 1000)


def _count_unknown(
    change: UnknownRecord, offset: int, log: PartitionLog, metrics: ShardMetrics, seen: set[int]
) -> None:
    metrics.unknown_records += 1
    if change.type not in seen:
        seen.add(change.type)
        logger.warning("unknown_record_type", directory=str(log.directory), type=change.type, offset=offset)
