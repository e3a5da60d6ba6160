"""Groups of the consumer protocol (KIP-848): record types 3 to 8 and 16 of `__consumer_offsets`.

Keys: type i16 | groupId str, and memberId str (5, 7, 8) or regularExpression str (16). Values: version i16 (0),
flexible.

| type | value |
| 3 ConsumerGroupMetadata | epoch i32; tag 0 metadataHash i64 |
| 4 ConsumerGroupPartitionMetadata | read past: since 4.1 it is only ever removed (KIP-1101) |
| 5 ConsumerGroupMemberMetadata | instanceId, rackId nstr, clientId, clientHost str, subscribedTopicNames [str],
  subscribedTopicRegex nstr, rebalanceTimeoutMs i32, serverAssignor nstr; tag 0: i8 0 for null, the member is
  no classic one, or i8 1, sessionTimeoutMs i32, supportedProtocols [name str, metadata bytes] |
| 6 ConsumerGroupTargetAssignmentMetadata | assignmentEpoch i32; tag 0 assignmentTimestamp i64 (4.3, KIP-1263) |
| 7 ConsumerGroupTargetAssignmentMember | [topicId uuid, partitions [i32]] |
| 8 ConsumerGroupCurrentMemberAssignment | memberEpoch, previousMemberEpoch i32, state i8, assignedPartitions and
  partitionsPendingRevocation [topicId uuid, partitions [i32]; tag 0 assignmentEpochs [i32] (4.3, KIP-1251)] |
| 16 ConsumerGroupRegularExpression | topics [str], version, timestamp i64 |
| 9101 GroupConfigs, Muster's own: Kafka skips it (ADR 46) | configs [name str, value i32] |

A tagged field at its default is left out, as by Kafka; a tag that is not known is dropped.
Source: ConsumerGroup*Key.json, ConsumerGroup*Value.json, GroupCoordinatorRecordHelpers of 4.3.1.
"""

from __future__ import annotations

import struct

from muster_coordinator.records.consumer_group import (
    CONFIGS_TYPE,
    CURRENT_TYPE,
    MEMBER_TYPE,
    METADATA_TYPE,
    PARTITION_METADATA_TYPE,
    REGEX_TYPE,
    TARGET_MEMBER_TYPE,
    TARGET_METADATA_TYPE,
    ClassicMemberMetadata,
    ConsumerGroupCurrentValue,
    ConsumerGroupMemberValue,
    ConsumerGroupMetadataValue,
    ConsumerGroupRecord,
    ConsumerGroupRegexValue,
    ConsumerGroupTargetMemberValue,
    ConsumerGroupTargetMetadataValue,
    ConsumerGroupValue,
    GroupConfigsValue,
    OwnedPartitions,
)
from muster_coordinator.records.errors import RecordDecodeError, UnsupportedValueVersionError
from muster_coordinator.records.offset_commit import shared_topic_id
from muster_coordinator.records.primitives import INT16, INT32, INT64, MAX_STRING_BYTES, Cursor, encode_string
from muster_coordinator.records.varint import encode_unsigned

_NAMES = {
    METADATA_TYPE: "ConsumerGroupMetadata",
    PARTITION_METADATA_TYPE: "ConsumerGroupPartitionMetadata",
    MEMBER_TYPE: "ConsumerGroupMemberMetadata",
    TARGET_METADATA_TYPE: "ConsumerGroupTargetAssignmentMetadata",
    TARGET_MEMBER_TYPE: "ConsumerGroupTargetAssignmentMember",
    CURRENT_TYPE: "ConsumerGroupCurrentMemberAssignment",
    REGEX_TYPE: "ConsumerGroupRegularExpression",
    CONFIGS_TYPE: "GroupConfigs",
}
_WITH_NAME = frozenset({MEMBER_TYPE, TARGET_MEMBER_TYPE, CURRENT_TYPE, REGEX_TYPE})
_VERSION = INT16.pack(0)
_NO_TAGS = b"\x00"
_NULL = b"\x00"
_TAG = 0  # every value has one tagged field at most
_ABSENT, _PRESENT = 0, 1  # the first byte of a tagged structure that may be null
_UUID_BYTES = 16

_DEFAULT_CLASSIC = ClassicMemberMetadata(0, ())
"""The content of a value without the tagged field: null is written, the default is not."""


# -- keys -------------------------------------------------------------------------------------------------------------


def encode_consumer_group_key(record_type: int, group_id: str, name: str = "") -> bytes:
    """`name`: see ConsumerGroupRecord. ValueError if a string does not fit its int16 length."""
    key = INT16.pack(record_type) + encode_string(group_id)
    return key + encode_string(name) if record_type in _WITH_NAME else key


