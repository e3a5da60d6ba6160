"""InitProducerId (22), versions 0 to 5, flexible from 2.

- v1: as v0; a throttled answer is sent at once (KIP-219)
- v2: flexible
- v3: producer_id and producer_epoch of a producer that continues (KIP-360)
- v4: PRODUCER_FENCED. An earlier client is answered INVALID_PRODUCER_EPOCH in its place
- v5: TRANSACTION_ABORTABLE (KIP-890)

Not served: v6, transactions that an application prepares for a two-phase commit of its own (KIP-939): unstable in 4.3.
"""

from __future__ import annotations

from muster_coordinator.requests.transactions import InitProducerIdRequest, InitProducerIdResponse
from muster_coordinator.wire.api import Api, RequestHeader, guarded, producer_error
from muster_coordinator.wire.codec import Reader, Writer

_FENCED_SINCE = 4
MIRROR_VERSION = 4
"""The version that a mirror sends to brokers, which have it from Kafka 2.7 on."""


@guarded
def decode_request(header: RequestHeader, frame: bytes, client_host: str) -> InitProducerIdRequest:
    reader = Reader(frame, header.body_position, header.flexible)
    transactional_id, timeout_ms = reader.nullable_string(), reader.int32()
    producer_id, producer_epoch = (reader.int64(), reader.int16()) if header.api_version >= 3 else (-1, -1)
    reader.tagged_fields()
    return InitProducerIdRequest(transactional_id, timeout_ms, producer_id, producer_epoch)


def encode_response(version: int, response: InitProducerIdResponse) -> bytes:
    writer = Writer(API.flexible(version))
    writer.int32(0)
    writer.int16(producer_error(response.error_code, knows_fenced=version >= _FENCED_SINCE))
    writer.int64(response.producer_id)
    writer.int16(response.producer_epoch)
    return writer.done()


def encode_request(transactional_id: str, timeout_ms: int) -> bytes:
    """The body of a request to a broker, in MIRROR_VERSION, of a producer that knows no id yet."""
    writer = Writer(API.flexible(MIRROR_VERSION))
    writer.nullable_string(transactional_id)
    writer.int32(timeout_ms)
    writer.int64(-1)
    writer.int16(-1)
    return writer.done()


def decode_response(reader: Reader) -> InitProducerIdResponse:
    """A broker's answer of MIRROR_VERSION. Raises what `Reader` raises."""
    reader.int32()  # throttle time
    return InitProducerIdResponse(reader.int16(), reader.int64(), reader.int16())


API = Api(22, "InitProducerId", 0, 5, 2, decode_request, encode_response)
