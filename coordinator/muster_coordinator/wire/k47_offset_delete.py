"""OffsetDelete (47), version 0, not flexible (KIP-496)."""

from __future__ import annotations

from muster_coordinator.requests.groups import OffsetDeleteRequest, OffsetDeleteResponse
from muster_coordinator.wire.api import Api, RequestHeader, guarded
from muster_coordinator.wire.codec import Reader, Writer


@guarded
def decode_request(header: RequestHeader, frame: bytes, client_host: str) -> OffsetDeleteRequest:
    reader = Reader(frame, header.body_position, header.flexible)
    group_id = reader.string()
    topics = reader.array(reader.topic)
    return OffsetDeleteRequest(group_id, topics)


def encode_response(version: int, response: OffsetDeleteResponse) -> bytes:
    writer = Writer(API.flexible(version))

    def partition(value: tuple[int, int]) -> None:
        writer.int32(value[0])
        writer.int16(value[1])

    def topic(value: tuple[str, tuple[tuple[int, int], ...]]) -> None:
        writer.string(value[0])
        writer.array(value[1], partition)

    writer.int16(response.error_code)
    writer.int32(0)
    writer.array(response.topics, topic)
    return writer.done()


API = Api(47, "OffsetDelete", 0, 0, None, decode_request, encode_response)
