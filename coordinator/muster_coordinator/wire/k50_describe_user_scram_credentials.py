"""DescribeUserScramCredentials (50), version 0, flexible (KIP-554)."""

from __future__ import annotations

from muster_coordinator.requests.security import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserCredentials,
)
from muster_coordinator.wire.api import Api, RequestHeader, guarded
from muster_coordinator.wire.codec import Reader, Writer


@guarded
def decode_request(header: RequestHeader, frame: bytes, client_host: str) -> DescribeUserScramCredentialsRequest:
    reader = Reader(frame, header.body_position, header.flexible)

    def user() -> str:
        name = reader.string()
        reader.tagged_fields()
        return name

    users = reader.nullable_array(user)
    reader.tagged_fields()
    return DescribeUserScramCredentialsRequest(users)


def encode_response(version: int, response: DescribeUserScramCredentialsResponse) -> bytes:
    writer = Writer(API.flexible(version))

    def credential(value: tuple[int, int]) -> None:
        writer.int8(value[0])
        writer.int32(value[1])
        writer.tagged_fields()

    def result(value: UserCredentials) -> None:
        writer.string(value.user)
        writer.int16(value.error_code)
        writer.nullable_string(value.error_message)
        writer.array(value.credentials, credential)
        writer.tagged_fields()

    writer.int32(0)
    writer.int16(response.error_code)
    writer.nullable_string(response.error_message)
    writer.array(response.results, result)
    return writer.done()


API = Api(50, "DescribeUserScramCredentials", 0, 0, 0, decode_request, encode_response)
