"""Produce (0), versions 3 to 12, flexible from 9. Announced and always refused: a coordinator stores no records.

Announced because librdkafka takes a broker without it for one that cannot serve Fetch either, and then tries again
without a pause: a consumer at 100% of a CPU. Seen with librdkafka 2.16, which asks for version 3 (its feature MsgVer2)
and 7 (ZSTD).

- v3: transactional_id (KIP-98; v0 to v2 are gone: KIP-896)
- v4: as v3; KAFKA_STORAGE_ERROR
- v5: log_start_offset in the response (KIP-107)
- v6: as v5; a throttled answer is sent at once (KIP-219)
- v7: as v6; zstd (KIP-110)
- v8: errors of single records, error_message (KIP-467)
- v9: flexible
- v10: addresses of new leaders in tagged fields of the response (KIP-951)
- v11: TRANSACTION_ABORTABLE (KIP-890)
- v12: adds the partition to the transaction by itself (KIP-890)

Not served: v13 (topic ids instead of names).
"""

from __future__ import annotations

from muster_coordinator.errors import ErrorCode
from muster_coordinator.requests.cluster import ProduceRequest, ProduceResponse
from muster_coordinator.wire.api import Api, RequestHeader, guarded
from muster_coordinator.wire.codec import Reader, Writer

KEY = 0
REFUSAL = "this is a group coordinator: it stores offsets and groups, and no records"


@guarded
def decode_request(header: RequestHeader, frame: bytes, client_host: str) -> ProduceRequest:
    reader = Reader(frame, header.body_position, header.flexible)

    def partition() -> int:
        index = reader.int32()
        reader.skip_nullable_bytes()
        reader.tagged_fields()
        return index

    def topic() -> tuple[str, tuple[int, ...]]:
        value = (reader.string(), reader.array(partition))
        reader.tagged_fields()
        return value

    reader.nullable_string()  # transactional_id
    acks = reader.int16()
    reader.int32()  # timeout_ms
    topics = reader.array(topic)
    reader.tagged_fields()
    return ProduceRequest(acks, topics)


def refuse(request: ProduceRequest) -> ProduceResponse:
    """INVALID_REQUEST for every partition: a producer gives up on it at once."""
    code = int(ErrorCode.INVALID_REQUEST)
    topics = tuple([(name, tuple([(index, code) for index in indexes])) for name, indexes in request.topics])
    return ProduceResponse(topics, REFUSAL)


def encode_response(version: int, response: ProduceResponse) -> bytes:
    writer = Writer(API.flexible(version))

    def partition(value: tuple[int, int]) -> None:
        writer.int32(value[0])
        writer.int16(value[1])
        writer.int64(-1)  # base_offset
        writer.int64(-1)  # log_append_time_ms
        if version >= 5:
            writer.int64(-1)  # log_start_offset
        if version >= 8:
            writer.array((), writer.int32)  # record_errors
            writer.nullable_string(response.error_message)
        writer.tagged_fields()

    def topic(value: tuple[str, tuple[tuple[int, int], ...]]) -> None:
        writer.string(value[0])
        writer.array(value[1], partition)
        writer.tagged_fields()

    writer.array(response.topics, topic)
    writer.int32(0)
    return writer.done()


API = Api(0, "Produce", 3, 12, 9, decode_request, encode_response)
