"""ListOffsets (2), versions 1 to 11, flexible from 6.

- v1: one offset for a timestamp (v0, with lists of offsets, is gone: KIP-896)
- v2: isolation_level (KIP-98); throttle_time_ms in the response
- v3: as v2; a throttled answer is sent at once (KIP-219)
- v4: current_leader_epoch, leader_epoch in the response (KIP-320)
- v5: as v4; OFFSET_NOT_AVAILABLE (KIP-207)
- v6: flexible
- v7: timestamp -3, the offset of the largest timestamp (KIP-734)
- v8: timestamp -4, the earliest local offset (KIP-405)
- v9: timestamp -5, the last tiered offset (KIP-1005)
- v10: timeout_ms (KIP-1075)
- v11: timestamp -6, the earliest offset that is still to be tiered (KIP-1023)
"""

from __future__ import annotations

from collections.abc import Iterator

from muster_coordinator.requests.cluster import ListOffsetsRequest, ListOffsetsResponse
from muster_coordinator.requests.slices import SLICE_ENTRIES
from muster_coordinator.wire.api import Api, RequestHeader, guarded
from muster_coordinator.wire.codec import Reader, SlicedWriter, Writer

MIRROR_VERSION = 6
"""The version in which a mirror asks brokers."""

_Topic = tuple[str, tuple[tuple[int, int, int, int, int], ...]]


@guarded
def decode_request(header: RequestHeader, frame: bytes, client_host: str) -> ListOffsetsRequest:
    version = header.api_version
    reader = Reader(frame, header.body_position, header.flexible)

    def partition() -> tuple[int, int, int]:
        value = (reader.int32(), reader.int32() if version >= 4 else -1, reader.int64())
        reader.tagged_fields()
        return value

    def topic() -> tuple[str, tuple[tuple[int, int, int], ...]]:
        value = (reader.string(), reader.array(partition))
        reader.tagged_fields()
        return value

    replica_id = reader.int32()
    isolation_level = reader.int8() if version >= 2 else 0
    topics = reader.array(topic)
    if version >= 10:
        reader.int32()  # timeout_ms, for offsets that a broker has to fetch from tiered storage
    reader.tagged_fields()
    return ListOffsetsRequest(replica_id, isolation_level, topics)


def encode_response(version: int, response: ListOffsetsResponse) -> bytes:
    return b"".join(_slices(version, response))


def slices(version: int, response: ListOffsetsResponse) -> Iterator[bytes] | None:
    entries = sum([1 + len(partitions) for _, partitions in response.topics])
    return _slices(version, response) if entries > SLICE_ENTRIES else None


def _slices(version: int, response: ListOffsetsResponse) -> Iterator[bytes]:
    writer = SlicedWriter(API.flexible(version))
    if version >= 2:
        writer.int32(0)
    writer.array_length(len(response.topics))
    for name, partitions in response.topics:
        writer.string(name)
        writer.array_length(len(partitions))
        for index, error_code, timestamp, offset, leader_epoch in partitions:
            writer.int32(index)
            writer.int16(error_code)
            writer.int64(timestamp)
            writer.int64(offset)
            if version >= 4:
                writer.int32(leader_epoch)
            writer.tagged_fields()
            if writer.is_full():
                yield writer.taken()
        writer.tagged_fields()
    yield writer.done()


def encode_request(request: ListOffsetsRequest) -> bytes:
    """The body of a request to a broker, in MIRROR_VERSION."""
    writer = Writer(API.flexible(MIRROR_VERSION))

    def partition(value: tuple[int, int, int]) -> None:
        index, leader_epoch, timestamp = value
        writer.int32(index)
        writer.int32(leader_epoch)
        writer.int64(timestamp)
        writer.tagged_fields()

    def topic(value: tuple[str, tuple[tuple[int, int, int], ...]]) -> None:
        writer.string(value[0])
        writer.array(value[1], partition)
        writer.tagged_fields()

    writer.int32(request.replica_id)
    writer.int8(request.isolation_level)
    writer.array(request.topics, topic)
    return writer.done()


def decode_response(reader: Reader) -> ListOffsetsResponse:
    """A broker's answer of MIRROR_VERSION. Raises what `Reader` raises."""

    def partition() -> tuple[int, int, int, int, int]:
        value = (reader.int32(), reader.int16(), reader.int64(), reader.int64(), reader.int32())
        reader.tagged_fields()
        return value

    def topic() -> _Topic:
        value = (reader.string(), reader.array(partition))
        reader.tagged_fields()
        return value

    reader.int32()  # throttle time
    return ListOffsetsResponse(reader.array(topic))


API = Api(2, "ListOffsets", 1, 11, 6, decode_request, encode_response, slices)
