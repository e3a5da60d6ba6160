"""Batches on their way between replicas: read from the log for others; and from others checked, with what they name of
the sets read out of their bytes.

The sender is a replica of ours, but bytes can be damaged on the way, and from here they go into the log.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import is_

import msgspec

from muster_coordinator.log.errors import DamagedLogError
from muster_coordinator.log.reading import RangeReader
from muster_coordinator.records.batch import CorruptBatchError, RecordBatch, read_batch
from muster_coordinator.records.control import LeaderChange, ReplicaSet, decode_control
from muster_coordinator.replication.effects import ReadLog
from muster_coordinator.replication.messages import Append, Batch, Fetched, Message
from muster_coordinator.replication.sets import Sets
from muster_coordinator.shard.replica import Replica
from muster_coordinator.shard.runtime import Runtime

__all__ = ["checked", "read_log", "sets_of"]

ReadDone = Callable[[int, list[Batch], Exception | None], None]
"""(end of the range, its batches, why it could not be read)."""


def checked(message: Message) -> Message:
    """``message`` with the sets of its batches. Raises CorruptBatchError, RecordDecodeError,
    UnsupportedValueVersionError.
    """
    if not isinstance(message, Append | Fetched) or not message.batches:
        return message
    batches = tuple([_checked(batch) for batch in message.batches])
    if all(map(is_, batches, message.batches)):  # none names sets: the usual case
        return message
    return msgspec.structs.replace(message, batches=batches)


def _checked(batch: Batch) -> Batch:
    found = read_batch(batch.data)
    if len(found.data) != len(batch.data):
        raise CorruptBatchError(len(found.data), "more than one batch")
    if (found.base_offset, found.end_offset, found.leader_epoch) != (batch.base_offset, batch.end_offset, batch.epoch):
        raise CorruptBatchError(0, f"the batch at offset {found.base_offset} is not the one that was announced")
    return batch if not found.is_control else msgspec.structs.replace(batch, sets=sets_of(found))


def sets_of(batch: RecordBatch) -> Sets | None:
    """What a leader-change or set record in a control batch names; None if there is none.

    Raises CorruptBatchError, RecordDecodeError, UnsupportedValueVersionError.
    """
    for record in batch.records():
        control = decode_control(record.key, record.value)
        if isinstance(control, LeaderChange) and control.replicas:
            return Sets(control.replicas, control.previous_replicas)
        if isinstance(control, ReplicaSet):
            return Sets(control.replicas)
    return None


def read_log(replica: Replica, runtime: Runtime, effect: ReadLog, done: ReadDone) -> None:
    """Read a range of the log as it is sent to other replicas, which read the sets out of it: at once if it waits in
    memory, else in a thread.
    """
    reader = replica.log.read_range(effect.start, effect.bytes_max)
    if reader.in_memory:
        _report(reader, done)
    else:
        runtime.spawn(_read_files(reader, runtime, done))


def _report(reader: RangeReader, done: ReadDone) -> None:
    end, found = reader.run()
    done(end, [Batch(*raw) for raw in found], None)


async def _read_files(reader: RangeReader, runtime: Runtime, done: ReadDone) -> None:
    try:
        end, found = await runtime.blocking(reader.run)
    except (DamagedLogError, OSError) as error:
        done(-1, [], error)
    else:
        done(end, [Batch(*raw) for raw in found], None)
