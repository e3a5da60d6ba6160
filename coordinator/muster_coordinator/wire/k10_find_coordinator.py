"""FindCoordinator (10), versions 0 to 6, flexible from 3.

- v1: key_type (0 group, 1 transaction); throttle_time_ms and error_message in the response
- v2: as v1; a throttled answer is sent at once (KIP-219)
- v3: flexible
- v4: several keys (KIP-699)
- v5: TRANSACTION_ABORTABLE (KIP-890)
- v6: key_type 2, share (KIP-932)

Error messages, as Kafka 4.1 gives them: up to v3 the text of the error, which is "NONE" for no error; from v4 "".
"""

from __future__ import annotations

from muster_coordinator.errors import ErrorCode
from muster_coordinator.requests.cluster import (
    KEY_TYPE_GROUP,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from muster_coordinator.wire.api import Api, RequestHeader, guarded
from muster_coordinator.wire.codec import Reader, Writer

MIRROR_VERSION = 4
"""The version in which a mirror asks brokers."""
_MESSAGES = {
    ErrorCode.INVALID_REQUEST: (
        "This most likely occurs because of a request being malformed by the client library or the message was sent "
        "to an incompatible broker. See the broker logs for more details."
    ),
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available.",
    ErrorCode.INVALID_GROUP_ID: "The configured groupId is invalid.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Transactional Id authorization failed.",
}


@guarded
def decode_request(header: RequestHeader, frame: bytes, client_host: str) -> FindCoordinatorRequest:
    version = header.api_version
    reader = Reader(frame, header.body_position, header.flexible)
    first_key = (reader.string(),) if version <= 3 else ()
    key_type = reader.int8() if version >= 1 else KEY_TYPE_GROUP
    keys = reader.array(reader.string) if version >= 4 else first_key
    reader.tagged_fields()
    return FindCoordinatorRequest(key_type, keys)


def encode_response(version: int, response: FindCoordinatorResponse) -> bytes:
    writer = Writer(API.flexible(version))
    if version >= 1:
        writer.int32(0)
    if version >= 4:

        def coordinator(value: Coordinator) -> None:
            writer.string(value.key)
            _node(writer, value)
            writer.int16(value.error_code)
            writer.nullable_string(value.error_message or "")
            writer.tagged_fields()

        writer.array(response.coordinators, coordinator)
        return writer.done()
    (only,) = response.coordinators
    writer.int16(only.error_code)
    if version >= 1:
        writer.nullable_string(_message(only))
    _node(writer, only)
    return writer.done()


def _node(writer: Writer, value: Coordinator) -> None:
    writer.int32(value.node_id)
    writer.string(value.host)
    writer.int32(value.port)


def _message(value: Coordinator) -> str:
    if value.error_message is not None:
        return value.error_message
    code = ErrorCode(value.error_code)
    return _MESSAGES.get(code, code.name)


def encode_request(keys: tuple[str, ...], key_type: int = KEY_TYPE_GROUP) -> bytes:
    """The body of a request to a broker, in MIRROR_VERSION."""
    writer = Writer(API.flexible(MIRROR_VERSION))
    writer.int8(key_type)
    writer.array(keys, writer.string)
    return writer.done()


def decode_response(reader: Reader) -> FindCoordinatorResponse:
    """A broker's answer of MIRROR_VERSION. Raises what `Reader` raises."""
    reader.int32()  # throttle time

    def coordinator() -> Coordinator:
        place = reader.string(), reader.int32(), reader.string(), reader.int32()
        value = Coordinator(*place, reader.int16(), reader.nullable_string())
        reader.tagged_fields()
        return value

    return FindCoordinatorResponse(reader.array(coordinator))


API = Api(10, "FindCoordinator", 0, 6, 3, decode_request, encode_response)
