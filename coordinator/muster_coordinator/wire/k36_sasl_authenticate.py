"""SaslAuthenticate (36), versions 0 to 2, flexible from 2 (KIP-152).

- v1: session_lifetime_ms in the response (KIP-368)
- v2: flexible
"""

from __future__ import annotations

from muster_coordinator.requests.cluster import SaslAuthenticateRequest, SaslAuthenticateResponse
from muster_coordinator.wire.api import Api, RequestHeader, guarded
from muster_coordinator.wire.codec import Reader, Writer

KEY = 36


@guarded
def decode_request(header: RequestHeader, frame: bytes, client_host: str) -> SaslAuthenticateRequest:
    reader = Reader(frame, header.body_position, header.flexible)
    request = SaslAuthenticateRequest(reader.byte_string())
    reader.tagged_fields()
    return request


def encode_response(version: int, response: SaslAuthenticateResponse) -> bytes:
    writer = Writer(API.flexible(version))
    writer.int16(response.error_code)
    writer.nullable_string(response.error_message)
    writer.byte_string(response.auth_bytes)
    if version >= 1:
        writer.int64(response.session_lifetime_ms)
    return writer.done()


CLIENT_VERSION = 1
"""The version of the requests with which Muster itself logs in."""


def encode_request(token: bytes) -> bytes:
    """Encodes in CLIENT_VERSION."""
    writer = Writer(False)
    writer.byte_string(token)
    return writer.so_far()


def decode_response(reader: Reader) -> SaslAuthenticateResponse:
    """Decodes in CLIENT_VERSION. Raises WireError."""
    code, message, token = reader.int16(), reader.nullable_string(), reader.byte_string()
    return SaslAuthenticateResponse(code, message, token, reader.int64())


API = Api(KEY, "SaslAuthenticate", 0, 2, 2, decode_request, encode_response)
