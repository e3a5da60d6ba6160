"""Committed offsets: OffsetCommitKey 0-1 and OffsetCommitValue 0-4.

Key: type i16 (0 or 1) | group str | topic str | partition i32.
Value: version i16 | offset i64 | leaderEpoch i32 (3+) | metadata str | commitTimestamp i64 | expireTimestamp i64 (1
only).
Version 4 is flexible. Written: key 1; value 3, or 1 with an expire timestamp (a commit that carried a retention time).
Source: OffsetCommitKey.json, OffsetCommitValue.json; GroupCoordinatorRecordHelpers; reference, section 3.2.
"""

from __future__ import annotations

from struct import Struct

from muster_coordinator.records.errors import RecordDecodeError, UnsupportedValueVersionError
from muster_coordinator.records.primitives import INT32, MAX_STRING_BYTES, Cursor, encode_string
from muster_coordinator.records.structs import OffsetCommitValue

LEGACY_KEY_TYPE = 0
KEY_TYPE = 1
WRITTEN_VERSION = 3
EXPIRE_TIMESTAMP_VERSION = 1
"""The only version with a field for it."""
FLEXIBLE_VERSION = 4
LATEST_VERSION = 4
NO_TIMESTAMP = -1
NO_LEADER_EPOCH = -1

_KEY_PREFIX = b"\x00\x01"
_V3_HEAD = Struct(">hqih")  # version, offset, leader epoch, length of the metadata
_V1_HEAD = Struct(">hqh")
_V1_TAIL = Struct(">qq")  # commit timestamp, expire timestamp
_V3_EMPTY_METADATA = Struct(">hqihq")
_TIMESTAMP = Struct(">q")


def encode_offset_commit_key(group_id: str, topic: str, partition: int) -> bytes:
    return _KEY_PREFIX + encode_string(group_id) + encode_string(topic) + INT32.pack(partition)


def encode_offset_commit_value(value: OffsetCommitValue) -> bytes:
    """Version 3, or version 1 with an expire timestamp. ValueError if the metadata does not fit its int16 length."""
    if value.expire_timestamp_ms != NO_TIMESTAMP:
        raw = _metadata_bytes(value.metadata)
        return (
            _V1_HEAD.pack(EXPIRE_TIMESTAMP_VERSION, value.offset, len(raw))
            + raw
            + _V1_TAIL.pack(value.commit_timestamp_ms, value.expire_timestamp_ms)
        )
    if not value.metadata:
        return _V3_EMPTY_METADATA.pack(WRITTEN_VERSION, value.offset, value.leader_epoch, 0, value.commit_timestamp_ms)
    raw = _metadata_bytes(value.metadata)
    return (
        _V3_HEAD.pack(WRITTEN_VERSION, value.offset, value.leader_epoch, len(raw))
        + raw
        + _TIMESTAMP.pack(value.commit_timestamp_ms)
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
    if len(value) == _V3_EMPTY_METADATA.size and value.startswith(b"\x00\x03"):
        _, offset, leader_epoch, metadata_length, commit_ms = _V3_EMPTY_METADATA.unpack(value)
        if metadata_length == 0:
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
    cursor.skip_tagged_fields()
    return OffsetCommitValue(offset, leader_epoch, metadata, commit_ms, expire_ms)
