"""Committed offsets: OffsetCommitKey 0-1 and OffsetCommitValue 0-4.

Key: type i16 (0 or 1) | group str | topic str | partition i32.
Value: version i16 | offset i64 | leaderEpoch i32 (3+) | metadata str | commitTimestamp i64 | expireTimestamp i64 (1
only).
Version 4 is flexible; its tagged field 0 is the topic's id, left out when there is none. Written: key 1; value 4, or 1
with an expire timestamp (a commit that carried a retention time).
Source: OffsetCommitKey.json, OffsetCommitValue.json; GroupCoordinatorRecordHelpers; reference, section 3.2.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct

from muster_coordinator.records.errors import RecordDecodeError, UnsupportedValueVersionError
from muster_coordinator.records.primitives import INT32, MAX_STRING_BYTES, Cursor, encode_string
from muster_coordinator.records.structs import NO_TOPIC_ID, OffsetCommitValue
from muster_coordinator.records.varint import encode_unsigned

LEGACY_KEY_TYPE = 0
KEY_TYPE = 1
WRITTEN_VERSION = 4
EXPIRE_TIMESTAMP_VERSION = 1
"""The only version with a field for it."""
FLEXIBLE_VERSION = 4
LATEST_VERSION = 4
NO_TIMESTAMP = -1
NO_LEADER_EPOCH = -1

_KEY_PREFIX = b"\x00\x01"
_HEAD = Struct(">hqi")  # version, offset, leader epoch
_V1_HEAD = Struct(">hqh")
_V1_TAIL = Struct(">qq")  # commit timestamp, expire timestamp
_WITHOUT_METADATA = Struct(">hqibq")  # version, offset, leader epoch, an empty string, commit timestamp
_EMPTY_STRING = 1  # the compact length, plus one, of no bytes
_TIMESTAMP = Struct(">q")
_NO_TAGS = b"\x00"
_TOPIC_ID_TAG = 0
_TOPIC_ID_BYTES = 16
_TAGGED_TOPIC_ID = b"\x01\x00\x10"  # one tagged field: the tag 0, 16 bytes
_PLAIN = Struct(">hqibqb")  # like _WITHOUT_METADATA, with no tagged field
_PLAIN_WITH_ID = Struct(">hqibq3s16s")


def encode_offset_commit_key(group_id: str, topic: str, partition: int) -> bytes:
    return _KEY_PREFIX + encode_string(group_id) + encode_string(topic) + INT32.pack(partition)


def encode_offset_commit_value(value: OffsetCommitValue) -> bytes:
    """Version 4, or version 1 with an expire timestamp. ValueError for metadata of more than 32767 bytes."""
    if value.expire_timestamp_ms != NO_TIMESTAMP:
        raw = _metadata_bytes(value.metadata)
        return (
            _V1_HEAD.pack(EXPIRE_TIMESTAMP_VERSION, value.offset, len(raw))
            + raw
            + _V1_TAIL.pack(value.commit_timestamp_ms, value.expire_timestamp_ms)
        )
    tagged = _NO_TAGS if value.topic_id == NO_TOPIC_ID else _TAGGED_TOPIC_ID + value.topic_id
    if not value.metadata:
        return (
            _WITHOUT_METADATA.pack(
                WRITTEN_VERSION, value.offset, value.leader_epoch, _EMPTY_STRING, value.commit_timestamp_ms
            )
            + tagged
        )
    raw = _metadata_bytes(value.metadata)
    return (
        _HEAD.pack(WRITTEN_VERSION, value.offset, value.leader_epoch)
        + encode_unsigned(len(raw) + 1)
        + raw
        + _TIMESTAMP.pack(value.commit_timestamp_ms)
        + tagged
    )


def _metadata_bytes(metadata: str) -> bytes:
    raw = metadata.encode()
    if len(raw) > MAX_STRING_BYTES:
        raise ValueError(f"metadata of {len(raw)} bytes, at most {MAX_STRING_BYTES} fit")
    return raw


def decode_offset_commit_key(key: bytes) -> tuple[str, str, int]:
    """(group id, topic, partition) of a key of type 0 or 1. Raises RecordDecodeError."""
    cursor = Cursor(key, 2, "OffsetCommitKey")
    return cursor.string(), cursor.string(), cursor.int32()


def decode_offset_commit_value(value: bytes) -> OffsetCommitValue:
    """Raises UnsupportedValueVersionError, RecordDecodeError."""
    # Nearly all values, without the detour over a cursor.
    if len(value) == _PLAIN_WITH_ID.size and value.startswith(b"\x00\x04"):
        _, offset, leader_epoch, metadata_length, commit_ms, tagged, topic_id = _PLAIN_WITH_ID.unpack(value)
        if metadata_length == _EMPTY_STRING and tagged == _TAGGED_TOPIC_ID:
            return OffsetCommitValue(offset, leader_epoch, "", commit_ms, NO_TIMESTAMP, shared_topic_id(topic_id))
    elif len(value) == _PLAIN.size and value.startswith(b"\x00\x04"):
        _, offset, leader_epoch, metadata_length, commit_ms, tagged_fields = _PLAIN.unpack(value)
        if metadata_length == _EMPTY_STRING and not tagged_fields:
            return OffsetCommitValue(offset, leader_epoch, "", commit_ms)
    if len(value) < 2:
        raise RecordDecodeError(f"OffsetCommitValue of {len(value)} bytes")
    version = int.from_bytes(value[:2], "big", signed=True)
    if not 0 <= version <= LATEST_VERSION:
        raise UnsupportedValueVersionError("OffsetCommitValue", version)
    cursor = Cursor(value, 2, f"OffsetCommitValue v{version}", flexible=version >= FLEXIBLE_VERSION)
    offset = cursor.int64()
    leader_epoch = cursor.int32() if version >= 3 else NO_LEADER_EPOCH
    metadata = cursor.string()
    commit_ms = cursor.int64()
    expire_ms = cursor.int64() if version == EXPIRE_TIMESTAMP_VERSION else NO_TIMESTAMP
    tagged_id = cursor.tagged_fields().get(_TOPIC_ID_TAG)
    if tagged_id is None:
        return OffsetCommitValue(offset, leader_epoch, metadata, commit_ms, expire_ms)
    if len(tagged_id) != _TOPIC_ID_BYTES:
        raise RecordDecodeError(f"OffsetCommitValue v{version}: topic id of {len(tagged_id)} bytes")
    return OffsetCommitValue(offset, leader_epoch, metadata, commit_ms, expire_ms, shared_topic_id(tagged_id))


@lru_cache(maxsize=4096)
def shared_topic_id(topic_id: bytes) -> bytes:
    """`topic_id`, the same object for equal ids: many offsets have the ids of few topics."""
    return topic_id
