"""Decodes a record's bytes to the change that it stands for. The inverse of the encoders of `offset_commit`,
`group_metadata` and `consumer_group_codec`.

A record type that is not known is skipped by the caller; an unknown version of a known value is an error: nothing of a
group is dropped silently. Source: GroupCoordinatorRecordSerde, KIP-915.
"""

from __future__ import annotations

from typing import TypeAlias

from muster_coordinator.records import consumer_group, group_metadata, offset_commit
from muster_coordinator.records.consumer_group import ConsumerGroupRecord
from muster_coordinator.records.consumer_group_codec import decode_consumer_group_record
from muster_coordinator.records.errors import RecordDecodeError
from muster_coordinator.records.group_metadata import (
    GroupMetadataRecord,
    decode_group_metadata_key,
    decode_group_metadata_value,
)
from muster_coordinator.records.offset_commit import (
    decode_offset_commit_key,
    decode_offset_commit_value,
    encode_offset_commit_key,
)
from muster_coordinator.records.primitives import INT32
from muster_coordinator.records.structs import OffsetCommitRecord, UnknownRecord

_OFFSET_COMMIT_TYPE = offset_commit.KEY_TYPE.to_bytes(2, "big")
_PARTITION_BYTES = INT32.size
_unpack_partition = INT32.unpack_from

Change: TypeAlias = OffsetCommitRecord | GroupMetadataRecord | ConsumerGroupRecord | UnknownRecord

RECORD_TYPE_NAMES: dict[int, str] = {
    offset_commit.LEGACY_KEY_TYPE: "LegacyOffsetCommit",
    offset_commit.KEY_TYPE: "OffsetCommit",
    group_metadata.KEY_TYPE: "GroupMetadata",
    3: "ConsumerGroupMetadata",
    4: "ConsumerGroupPartitionMetadata",
    5: "ConsumerGroupMemberMetadata",
    6: "ConsumerGroupTargetAssignmentMetadata",
    7: "ConsumerGroupTargetAssignmentMember",
    8: "ConsumerGroupCurrentMemberAssignment",
    9: "ShareGroupPartitionMetadata",
    10: "ShareGroupMemberMetadata",
    11: "ShareGroupMetadata",
    12: "ShareGroupTargetAssignmentMetadata",
    13: "ShareGroupTargetAssignmentMember",
    14: "ShareGroupCurrentMemberAssignment",
    15: "ShareGroupStatePartitionMetadata",
    16: "ConsumerGroupRegularExpression",
    17: "StreamsGroupMetadata",
    18: "StreamsGroupPartitionMetadata",
    19: "StreamsGroupMemberMetadata",
    20: "StreamsGroupTargetAssignmentMetadata",
    21: "StreamsGroupTargetAssignmentMember",
    22: "StreamsGroupCurrentMemberAssignment",
    23: "StreamsGroupTopology",
    24: "StreamsGroupTargetAssignmentResolvedTopicIds",
}
"""CoordinatorRecordType; types from 3 on belong to the KIP-848, share and streams protocols."""


def decode_record(key: bytes | None, value: bytes | None) -> Change:
    """Raises RecordDecodeError (a null key included), UnsupportedValueVersionError."""
    if key is None or len(key) < 2:
        raise RecordDecodeError("record without a key" if key is None else f"key of {len(key)} bytes")
    record_type = int.from_bytes(key[:2], "big", signed=True)
    if record_type in (offset_commit.KEY_TYPE, offset_commit.LEGACY_KEY_TYPE):
        group_id, topic, partition = decode_offset_commit_key(key)
        return OffsetCommitRecord(
            group_id, topic, partition, None if value is None else decode_offset_commit_value(value)
        )
    if record_type == group_metadata.KEY_TYPE:
        group_id = decode_group_metadata_key(key)
        return GroupMetadataRecord(group_id, None if value is None else decode_group_metadata_value(value))
    if record_type in consumer_group.TYPES:
        return decode_consumer_group_record(key, value)
    return UnknownRecord(record_type, RECORD_TYPE_NAMES.get(record_type, ""))


class LogDecoder:
    """`decode_record` for the records of one log: groups commit many partitions of few topics, so the names in the
    keys of offsets are parsed once. Bounded: a log of ever new names costs no memory, only the parsing.
    """

    NAMES_MAX = 1_000

    def __init__(self) -> None:
        self._names: dict[bytes, tuple[str, str]] = {}  # a key without its partition, which is the end of it

    def decode(self, key: bytes | None, value: bytes | None) -> Change:
        """See `decode_record`."""
        if key is None or not key.startswith(_OFFSET_COMMIT_TYPE):
            return decode_record(key, value)
        names = self._names.get(key[:-_PARTITION_BYTES])
        if names is None:
            group_id, topic, partition = decode_offset_commit_key(key)
            self._learn(key, group_id, topic, partition)
        else:
            group_id, topic = names
            (partition,) = _unpack_partition(key, len(key) - _PARTITION_BYTES)
        return OffsetCommitRecord(
            group_id, topic, partition, None if value is None else decode_offset_commit_value(value)
        )

    def _learn(self, key: bytes, group_id: str, topic: str, partition: int) -> None:
        if key != encode_offset_commit_key(group_id, topic, partition):
            return  # something lies after its partition
        if len(self._names) >= self.NAMES_MAX:
            self._names.clear()
        self._names[key[:-_PARTITION_BYTES]] = (group_id, topic)
