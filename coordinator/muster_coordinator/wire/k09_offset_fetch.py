"""OffsetFetch (9), versions 1 to 10, flexible from 6.

- v1: offsets from __consumer_offsets (v0, from ZooKeeper, is gone: KIP-896); a group's error stands on every partition
- v2: null topics ask for all of them; a group's error stands at the top (KIP-88)
- v3: throttle_time_ms in the response
- v4: as v3; a throttled answer is sent at once (KIP-219)
- v5: committed_leader_epoch in the response (KIP-320)
- v6: flexible
- v7: require_stable (KIP-447)
- v8: several groups (KIP-709)
- v9: member_id and member_epoch (KIP-848)
- v10: topic ids instead of names (KIP-848); a decoded request is then another type
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import lru_cache, partial

from muster_coordinator.requests.cluster import (
    OffsetFetchByIdRequests,
    OffsetFetchByIdResponses,
    OffsetFetchRequests,
    OffsetFetchResponses,
)
from muster_coordinator.requests.groups import (
    FetchedPartition,
    FetchedPartitions,
    OffsetFetchByIdRequest,
    OffsetFetchByIdResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from muster_coordinator.requests.packed_offsets import FoundOffsets
from muster_coordinator.requests.slices import SLICE_ENTRIES
from muster_coordinator.wire.api import Api, RequestHeader, guarded
from muster_coordinator.wire.codec import Reader, SlicedWriter, Writer

_FLEXIBLE_SINCE = 6
MIRROR_VERSION = 7
"""The one in which brokers are asked for a group that moves: Kafka 2.5 and later."""


@guarded
def decode_request(
    header: RequestHeader, frame: bytes, client_host: str
) -> OffsetFetchRequests | OffsetFetchByIdRequests:
    version = header.api_version
    reader = Reader(frame, header.body_position, header.flexible)
    if version >= 10:
        return _decode_by_id(reader)
    groups = reader.array(partial(_read_group, reader, version)) if version >= 8 else (_read_group(reader, version),)
    require_stable = reader.boolean() if version >= 7 else False
    reader.tagged_fields()
    return OffsetFetchRequests(tuple([OffsetFetchRequest(*each, require_stable) for each in groups]), require_stable)


def _read_group(
    reader: Reader, version: int
) -> tuple[str, str | None, int, tuple[tuple[str, tuple[int, ...]], ...] | None]:
    group_id = reader.string()
    member_id, member_epoch = (reader.nullable_string(), reader.int32()) if version >= 9 else (None, -1)
    topics = reader.nullable_array(reader.topic) if version >= 2 else reader.array(reader.topic)
    if version >= 8:
        reader.tagged_fields()
    return group_id, member_id, member_epoch, topics


def _decode_by_id(reader: Reader) -> OffsetFetchByIdRequests:
    groups = reader.array(partial(_read_group_by_id, reader))
    require_stable = reader.boolean()
    reader.tagged_fields()
    return OffsetFetchByIdRequests(
        tuple([OffsetFetchByIdRequest(*each, require_stable) for each in groups]), require_stable
    )


def _read_group_by_id(
    reader: Reader,
) -> tuple[str, str | None, int, tuple[tuple[bytes, tuple[int, ...]], ...] | None]:
    topic = partial(_read_topic_by_id, reader)
    value = (reader.string(), reader.nullable_string(), reader.int32(), reader.nullable_array(topic))
    reader.tagged_fields()
    return value


def _read_topic_by_id(reader: Reader) -> tuple[bytes, tuple[int, ...]]:
    value = (reader.uuid(), reader.array(reader.int32))
    reader.tagged_fields()
    return value


def encode_response(version: int, response: OffsetFetchResponses | OffsetFetchByIdResponses) -> bytes:
    writer = Writer(version >= _FLEXIBLE_SINCE)
    groups: tuple[OffsetFetchResponse | OffsetFetchByIdResponse, ...] = response.groups
    if version >= 3:
        writer.int32(0)
    if version >= 8:
        writer.array_length(len(groups))
        for group in groups:
            writer.string(group.group_id)
            _write_topics(writer, version, group)
            writer.int16(group.error_code)
            writer.tagged_fields()
        return writer.done()
    (only,) = groups
    _write_topics(writer, version, only)
    if version >= 2:
        writer.int16(only.error_code)
    return writer.done()


def slices(version: int, response: OffsetFetchResponses | OffsetFetchByIdResponses) -> Iterator[bytes] | None:
    count = 0
    groups: tuple[OffsetFetchResponse | OffsetFetchByIdResponse, ...] = response.groups
    for group in groups:
        count += 1
        for _, partitions in group.topics:
            count += 1 + len(partitions)
        if count > SLICE_ENTRIES:
            return _slices(version, groups)
    return None


def _slices(version: int, groups: tuple[OffsetFetchResponse | OffsetFetchByIdResponse, ...]) -> Iterator[bytes]:
    writer = SlicedWriter(version >= _FLEXIBLE_SINCE)
    if version >= 3:
        writer.int32(0)
    if version >= 8:
        writer.array_length(len(groups))
    for group in groups:
        if version >= 8:
            writer.string(group.group_id)
        topics = _topics(version, group)
        writer.array_length(len(topics))
        for name, partitions in topics:
            _write_name(writer, name)
            writer.array_length(len(partitions))
            for partition in partitions:
                _write_partition(writer, version, group.error_code, partition)
                if writer.is_full():
                    yield writer.taken()
            writer.tagged_fields()
            if writer.is_full():
                yield writer.taken()
        if version >= 2:
            writer.int16(group.error_code)
        if version >= 8:
            writer.tagged_fields()
            if writer.is_full():
                yield writer.taken()
    yield writer.done()


def _topics(
    version: int, group: OffsetFetchResponse | OffsetFetchByIdResponse
) -> tuple[tuple[str | bytes, FetchedPartitions], ...]:
    """The error of a group stands from v2 on at its top, and no topics with it."""
    return () if group.error_code and version >= 2 else group.topics


def _write_topics(writer: Writer, version: int, group: OffsetFetchResponse | OffsetFetchByIdResponse) -> None:
    topics = _topics(version, group)
    writer.array_length(len(topics))
    for name, partitions in topics:
        _write_name(writer, name)
        if isinstance(partitions, FoundOffsets) and version >= 5:
            writer.packed_array(len(partitions), _packed(partitions, version >= _FLEXIBLE_SINCE))
        else:
            writer.array_length(len(partitions))
            for each in partitions:
                _write_partition(writer, version, group.error_code, each)
        writer.tagged_fields()


def _write_name(writer: Writer, name: str | bytes) -> None:
    if isinstance(name, bytes):
        writer.uuid(name)
    else:
        writer.string(name)


def _write_partition(writer: Writer, version: int, group_error: int, partition: FetchedPartition) -> None:
    index, offset, leader_epoch, metadata, error_code = partition
    writer.int32(index)
    writer.int64(offset)
    if version >= 5:
        writer.int32(leader_epoch)
    writer.nullable_string(metadata)
    writer.int16(group_error or error_code)
    writer.tagged_fields()


def _packed(found: FoundOffsets, flexible: bool) -> bytes:
    count = len(found)
    numbers = [1 if flexible else 0] * (4 * count)
    numbers[0::4] = found.partitions
    numbers[1::4] = found.offsets
    numbers[2::4] = found.leader_epochs
    return _form(count, flexible).pack(*numbers)


@lru_cache(maxsize=64)
def _form(count: int, flexible: bool) -> struct.Struct:
    """Writes partition, offset, leader epoch and length of the metadata (that of none is 1 in a flexible version) of so
    many partitions; zeroes for the error code and for no tagged fields follow each. Up to 64 KB."""
    return struct.Struct(">" + ("iqibxxx" if flexible else "iqihxx") * count)


def encode_request(group_id: str) -> bytes:
    """The body of a request to a broker for all offsets of a group, none of which may be pending, in MIRROR_VERSION."""
    writer = Writer(API.flexible(MIRROR_VERSION))
    writer.string(group_id)
    writer.null_array()  # all topics
    writer.boolean(True)  # require_stable
    return writer.done()


def decode_response(reader: Reader, group_id: str) -> OffsetFetchResponse:
    """A broker's answer of MIRROR_VERSION. Raises what `Reader` raises."""
    reader.int32()  # throttle time
    topics = reader.array(partial(_read_fetched_topic, reader))
    return OffsetFetchResponse(group_id, reader.int16(), topics)


def _read_fetched_topic(reader: Reader) -> tuple[str, tuple[FetchedPartition, ...]]:
    value = (reader.string(), reader.array(partial(_read_fetched, reader)))
    reader.tagged_fields()
    return value


def _read_fetched(reader: Reader) -> FetchedPartition:
    place = reader.int32(), reader.int64(), reader.int32()
    value = (*place, reader.nullable_string() or "", reader.int16())
    reader.tagged_fields()
    return value


API = Api(9, "OffsetFetch", 1, 10, _FLEXIBLE_SINCE, decode_request, encode_response, slices)
