"""EndTxn (26), versions 0 to 5, flexible from 3.

- v1: as v0; a throttled answer is sent at once (KIP-219)
- v2: PRODUCER_FENCED. An earlier client is answered INVALID_PRODUCER_EPOCH in its place
- v3: flexible
- v4: TRANSACTION_ABORTABLE (KIP-890)
- v5: sent by clients of transaction version 2; producer_id and producer_epoch of the next transaction (KIP-890)
"""

from __future__ import annotations

from muster_coordinator.requests.transactions import EndTxnRequest, EndTxnResponse
from muster_coordinator.wire.api import Api, RequestHeader, guarded, producer_error
from muster_coordinator.wire.codec import Reader, Writer

_FENCED_SINCE = 2
MIRROR_VERSION = 3
"""The version that a mirror sends to brokers, which have it from Kafka 2.8 on."""


@guarded
def decode_request(header: RequestHeader, frame: bytes, client_host: str) -> EndTxnRequest:
    reader = Reader(frame, header.body_position, header.flexible)
    request = EndTxnRequest(reader.string(), reader.int64(), reader.int16(), reader.boolean(), header.api_version)
    reader.tagged_fields()
    return request


def encode_response(version: int, response: EndTxnResponse) -> bytes:
    writer = Writer(API.flexible(version))
    writer.int32(0)
    writer.int16(producer_error(response.error_code, knows_fenced=version >= _FENCED_SINCE))
    if version >= 5:
        writer.int64(response.producer_id)
        writer.int16(response.producer_epoch)
    return writer.done()


def encode_request(transactional_id: str, producer_id: int, producer_epoch: int) -> bytes:
    """The body of a request to a broker, in MIRROR_VERSION: to commit."""
    writer = Writer(API.flexible(MIRROR_VERSION))
    writer.string(transactional_id)
    writer.int64(producer_id)
    writer.int16(producer_epoch)
    writer.boolean(True)
    return writer.done()


def decode_response(reader: Reader) -> int:
    """The error code in a broker's answer of MIRROR_VERSION. Raises what `Reader` raises."""
    reader.int32()  # throttle time
    return reader.int16()


API = Api(26, "EndTxn", 0, 5, 3, decode_request, encode_response)
