"""The embedded protocol of classic consumers: what a member says that it subscribes to and has, and what it is given.

Plain encoding of all versions, never flexible: int16 version, then

| ConsumerProtocolSubscription | topics [str], userData nbytes; v1+ ownedPartitions [topic str, partitions [i32]];
  v2+ generationId i32; v3+ rackId nstr |
| ConsumerProtocolAssignment | assignedPartitions [topic str, partitions [i32]], userData nbytes |

A version above 3 is read as 3, as by Kafka. Source: ConsumerProtocol of 4.3.1.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from muster_coordinator.records.errors import RecordDecodeError
from muster_coordinator.records.primitives import INT16, INT32, Cursor

_NEWEST = 3
_OWNED_SINCE, _GENERATION_SINCE, _RACK_SINCE = 1, 2, 3
_NULL_BYTES = INT32.pack(-1)

Partitions: TypeAlias = tuple[tuple[str, tuple[int, ...]], ...]
"""(topic, partitions) each."""


class EmbeddedProtocolError(ValueError):
    """Bytes that are no subscription or no assignment; the message says which."""


class Subscription(NamedTuple):
    """`owned`: what the member says that it has; nothing before v1. `rack_id` None: not told."""

    topics: tuple[str, ...]
    owned: Partitions = ()
    rack_id: str | None = None


class Assigned(NamedTuple):
    """`has_user_data`: there is something that only the assignor of the member understands."""

    partitions: Partitions = ()
    has_user_data: bool = False


def read_subscription(metadata: bytes) -> Subscription:
    """Raises EmbeddedProtocolError."""
    what = "a ConsumerProtocolSubscription"
    try:
        version = version_of(metadata)
        cursor = Cursor(metadata, 2, what)
        topics = tuple([cursor.string() for _ in range(cursor.array_length())])
        _read_bytes(cursor)
        owned = _read_partitions(cursor) if version >= _OWNED_SINCE else ()
        if version >= _GENERATION_SINCE:
            cursor.int32()
        rack_id = cursor.nullable_string() if version >= _RACK_SINCE else None
    except RecordDecodeError as error:
        raise EmbeddedProtocolError(f"{len(metadata)} bytes are not {what}: {error}") from error
    return Subscription(topics, owned, rack_id or None)


def read_assignment(assignment: bytes) -> Assigned:
    """Raises EmbeddedProtocolError. No bytes: the member has never been given anything."""
    if not assignment:
        return Assigned()
    what = "a ConsumerProtocolAssignment"
    try:
        version_of(assignment)
        cursor = Cursor(assignment, 2, what)
        partitions = _read_partitions(cursor)
        return Assigned(partitions, _read_bytes(cursor) > 0)
    except RecordDecodeError as error:
        raise EmbeddedProtocolError(f"{len(assignment)} bytes are not {what}: {error}") from error


def version_of(data: bytes) -> int:
    """The version of a subscription, or of an assignment, that can be read. Raises EmbeddedProtocolError."""
    if len(data) < INT16.size:
        raise EmbeddedProtocolError(f"{len(data)} bytes have no version of the consumer protocol")
    version = int(INT16.unpack_from(data)[0])
    if version < 0:
        raise EmbeddedProtocolError(f"version {version} of the consumer protocol")
    return min(version, _NEWEST)


def write_assignment(partitions: Iterable[tuple[str, Iterable[int]]], version: int) -> bytes:
    """The bytes of an assignment without user data. `version`: that of the member's subscription."""
    topics = [_text(topic) + _int32_array(sorted(each)) for topic, each in partitions]
    return INT16.pack(version) + INT32.pack(len(topics)) + b"".join(topics) + _NULL_BYTES


def _text(text: str) -> bytes:
    raw = text.encode()
    return INT16.pack(len(raw)) + raw


def _int32_array(values: list[int]) -> bytes:
    return INT32.pack(len(values)) + b"".join([INT32.pack(value) for value in values])


def _read_partitions(cursor: Cursor) -> Partitions:
    return tuple([(cursor.string(), _read_int32_array(cursor)) for _ in range(cursor.array_length())])


def _read_int32_array(cursor: Cursor) -> tuple[int, ...]:
    return tuple([cursor.int32() for _ in range(cursor.array_length())])


def _read_bytes(cursor: Cursor) -> int:
    """Read past nullable bytes; returns their number."""
    length = cursor.int32()
    return len(cursor.fixed(length)) if length > 0 else 0
