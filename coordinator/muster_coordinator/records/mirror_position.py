"""The position of a mirror: a record of Muster's own in a partition of `__consumer_offsets` that follows another one.

Key: type i16 (9100). Value: version i16 (0) | topicId 16 bytes | offset i64 | epoch i32 | leaderEpoch i32 |
sinceMs i64 | flags i8 (1: complete, 2: clearing). Kafka counts record types up from 0, and its readers skip unknown
ones. The record has a key, so compaction keeps the last one.
"""

from __future__ import annotations

from struct import Struct

import msgspec

from muster_coordinator.records.errors import RecordDecodeError, UnsupportedValueVersionError
from muster_coordinator.records.structs import NO_TOPIC_ID

KEY_TYPE = 9100
FROM_START = -1

_KEY = KEY_TYPE.to_bytes(2, "big")
_VALUE = Struct(">h16sqiiqb")
_COMPLETE, _CLEARING = 1, 2


class MirrorPosition(msgspec.Struct, frozen=True, gc=False):
    """`offset`: of the next record to read, or FROM_START. `epoch`: of the last batch that was read, -1: none was.
    `leader_epoch`: of the broker that it was read from. `topic_id`: of the topic that was read, NO_TOPIC_ID before the
    first time.

    `since_ms`: wall clock; whatever was removed from the topic before that had no meaning for this reader: it was at
    the end then, or began to read. `complete`: it was at the end since it began. `clearing`: what was read is being
    taken back, to begin again.
    """

    topic_id: bytes = NO_TOPIC_ID
    offset: int = FROM_START
    epoch: int = -1
    leader_epoch: int = -1
    since_ms: int = -1
    complete: bool = False
    clearing: bool = False


def is_position_key(key: bytes | None) -> bool:
    return key == _KEY


def encode_position(position: MirrorPosition) -> tuple[bytes, bytes]:
    """(key, value)."""
    flags = (_COMPLETE if position.complete else 0) | (_CLEARING if position.clearing else 0)
    return _KEY, _VALUE.pack(
        0, position.topic_id, position.offset, position.epoch, position.leader_epoch, position.since_ms, flags
    )


def position_record(position: MirrorPosition) -> tuple[bytes, bytes, MirrorPosition]:
    """(key, value, what they say)."""
    return (*encode_position(position), position)


def decode_position(value: bytes | None) -> MirrorPosition:
    """Raises RecordDecodeError, UnsupportedValueVersionError."""
    if value is None or len(value) < _VALUE.size:
        raise RecordDecodeError(f"the position of a mirror with the value {value!r}")
    version, topic_id, offset, epoch, leader_epoch, since_ms, flags = _VALUE.unpack_from(value)
    if version != 0:
        raise UnsupportedValueVersionError("MirrorPosition", version)
    complete, clearing = bool(flags & _COMPLETE), bool(flags & _CLEARING)
    return MirrorPosition(topic_id, offset, epoch, leader_epoch, since_ms, complete, clearing)
