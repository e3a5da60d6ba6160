"""The decoded contents of records. They are apart from the functions that read and write them: those modules are
compiled, and msgspec needs its Structs as Python sees them (ADR 13).
"""

from __future__ import annotations

import msgspec

NO_TOPIC_ID = bytes(16)
"""Kafka's Uuid.ZERO_UUID: the topic has no id, or it is not known."""


class BatchRecord(msgspec.Struct, frozen=True, gc=False):
    """One record of a batch. Headers are skipped: the coordinator neither writes nor reads any."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


class OffsetCommitValue(msgspec.Struct, frozen=True, gc=False):
    """`leader_epoch` -1: unknown. `expire_timestamp_ms` -1: the group's retention decides (KIP-211). `topic_id`: 16
    bytes, of the topic as it was when the offset was committed; NO_TOPIC_ID if unknown.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = -1
    topic_id: bytes = NO_TOPIC_ID


class OffsetCommitRecord(msgspec.Struct, frozen=True, gc=False):
    """`value` None: tombstone, the offset was removed."""

    group_id: str
    topic: str
    partition: int
    value: OffsetCommitValue | None


class UnknownRecord(msgspec.Struct, frozen=True, gc=False):
    """A record of a type that this coordinator does not hold; `name` is Kafka's, "" if it is not even known by
    name.
    """

    type: int
    name: str
