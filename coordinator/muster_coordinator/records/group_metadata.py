"""Classic groups: GroupMetadataKey 2 and GroupMetadataValue 0-4.

Key: type i16 (2) | group str.
Value: version i16 | protocolType str | generation i32 | protocol nstr | leader nstr | currentStateTimestamp i64 (2+) |
members array of: memberId str | groupInstanceId nstr (3+) | clientId str | clientHost str | rebalanceTimeout i32 (1+) |
sessionTimeout i32 | subscription bytes | assignment bytes. Version 4 is flexible. Written: value 3.
Source: GroupMetadataKey.json, GroupMetadataValue.json; GroupCoordinatorRecordHelpers; reference, section 3.2.
"""

from __future__ import annotations

from struct import Struct

import msgspec

from muster_coordinator.records.errors import RecordDecodeError, UnsupportedValueVersionError
from muster_coordinator.records.primitives import (
    INT16,
    INT32,
    Cursor,
    encode_bytes,
    encode_nullable_string,
    encode_string,
)

KEY_TYPE = 2
WRITTEN_VERSION = 3
FLEXIBLE_VERSION = 4
LATEST_VERSION = 4

_KEY_PREFIX = b"\x00\x02"
_TIMESTAMP_AND_COUNT = Struct(">qi")
_TIMEOUTS = Struct(">ii")


class GroupMember(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """`rebalance_timeout_ms` -1 (value version 0): the session timeout counts. `subscription` belongs to the
    group's protocol.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class GroupMetadataValue(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """`current_state_timestamp_ms` -1: unknown. `protocol_type` "": the group has none."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    current_state_timestamp_ms: int
    members: tuple[GroupMember, ...]


class GroupMetadataRecord(msgspec.Struct, frozen=True, gc=False):
    """`value` None: tombstone, the group was removed."""

    group_id: str
    value: GroupMetadataValue | None


def encode_group_metadata_key(group_id: str) -> bytes:
    return _KEY_PREFIX + encode_string(group_id)


def encode_group_metadata_value(value: GroupMetadataValue) -> bytes:
    """Version 3. ValueError if a string does not fit its int16 length."""
    parts = [
        INT16.pack(WRITTEN_VERSION),
        encode_string(value.protocol_type),
        INT32.pack(value.generation),
        encode_nullable_string(value.protocol),
        encode_nullable_string(value.leader),
        _TIMESTAMP_AND_COUNT.pack(value.current_state_timestamp_ms, len(value.members)),
    ]
    for member in value.members:
        parts += (
            encode_string(member.member_id),
            encode_nullable_string(member.group_instance_id),
            encode_string(member.client_id),
            encode_string(member.client_host),
            _TIMEOUTS.pack(member.rebalance_timeout_ms, member.session_timeout_ms),
            encode_bytes(member.subscription),
            encode_bytes(member.assignment),
        )
    return b"".join(parts)


def decode_group_metadata_key(key: bytes) -> str:
    """The group id of a key of type 2. Raises RecordDecodeError."""
    return Cursor(key, 2, "GroupMetadataKey").string()


def decode_group_metadata_value(value: bytes) -> GroupMetadataValue:
    """Raises UnsupportedValueVersionError, RecordDecodeError."""
    if len(value) < 2:
        raise RecordDecodeError(f"GroupMetadataValue of {len(value)} bytes")
    version = int.from_bytes(value[:2], "big", signed=True)
    if not 0 <= version <= LATEST_VERSION:
        raise UnsupportedValueVersionError("GroupMetadataValue", version)
    cursor = Cursor(value, 2, f"GroupMetadataValue v{version}", flexible=version >= FLEXIBLE_VERSION)
    protocol_type = cursor.string()
    generation = cursor.int32()
    protocol = cursor.nullable_string()
    leader = cursor.nullable_string()
    timestamp_ms = cursor.int64() if version >= 2 else -1
    members = tuple(_decode_member(cursor, version) for _ in range(cursor.array_length()))
    cursor.skip_tagged_fields()
    return GroupMetadataValue(protocol_type, generation, protocol, leader, timestamp_ms, members)


def _decode_member(cursor: Cursor, version: int) -> GroupMember:
    member = GroupMember(
        member_id=cursor.string(),
        group_instance_id=cursor.nullable_string() if version >= 3 else None,
        client_id=cursor.string(),
        client_host=cursor.string(),
        rebalance_timeout_ms=cursor.int32() if version >= 1 else -1,
        session_timeout_ms=cursor.int32(),
        subscription=cursor.byte_string(),
        assignment=cursor.byte_string(),
    )
    cursor.skip_tagged_fields()
    return member
