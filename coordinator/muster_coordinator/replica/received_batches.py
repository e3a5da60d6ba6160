"""Batches that came from another replica: checked, with what they name of the sets read out of their bytes.

The sender is a replica of ours, but bytes can be damaged on the way, and from here they go into the log.
"""

from __future__ import annotations

from operator import is_

import msgspec

from muster_coordinator.records.batch import CorruptBatchError, RecordBatch, read_batch
from muster_coordinator.records.control import LeaderChange, ReplicaSet, decode_control
from muster_coordinator.replication.messages import Append, Batch, Fetched, Message
from muster_coordinator.replication.sets import Sets


def checked(message: Message) -> Message:
    """`message` with the sets of its batches. Raises CorruptBatchError, RecordDecodeError,
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
    """The sets that a leader-change or set record in a control batch names; None if there is no such record.

    Raises CorruptBatchError, RecordDecodeError, UnsupportedValueVersionError.
    """
    for record in batch.records():
        control = decode_control(record.key, record.value)
        if isinstance(control, LeaderChange) and control.replicas:
            return Sets(control.replicas, control.previous_replicas, control.loss_epoch)
        if isinstance(control, ReplicaSet):
            return Sets(control.replicas)
    return None
