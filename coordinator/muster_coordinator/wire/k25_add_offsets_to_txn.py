"""AddOffsetsToTxn (25), versions 0 to 4, flexible from 3.

- v1: as v0; a throttled answer is sent at once (KIP-219)
- v2: PRODUCER_FENCED. An earlier client is answered INVALID_PRODUCER_EPOCH in its place
- v3: flexible
- v4: TRANSACTION_ABORTABLE (KIP-890)
"""

from __future__ import annotations

from muster_coordinator.requests.transactions import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from muster_coordinator.wire.api import Api, RequestHeader, guarded, producer_error
from muster_coordinator.wire.codec import Reader, Writer

_FENCED_SINCE = 2
MIRROR_VERSION = 3
"""The version that a mirror sends to brokers, which have it from Kafka 2.8 on."""


@guarded
def decode_request(header: RequestHeader, frame: bytes, client_host: str) -> AddOffsetsToTxnRequest:
    reader = Reader(frame, header.body_position, header.flexible)
    request = AddOffsetsToTxnRequest(reader.string(), reader.int64(), reader.int16(), reader.string())
    reader.tagged_fields()
    return request


def encode_response(version: int, response: AddOffsetsToTxnResponse) -> bytes:
    writer = Writer(API.flexible(version))
    writer.int32(0)
    writer.int16(producer_error(response.error_code, knows_fenced=version >= _FENCED_SINCE))
    return writer.done()


def encode_request(transactional_id: str, producer_id: int, producer_epoch: int, group_id: str) -> bytes:
    """The body of a request to a broker, in MIRROR_VERSION."""
    writer = Writer(API.flexible(MIRROR_VERSION))
    writer.string(transactional_id)
    writer.int64(producer_id)
    writer.int16(producer_epoch)
    writer.string(group_id)
    return writer.done()


def decode_response(reader: Reader) -> int:
    """The error code in a broker's answer of MIRROR_VERSION. Raises what `Reader` raises."""
    reader.int32()  # throttle time
    return reader.int16()


API = Api(25, "AddOffsetsToTxn", 0, 4, 3, decode_request, encode_response)