def decode_consumer_group_record(key: bytes, value: bytes | None) -> ConsumerGroupRecord:
    """The record of a key whose type is one of `TYPES`. Raises RecordDecodeError, UnsupportedValueVersionError."""
    record_type = int.from_bytes(key[:2], "big", signed=True)
    cursor = Cursor(key, 2, _NAMES[record_type] + "Key")
    group_id = cursor.string()
    name = cursor.string() if record_type in _WITH_NAME else ""
    decoded = None if value is None else _decode_value(record_type, value)
    return ConsumerGroupRecord(record_type, group_id, name, decoded)


# -- values, written --------------------------------------------------------------------------------------------------


def encode_consumer_group_value(value: ConsumerGroupValue) -> bytes:
    """Version 0. ValueError if a string does not fit a string of Kafka."""
    match value:
        case ConsumerGroupMetadataValue(epoch, metadata_hash):
            return _VERSION + INT32.pack(epoch) + _tagged(INT64.pack(metadata_hash) if metadata_hash else None)
        case ConsumerGroupMemberValue():
            return _encode_member(value)
        case ConsumerGroupTargetMetadataValue(epoch, timestamp_ms):
            return _VERSION + INT32.pack(epoch) + _tagged(INT64.pack(timestamp_ms) if timestamp_ms else None)
        case ConsumerGroupTargetMemberValue(topic_partitions):
            topics = [topic_id + _int32_array(partitions) + _NO_TAGS for topic_id, partitions in topic_partitions]
            return _VERSION + _array(topics) + _NO_TAGS
        case ConsumerGroupCurrentValue():
            return b"".join(
                (
                    _VERSION,
                    INT32.pack(value.member_epoch),
                    INT32.pack(value.previous_member_epoch),
                    value.state.to_bytes(1, "big", signed=True),
                    _array([_encode_owned(each) for each in value.assigned]),
                    _array([_encode_owned(each) for each in value.pending_revocation]),
                    _NO_TAGS,
                )
            )
        case ConsumerGroupRegexValue(topics_found, version, timestamp_ms):
            times = INT64.pack(version) + INT64.pack(timestamp_ms)
            return _VERSION + _array([_compact(each) for each in topics_found]) + times + _NO_TAGS
        case GroupConfigsValue(configs):
            entries = [_compact(name) + INT32.pack(number) + _NO_TAGS for name, number in configs]
            return _VERSION + _array(entries) + _NO_TAGS


def _encode_member(value: ConsumerGroupMemberValue) -> bytes:
    classic: bytes | None = _NULL
    if value.classic == _DEFAULT_CLASSIC:
        classic = None
    elif value.classic is not None:
        protocols = [
            _compact(name) + encode_unsigned(len(metadata) + 1) + metadata + _NO_TAGS
            for name, metadata in value.classic.supported_protocols
        ]
        timeout = INT32.pack(value.classic.session_timeout_ms)
        classic = bytes([_PRESENT]) + timeout + _array(protocols) + _NO_TAGS
    return b"".join(
        (
            _VERSION,
            _nullable(value.instance_id),
            _nullable(value.rack_id),
            _compact(value.client_id),
            _compact(value.client_host),
            _array([_compact(topic) for topic in value.subscribed_topic_names]),
            _nullable(value.subscribed_topic_regex),
            INT32.pack(value.rebalance_timeout_ms),
            _nullable(value.server_assignor),
            _tagged(classic),
        )
    )


def _encode_owned(owned: OwnedPartitions) -> bytes:
    epochs = None if owned.assignment_epochs is None else _int32_array(owned.assignment_epochs)
    return owned.topic_id + _int32_array(owned.partitions) + _tagged(epochs)


def _compact(text: str) -> bytes:
    raw = text.encode()
    if len(raw) > MAX_STRING_BYTES:
        raise ValueError(f"string of {len(raw)} bytes, at most {MAX_STRING_BYTES} fit")
    return encode_unsigned(len(raw) + 1) + raw


def _nullable(text: str | None) -> bytes:
    return _NULL if text is None else _compact(text)


def _array(elements: list[bytes]) -> bytes:
    return encode_unsigned(len(elements) + 1) + b"".join(elements)


def _int32_array(values: tuple[int, ...]) -> bytes:
    return encode_unsigned(len(values) + 1) + struct.pack(f">{len(values)}i", *values)


def _tagged(content: bytes | None) -> bytes:
    """The end of a structure whose one tagged field has `content`, or its default."""
    if content is None:
        return _NO_TAGS
    return encode_unsigned(1) + encode_unsigned(_TAG) + encode_unsigned(len(content)) + content


# -- values, read -----------------------------------------------------------------------------------------------------


