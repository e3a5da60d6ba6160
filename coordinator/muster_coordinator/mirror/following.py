"""The consequence of a broker's answer to a mirror: records to take over, or the reason why there are none. Pure.

A compacted topic tells a reader everything that counts if it gets from any offset to the end before tombstones and
markers after that offset may go, `delete.retention.ms` after they were written. So a gap in the offsets means
something only for a reader that was away for longer. Source: Cleaner; KIP-101, KIP-320, KIP-595 (diverging epochs).
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from muster_coordinator.errors import ErrorCode
from muster_coordinator.records.batch import CorruptBatchError, RecordBatch, read_batch
from muster_coordinator.records.mirror_position import MirrorPosition
from muster_coordinator.records.structs import NO_TOPIC_ID
from muster_coordinator.requests.upstream import FetchedRecords

LOOK_AGAIN = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
"""Another broker leads, or the topic is another one: Metadata says what is so now."""


class TakeIn(msgspec.Struct, frozen=True):
    """`batches` were read; `position` is the one after them."""

    batches: tuple[RecordBatch, ...]
    position: MirrorPosition


class ReadAgain(msgspec.Struct, frozen=True):
    """The records that were read may not be those of the topic: take them back, and read from the start."""

    reason: str


class LookAgain(msgspec.Struct, frozen=True):
    """Ask for Metadata, then fetch again."""

    reason: str


class Problem(msgspec.Struct, frozen=True):
    """Nothing was read, and only a person or time can help."""

    reason: str


class Nothing(msgspec.Struct, frozen=True):
    """There is nothing new, or the answer had no room for it."""

    at_end: bool


Verdict = TakeIn | ReadAgain | LookAgain | Problem | Nothing


def is_another_topic(position: MirrorPosition, topic_id: bytes) -> bool:
    """The topic was deleted and created again, or it is that of another cluster."""
    return position.topic_id not in (NO_TOPIC_ID, topic_id)


def is_doubtful(position: MirrorPosition, has_strays: bool, leader_epoch: int) -> bool:
    """True if records that no position counts may have been cut from the topic since: its leader is another one than
    the last that was read from, as after every cut. `has_strays`: there are such records, of a leader of the mirror
    that ended before it could append its position."""
    return has_strays and position.leader_epoch != leader_epoch


def judge(
    position: MirrorPosition,
    leader_epoch: int,
    fetched: FetchedRecords,
    now_ms: int,
    at_end_ms: int,
    retention_ms: int,
) -> Verdict:
    """The meaning of `fetched` to a mirror that asked the leader of that epoch for the records at `position`.

    `at_end_ms`: wall clock, when this reader was seen at the end of the topic, if that was later than
    `position.since_ms`. `retention_ms`: `delete.retention.ms` of the topic.
    """
    code = fetched.error_code
    if code == ErrorCode.OFFSET_OUT_OF_RANGE:
        return ReadAgain(f"offset {position.offset} is not in the topic any more: it was cut, or its retention passed")
    if code in LOOK_AGAIN:
        return LookAgain(ErrorCode(code).name)
    if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return Problem("the user of the mirror lacks READ on the topic")
    if code:
        return Problem(f"the broker answered with error code {code}")
    if fetched.diverging is not None:
        epoch, end = fetched.diverging
        return ReadAgain(
            f"the topic was cut: it parts from what was read up to offset {position.offset} in epoch {position.epoch} "
            f"at offset {end} in epoch {epoch}"
        )
    try:
        batches = _whole_batches(position.offset, fetched.records)
    except CorruptBatchError as error:
        return Problem(f"the broker sent a damaged batch: {error}")
    since_ms = max(position.since_ms, at_end_ms)
    end = batches[-1].end_offset if batches else position.offset
    if _lacks_records(position.offset, batches) and now_ms - since_ms >= retention_ms:
        return ReadAgain(
            f"records between the offsets {position.offset} and {end} were compacted away, and what deleted others may "
            f"have gone too: the mirror was {(now_ms - since_ms) // 1000} s behind"
        )
    at_end = end >= fetched.high_watermark
    if not batches and (position.complete or not at_end):
        return Nothing(at_end)
    return TakeIn(
        batches,
        replace(
            position,
            offset=end,
            epoch=batches[-1].leader_epoch if batches else position.epoch,
            leader_epoch=leader_epoch,
            since_ms=now_ms if at_end else since_ms,
            complete=position.complete or at_end,
        ),
    )


def _lacks_records(offset: int, batches: tuple[RecordBatch, ...]) -> bool:
    """True if some of the offsets from `offset` to the end of the batches have no record."""
    for batch in batches:
        if batch.base_offset > offset or batch.records_count <= batch.last_offset_delta:
            return True
        offset = batch.end_offset
    return False


def _whole_batches(offset: int, data: bytes) -> tuple[RecordBatch, ...]:
    """The batches of an answer that end after `offset`. Raises CorruptBatchError for what cannot be a batch, or does
    not follow the one before."""
    found: list[RecordBatch] = []
    at = 0
    while at < len(data):
        try:
            batch = read_batch(data, at)
        except CorruptBatchError as error:
            if error.truncated:
                break
            raise
        if found and batch.base_offset < found[-1].end_offset:
            raise CorruptBatchError(at, f"offset {batch.base_offset} comes after {found[-1].end_offset - 1}")
        if batch.end_offset > offset:
            found.append(batch)
        at += len(batch.data)
    return tuple(found)
