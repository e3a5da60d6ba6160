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

from muster_coordinator.requests.cluster import (
    OffsetFetchByIdRequests,
    OffsetFetchByIdResponses,
    OffsetFetchRequests,
    OffsetFetchResponses,
)
from muster_coordinator.requests.groups import (
    OffsetFetchByIdRequest,
    OffsetFetchByIdResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from muster_coordinator.wire.api import Api, RequestHeader, guarded
from muster_coordinator.wire.codec import Reader, Writer

_BARE, _BARE_FLEXIBLE = struct.Struct(">iqihh"), struct.Struct(">iqibhb")
"""A partition without metadata, as most are: index, offset, leader epoch, length of the metadata, error code; and that
there are no tagged fields."""
_Partition = tuple[int, int, int, str, int]
_Topic = tuple[str | bytes, tuple[_Partition, ...]]
_Responses = OffsetFetchResponses | OffsetFetchByIdResponses
_Response = OffsetFetchResponse | OffsetFetchByIdResponse


@guarded
def decode_request(
    header: RequestHeader, frame: bytes, client_host: str
) -> OffsetFetchRequests | OffsetFetchByIdRequests:
    if header.api_version >= 10:
        return _decode_by_id(header, frame)
    version = header.api_version
    reader = Reader(frame, header.body_position, header.flexible)

    def topic() -> tuple[str, tuple[int, ...]]:
        value = (reader.string(), reader.array(reader.int32))
        reader.tagged_fields()
        return value

    def group() -> tuple[str, str | None, int, tuple[tuple[str, tuple[int, ...]], ...] | None]:
        group_id = reader.string()
        member_id, member_epoch = (reader.nullable_string(), reader.int32()) if version >= 9 else (None, -1)
        topics = reader.nullable_array(topic) if version >= 2 else reader.array(topic)
        if version >= 8:
            reader.tagged_fields()
        return group_id, member_id, member_epoch, topics

    groups = reader.array(group) if version >= 8 else (group(),)
    require_stable = reader.boolean() if version >= 7 else False
    reader.tagged_fields()
    return OffsetFetchRequests(tuple([OffsetFetchRequest(*each, require_stable) for each in groups]), require_stable)


def _decode_by_id(header: RequestHeader, frame: bytes) -> OffsetFetchByIdRequests:
    reader = Reader(frame, header.body_position, header.flexible)

    def topic() -> tuple[bytes, tuple[int, ...]]:
        value = (reader.uuid(), reader.array(reader.int32))
        reader.tagged_fields()
        return value

    def group() -> tuple[str, str | None, int, tuple[tuple[bytes, tuple[int, ...]], ...] | None]:
        value = (reader.string(), reader.nullable_string(), reader.int32(), reader.nullable_array(topic))
        reader.tagged_fields()
        return value

    groups = reader.array(group)
    require_stable = reader.boolean()
    reader.tagged_fields()
    return OffsetFetchByIdRequests(
        tuple([OffsetFetchByIdRequest(*each, require_stable) for each in groups]), require_stable
    )


def encode_response(version: int, response: _Responses) -> bytes:
    writer = Writer(API.flexible(version))
    groups: tuple[_Response, ...] = response.groups
    if version >= 3:
        writer.int32(0)
    if version >= 8:

        def group(value: _Response) -> None:
            writer.string(value.group_id)
            _topics(writer, version, value)
            writer.int16(value.error_code)
            writer.tagged_fields()

        writer.array(groups, group)
        return writer.done()
    (only,) = groups
    _topics(writer, version, only)
    if version >= 2:
        writer.int16(only.error_code)
    return writer.done()


def _topics(writer: Writer, version: int, group: _Response) -> None:
    # The error of a group: from v2 at its top, and no topics with it.
    topics: tuple[_Topic, ...] = () if group.error_code and version >= 2 else group.topics

    def partition(value: _Partition) -> None:
        index, offset, leader_epoch, metadata, error_code = value
        writer.int32(index)
        writer.int64(offset)
        if version >= 5:
            writer.int32(leader_epoch)
        writer.nullable_string(metadata)
        writer.int16(group.error_code or error_code)
        writer.tagged_fields()

    def topic(value: _Topic) -> None:
        if isinstance(value[0], bytes):
            writer.uuid(value[0])
        else:
            writer.string(value[0])
        if version >= 5 and not group.error_code and all(each[3] == "" for each in value[1]):
            writer.packed_array(_bare(value[1], version >= 6))
        else:
            writer.array(value[1], partition)
        writer.tagged_fields()

    writer.array(topics, topic)


def _bare(partitions: tuple[_Partition, ...], flexible: bool) -> list[bytes]:
    if flexible:
        pack = _BARE_FLEXIBLE.pack
        return [pack(index, offset, epoch, 1, error_code, 0) for index, offset, epoch, _, error_code in partitions]
    pack = _BARE.pack
    return [pack(index, offset, epoch, 0, error_code) for index, offset, epoch, _, error_code in partitions]


API = Api(9, "OffsetFetch", 1, 10, 6, decode_request, encode_response)
