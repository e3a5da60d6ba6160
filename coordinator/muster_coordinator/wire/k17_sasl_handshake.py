"""SaslHandshake (17), versions 0 to 1, not flexible.

- v0: what follows are bare tokens, each with its length, until the client is known (KIP-43)
- v1: what follows are SaslAuthenticate requests (KIP-152)

Answered ILLEGAL_SASL_STATE on a listener without SASL, and to a client that is known, unless it is to say again who it
is (KIP-368).
"""

from __future__ import annotations

from muster_coordinator.requests.cluster import SaslHandshakeRequest, SaslHandshakeResponse
from muster_coordinator.wire.api import Api, RequestHeader, guarded
from muster_coordinator.wire.codec import Reader, Writer

KEY = 17


@guarded
def decode_request(header: RequestHeader, frame: bytes, client_host: str) -> SaslHandshakeRequest:
    return SaslHandshakeRequest(Reader(frame, header.body_position, header.flexible).string())


def encode_response(version: int, response: SaslHandshakeResponse) -> bytes:
    writer = Writer(API.flexible(version))
    writer.int16(response.error_code)
    writer.array(response.mechanisms, writer.string)
    return writer.done()


def encode_request(mechanism: str) -> bytes:
    writer = Writer(False)
    writer.string(mechanism)
    return writer.so_far()


def decode_response(reader: Reader) -> SaslHandshakeResponse:
    """Raises WireError."""
    return SaslHandshakeResponse(reader.int16(), reader.array(reader.string))


API = Api(KEY, "SaslHandshake", 0, 1, None, decode_request, encode_response)
