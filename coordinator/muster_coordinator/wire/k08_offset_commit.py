"""OffsetCommit (8), versions 2 to 10, flexible from 8. The hot path: no `Reader`, precompiled structs.

- v2: retention_time_ms (v0 and v1 are gone: KIP-896)
- v3: throttle_time_ms in the response
- v4: as v3; a throttled answer is sent at once (KIP-219)
- v5: retention_time_ms is gone (KIP-211)
- v6: committed_leader_epoch (KIP-320)
- v7: group_instance_id (KIP-345)
- v8: flexible
- v9: errors of the consumer protocol (KIP-848); GROUP_ID_NOT_FOUND for an unknown group
- v10: topic ids instead of names (KIP-848); a decoded request is then another type
"""

from __future__ import annotations

import struct
from functools import lru_cache

from muster_coordinator.requests.groups import (
    OffsetCommitByIdRequest,
    OffsetCommitByIdResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    PartitionResults,
)
from muster_coordinator.requests.packed_offsets import (
    ENTRY_BYTES,
    PACKED_MAX,
    PACKED_MIN,
    AcceptedOffsets,
    PackedOffsets,
)
from muster_coordinator.requests.slices import SLICE_ENTRIES
from muster_coordinator.wire.api import Api, RequestHeader, guarded
from muster_coordinator.wire.primitives import (
    array_length,
    compact_array_length,
    compact_nullable_string,
    compact_string,
    encode_uvarint,
    nullable_string,
    skip_tagged_fields,
    string,
)
from muster_coordinator.wire.slicing import paced, pause

_GENERATION = struct.Struct(">i")
_RETENTION = struct.Struct(">q")
_PARTITION = struct.Struct(">iq")  # index, offset
_PARTITION_EPOCH = struct.Struct(">iqi")  # index, offset, leader epoch

_RESULT = struct.Struct(">ih")  # index, error code
_RESULT_FLEXIBLE = struct.Struct(">ihx")
_INDEX_BYTES = 4
_NO_TAGS = b"\0"

_BY_ID_SINCE = 10
_ID_BYTES = 16

_Partition = tuple[int, int, int, str | None]
_Topic = tuple[str, PartitionResults]
_TopicById = tuple[bytes, PartitionResults]

_NULL_METADATA, _EMPTY_METADATA = -1, 0  # as an int16
_NULL_METADATA_FLEXIBLE, _EMPTY_METADATA_FLEXIBLE = 0, 0x100  # a compact length and no tagged field, as an int16


@guarded
def decode_request(
    header: RequestHeader, frame: bytes, client_host: str
) -> OffsetCommitRequest | OffsetCommitByIdRequest:
    if header.api_version >= _BY_ID_SINCE:
        return _decode_by_id(header, frame)
    if header.api_version >= 8:
        return _decode_flexible(header, frame)
    return _decode_plain(header, frame)


def _decode_flexible(header: RequestHeader, frame: bytes) -> OffsetCommitRequest:
    group_id, position = compact_string(frame, header.body_position)
    generation_id = _GENERATION.unpack_from(frame, position)[0]
    member_id, position = compact_string(frame, position + 4)
    group_instance_id, position = compact_nullable_string(frame, position)
    topic_count, position = compact_array_length(frame, position)
    topics = []
    entries = 0
    for _ in range(topic_count):
        topic, position = compact_string(frame, position)
        partitions, position = _partitions(frame, position)
        topics.append((topic, partitions))
        entries += 1 + len(partitions)
        if entries >= SLICE_ENTRIES:
            entries = 0
            pause()
    skip_tagged_fields(frame, position)
    return OffsetCommitRequest(
        group_id, generation_id, member_id, group_instance_id, -1, tuple(topics), header.api_version
    )


def _decode_by_id(header: RequestHeader, frame: bytes) -> OffsetCommitByIdRequest:
    group_id, position = compact_string(frame, header.body_position)
    generation_id = _GENERATION.unpack_from(frame, position)[0]
    member_id, position = compact_string(frame, position + 4)
    group_instance_id, position = compact_nullable_string(frame, position)
    topic_count, position = compact_array_length(frame, position)
    topics = []
    entries = 0
    for _ in range(topic_count):
        topic_id = frame[position : position + _ID_BYTES]
        partitions, position = _partitions(frame, position + _ID_BYTES)
        topics.append((topic_id, partitions))
        entries += 1 + len(partitions)
        if entries >= SLICE_ENTRIES:
            entries = 0
            pause()
    skip_tagged_fields(frame, position)
    return OffsetCommitByIdRequest(
        group_id, generation_id, member_id, group_instance_id, tuple(topics), header.api_version
    )


@lru_cache(maxsize=64)
def _entries(count: int) -> struct.Struct:
    """Reads partition, offset, leader epoch and the last two bytes of so many entries. Up to 64 KB each."""
    return struct.Struct(">" + "iqih" * count)


def _packed(frame: bytes, position: int, count: int, null: int, empty: int) -> PackedOffsets | None:
    """The partitions of a topic in one piece; None if one has metadata: they must be read one by one then. `null`,
    `empty`: the last two bytes of a partition without."""
    numbers: tuple[int, ...] = _entries(count).unpack_from(frame, position)
    metadata = numbers[3::4]
    if metadata.count(empty) == count:
        text: str | None = ""
    elif metadata.count(null) == count:
        text = None
    else:
        return None
    end = position + ENTRY_BYTES * count
    return PackedOffsets(frame[position:end], numbers[0::4], numbers[1::4], numbers[2::4], text)


