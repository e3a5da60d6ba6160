"""AlterUserScramCredentials (51), version 0, flexible (KIP-554). Users are kept in a file, and never changed by a
request (ADR 36).
"""

from __future__ import annotations

from muster_coordinator.requests.security import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    UserCredentials,
)
from muster_coordinator.wire.api import Api, RequestHeader, guarded
from muster_coordinator.wire.codec import Reader, Writer


@guarded
def decode_request(header: RequestHeader, frame: bytes, client_host: str) -> AlterUserScramCredentialsRequest:
    reader = Reader(frame, header.body_position, header.flexible)

    def deletion() -> str:
        name = reader.string()
        reader.int8()
        reader.tagged_fields()
        return name

    def upsertion() -> str:
        name = reader.string()
        reader.int8()
        reader.int32()
        reader.byte_string()
        reader.byte_string()
        reader.tagged_fields()
        return name

    users = (*reader.array(deletion), *reader.array(upsertion))
    reader.tagged_fields()
    return AlterUserScramCredentialsRequest(tuple(dict.fromkeys(users)))


def encode_response(version: int, response: AlterUserScramCredentialsResponse) -> bytes:
    writer = Writer(API.flexible(version))

    def result(value: UserCredentials) -> None:
        writer.string(value.user)
        writer.int16(value.error_code)
        writer.nullable_string(value.error_message)
        writer.tagged_fields()

    writer.int32(0)
    writer.array(response.results, result)
    return writer.done()


API = Api(51, "AlterUserScramCredentials", 0, 0, 0, decode_request, encode_response)