def _decode_value(record_type: int, value: bytes) -> ConsumerGroupValue | None:
    what = _NAMES[record_type] + "Value"
    if len(value) < 2:
        raise RecordDecodeError(f"{what} of {len(value)} bytes")
    version = int.from_bytes(value[:2], "big", signed=True)
    if version != 0:
        raise UnsupportedValueVersionError(what, version)
    cursor = Cursor(value, 2, what, flexible=True)
    match record_type:
        case 3:
            epoch = cursor.int32()
            return ConsumerGroupMetadataValue(epoch, _tagged_int64(cursor, what))
        case 5:
            return _decode_member(cursor, what)
        case 6:
            epoch = cursor.int32()
            return ConsumerGroupTargetMetadataValue(epoch, _tagged_int64(cursor, what))
        case 7:
            topics = tuple([_decode_topic(cursor) for _ in range(cursor.array_length())])
            cursor.skip_tagged_fields()
            return ConsumerGroupTargetMemberValue(topics)
        case 8:
            return _decode_current(cursor, what)
        case 16:
            names = tuple([cursor.string() for _ in range(cursor.array_length())])
            regex = ConsumerGroupRegexValue(names, cursor.int64(), cursor.int64())
            cursor.skip_tagged_fields()
            return regex
        case 9101:
            configs = tuple([_decode_config(cursor) for _ in range(cursor.array_length())])
            cursor.skip_tagged_fields()
            return GroupConfigsValue(configs)
    return None


def _decode_member(cursor: Cursor, what: str) -> ConsumerGroupMemberValue:
    instance_id, rack_id = cursor.nullable_string(), cursor.nullable_string()
    client_id, client_host = cursor.string(), cursor.string()
    names = tuple([cursor.string() for _ in range(cursor.array_length())])
    regex, timeout_ms, assignor = cursor.nullable_string(), cursor.int32(), cursor.nullable_string()
    tagged = cursor.tagged_fields().get(_TAG)
    classic: ClassicMemberMetadata | None = _DEFAULT_CLASSIC
    if tagged is not None:
        inner = Cursor(tagged, 0, f"{what}: classicMemberMetadata", flexible=True)
        classic = _decode_classic(inner) if inner.int8() != _ABSENT else None
    return ConsumerGroupMemberValue(
        instance_id, rack_id, client_id, client_host, names, regex, timeout_ms, assignor, classic
    )


def _decode_classic(cursor: Cursor) -> ClassicMemberMetadata:
    session_timeout_ms = cursor.int32()
    protocols = tuple([_decode_protocol(cursor) for _ in range(cursor.array_length())])
    cursor.skip_tagged_fields()
    return ClassicMemberMetadata(session_timeout_ms, protocols)


def _decode_protocol(cursor: Cursor) -> tuple[str, bytes]:
    protocol = (cursor.string(), cursor.byte_string())
    cursor.skip_tagged_fields()
    return protocol


def _decode_config(cursor: Cursor) -> tuple[str, int]:
    config = (cursor.string(), cursor.int32())
    cursor.skip_tagged_fields()
    return config


def _decode_topic(cursor: Cursor) -> tuple[bytes, tuple[int, ...]]:
    topic = (shared_topic_id(cursor.fixed(_UUID_BYTES)), _decode_int32_array(cursor))
    cursor.skip_tagged_fields()
    return topic


def _decode_current(cursor: Cursor, what: str) -> ConsumerGroupCurrentValue:
    member_epoch, previous_epoch, state = cursor.int32(), cursor.int32(), cursor.int8()
    assigned = tuple([_decode_owned(cursor, what) for _ in range(cursor.array_length())])
    pending = tuple([_decode_owned(cursor, what) for _ in range(cursor.array_length())])
    cursor.skip_tagged_fields()
    return ConsumerGroupCurrentValue(member_epoch, previous_epoch, state, assigned, pending)


def _decode_owned(cursor: Cursor, what: str) -> OwnedPartitions:
    topic_id, partitions = shared_topic_id(cursor.fixed(_UUID_BYTES)), _decode_int32_array(cursor)
    tagged = cursor.tagged_fields().get(_TAG)
    if tagged is None:
        return OwnedPartitions(topic_id, partitions)
    inner = Cursor(tagged, 0, f"{what}: assignmentEpochs", flexible=True)
    count = inner.nullable_array_length()
    if count != len(partitions):
        return OwnedPartitions(topic_id, partitions)
    return OwnedPartitions(topic_id, partitions, tuple([inner.int32() for _ in range(count)]))


def _decode_int32_array(cursor: Cursor) -> tuple[int, ...]:
    return tuple([cursor.int32() for _ in range(cursor.array_length())])


def _tagged_int64(cursor: Cursor, what: str) -> int:
    content = cursor.tagged_fields().get(_TAG)
    if content is None:
        return 0
    if len(content) != INT64.size:
        raise RecordDecodeError(f"{what}: tagged field {_TAG} of {len(content)} bytes")
    number: int = INT64.unpack(content)[0]
    return number