def _partitions(frame: bytes, position: int) -> tuple[tuple[_Partition, ...] | PackedOffsets, int]:
    """The partitions of a topic in a flexible version, and the position after the topic."""
    partition_count, position = compact_array_length(frame, position)
    if PACKED_MIN <= partition_count <= PACKED_MAX:
        packed = _packed(frame, position, partition_count, _NULL_METADATA_FLEXIBLE, _EMPTY_METADATA_FLEXIBLE)
        if packed is not None:
            return packed, skip_tagged_fields(frame, position + ENTRY_BYTES * partition_count)
    partitions: list[_Partition] = []
    for done in range(partition_count):
        if done and not done % SLICE_ENTRIES:
            pause()
        index, offset, leader_epoch = _PARTITION_EPOCH.unpack_from(frame, position)
        metadata, position = compact_nullable_string(frame, position + 16)
        position = skip_tagged_fields(frame, position)
        partitions.append((index, offset, leader_epoch, metadata))
    return tuple(partitions), skip_tagged_fields(frame, position)


def _decode_plain(header: RequestHeader, frame: bytes) -> OffsetCommitRequest:
    version = header.api_version
    group_id, position = string(frame, header.body_position)
    generation_id = _GENERATION.unpack_from(frame, position)[0]
    member_id, position = string(frame, position + 4)
    group_instance_id = None
    retention_time_ms = -1
    if version >= 7:
        group_instance_id, position = nullable_string(frame, position)
    elif version <= 4:
        retention_time_ms = _RETENTION.unpack_from(frame, position)[0]
        position += 8
    topic_count, position = array_length(frame, position)
    topics: list[tuple[str, tuple[_Partition, ...] | PackedOffsets]] = []
    entries = 0
    for _ in range(topic_count):
        topic, position = string(frame, position)
        partition_count, position = array_length(frame, position)
        entries += 1 + partition_count
        if entries >= SLICE_ENTRIES:
            entries = 0
            pause()
        if version >= 6 and PACKED_MIN <= partition_count <= PACKED_MAX:
            packed = _packed(frame, position, partition_count, _NULL_METADATA, _EMPTY_METADATA)
            if packed is not None:
                topics.append((topic, packed))
                position += ENTRY_BYTES * partition_count
                continue
        partitions: list[_Partition] = []
        for read in range(partition_count):
            if read and not read % SLICE_ENTRIES:
                pause()
            if version >= 6:
                index, offset, leader_epoch = _PARTITION_EPOCH.unpack_from(frame, position)
                metadata, position = nullable_string(frame, position + 16)
            else:
                index, offset = _PARTITION.unpack_from(frame, position)
                leader_epoch = -1
                metadata, position = nullable_string(frame, position + 12)
            partitions.append((index, offset, leader_epoch, metadata))
        topics.append((topic, tuple(partitions)))
    return OffsetCommitRequest(
        group_id, generation_id, member_id, group_instance_id, retention_time_ms, tuple(topics), version
    )


_THROTTLE = bytes(4)
_COUNT = struct.Struct(">i")
_LENGTH = struct.Struct(">h")


def encode_response(version: int, response: OffsetCommitResponse | OffsetCommitByIdResponse) -> bytes:
    if isinstance(response, OffsetCommitByIdResponse):
        return _encode_by_id(response.topics)
    topics = response.topics
    if len(topics) == 1 and len(topics[0][1]) == 1:
        return _encode_one(version, topics[0])
    return _encode_topics(version, topics)


def _encode_by_id(topics: tuple[_TopicById, ...]) -> bytes:
    parts = [_THROTTLE, encode_uvarint(len(topics) + 1)]
    for topic_id, partitions in paced(topics):
        parts += (topic_id, encode_uvarint(len(partitions) + 1))
        parts.append(_results(partitions, _RESULT_FLEXIBLE))
        parts.append(_NO_TAGS)
    parts.append(_NO_TAGS)
    return b"".join(parts)


def _results(partitions: PartitionResults, result: struct.Struct) -> bytes:
    if isinstance(partitions, AcceptedOffsets):
        data = partitions.committed.data
        size = result.size
        out = bytearray(size * len(partitions))
        for index in range(_INDEX_BYTES):  # those of all partitions at once, with the error code 0 after each
            out[index::size] = data[index::ENTRY_BYTES]
        return bytes(out)
    return b"".join([result.pack(index, error_code) for index, error_code in partitions])


@lru_cache(maxsize=4096)
def _encode_one(version: int, topic: _Topic) -> bytes:
    """Consumers commit the same partition over and over: its answer is the same bytes until it is an error."""
    return _encode_topics(version, (topic,))


def _encode_topics(version: int, topics: tuple[_Topic, ...]) -> bytes:
    if version >= 8:
        parts = [_THROTTLE, encode_uvarint(len(topics) + 1)]
        for topic, partitions in paced(topics):
            name = topic.encode()
            parts += (encode_uvarint(len(name) + 1), name, encode_uvarint(len(partitions) + 1))
            parts.append(_results(partitions, _RESULT_FLEXIBLE))
            parts.append(_NO_TAGS)
        parts.append(_NO_TAGS)
        return b"".join(parts)
    parts = [_THROTTLE] if version >= 3 else []
    parts.append(_COUNT.pack(len(topics)))
    for topic, partitions in paced(topics):
        name = topic.encode()
        parts += (_LENGTH.pack(len(name)), name, _COUNT.pack(len(partitions)))
        parts.append(_results(partitions, _RESULT))
    return b"".join(parts)


API = Api(8, "OffsetCommit", 2, 10, 8, decode_request, encode_response)
