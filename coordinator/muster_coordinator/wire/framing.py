"""Frames and headers: from the bytes of a connection to one request, and from a response's body to a frame.

A frame is an int32 length and that many bytes. Request headers are v1, or v2 (with tagged fields) for a flexible
version; the client id keeps its int16 length in both. Response headers are v0, or v1 for a flexible version, except for
ApiVersions, whose header is always v0: a client reads it before it knows what the broker speaks (KIP-511).
"""

from __future__ import annotations

import struct

from muster_coordinator.errors import ErrorCode
from muster_coordinator.requests.cluster import ApiVersionsResponse
from muster_coordinator.wire import k18_api_versions
from muster_coordinator.wire.api import Api, RequestHeader
from muster_coordinator.wire.errors import FrameTooLargeError, UnsupportedRequestError, WireError
from muster_coordinator.wire.primitives import skip_tagged_fields, text
from muster_coordinator.wire.served import KAFKA_4_3, Versions

_LENGTH = struct.Struct(">i")
_REQUEST_HEADER = struct.Struct(">iih")  # API key and version as one number, correlation id, length of the client id
_KEY_AND_VERSION = struct.Struct(">hh")
_RESPONSE_HEADER = struct.Struct(">ii")
_RESPONSE_HEADER_FLEXIBLE = struct.Struct(">iix")  # with an empty section of tagged fields

KEPT_BYTES = 4 << 10
"""A reader may keep so many bytes that were taken: others move less often."""


class FrameReader:
    """Cuts the chunks of one connection into frames, one when it is asked for: a chunk may hold thousands. `held`: the
    bytes that are not taken, length prefixes included; the reader has no more than twice as many, and KEPT_BYTES.

    Bytes that a peer only claims to send cost nothing. After an error the reader must not be used again.
    """

    __slots__ = ("_data", "_limit", "_position", "held")

    def __init__(self, limit: int) -> None:
        """`limit`: most bytes of a frame without its length prefix (Kafka: socket.request.max.bytes)."""
        self._limit = limit
        self._data: bytes | bytearray = b""
        self._position = 0  # everything before it was taken
        self.held = 0

    def push(self, chunk: bytes) -> None:
        """The next bytes of the connection."""
        data, position = self._data, self._position
        if not self.held:
            self._data = chunk
        elif isinstance(data, bytearray):
            del data[:position]
            data += chunk
        else:
            joined = bytearray(data[position:] if position else data)
            joined += chunk
            self._data = joined
        self._position = 0
        self.held += len(chunk)

    def has_frame(self) -> bool:
        """True if `take` returns a frame, or raises."""
        size = self.held - 4
        return size >= 0 and not size < _LENGTH.unpack_from(self._data, self._position)[0] <= self._limit

    def take(self) -> bytes | None:
        """The next frame, without its length prefix; None while it is not complete. Raises FrameTooLargeError."""
        data, position = self._data, self._position
        size = self.held - 4
        if size < 0:
            return None
        length: int = _LENGTH.unpack_from(data, position)[0]
        if not 0 <= length <= self._limit:
            raise FrameTooLargeError(length, self._limit)
        if length > size:
            return None
        start, end = position + 4, position + 4 + length
        frame = bytes(data[start:end])
        held = self.held = size - length
        if not held:
            self._data = b""
        elif end > KEPT_BYTES and end > held:  # a chunk of 256 KiB would stay for the one byte at its end
            self._data = data[end:]
            end = 0
        self._position = end
        return frame

    def feed(self, chunk: bytes) -> list[bytes]:
        """All frames that are complete with `chunk`. Raises FrameTooLargeError."""
        self.push(chunk)
        frames = []
        while (frame := self.take()) is not None:
            frames.append(frame)
        return frames

    def rest(self) -> bytes:
        """The bytes that are not taken, for the next reader of the connection."""
        return bytes(self._data[self._position :])

    def drop(self) -> None:
        """Forget what is not taken: the connection ends."""
        self._data, self._position, self.held = b"", 0, 0


def read_header(frame: bytes, versions: Versions = KAFKA_4_3.versions) -> RequestHeader:
    """Header of a frame without its length prefix. `versions`: those that are served.

    Raises UnsupportedRequestError for a key or version that is not served, WireError for a header that is none.
    """
    try:
        key_and_version, correlation_id, client_id_length = _REQUEST_HEADER.unpack_from(frame)
    except struct.error:
        raise WireError(f"a frame of {len(frame)} bytes is too short for a request header") from None
    served = versions.get(key_and_version)
    if served is None:
        raise _unsupported(frame, correlation_id, versions)
    api, version, flexible = served
    position = 10
    client_id = ""
    if client_id_length > 0:
        position = 10 + client_id_length
        if position > len(frame):
            raise WireError(f"a client id of {client_id_length} bytes in a frame of {len(frame)}")
        client_id = text(frame[10:position])
    elif client_id_length < -1:
        raise WireError(f"a client id of {client_id_length} bytes")
    if flexible:
        try:
            position = skip_tagged_fields(frame, position)
        except IndexError:
            raise WireError(f"the header ends too early, after {len(frame)} bytes") from None
    return RequestHeader(api, version, correlation_id, client_id, position)


def encode_response_frame(api: Api, version: int, correlation_id: int, body: bytes) -> bytes:
    """The bytes to write for one response: length, header, body."""
    return encode_response_head(api, version, correlation_id, len(body)) + body


def encode_response_head(api: Api, version: int, correlation_id: int, body_bytes: int) -> bytes:
    """Length and header of a response whose body of so many bytes follows."""
    if api.first_flexible is None or version < api.first_flexible or api.key == k18_api_versions.KEY:
        return _RESPONSE_HEADER.pack(body_bytes + 4, correlation_id)
    return _RESPONSE_HEADER_FLEXIBLE.pack(body_bytes + 5, correlation_id)


def encode_request_frame(api: Api, version: int, correlation_id: int, client_id: str, body: bytes) -> bytes:
    """The bytes to write for one request to another pod: length, header, body."""
    name = client_id.encode()
    head = _REQUEST_HEADER.pack(api.key << 16 | version, correlation_id, len(name)) + name
    if api.flexible(version):
        head += b"\0"
    return _LENGTH.pack(len(head) + len(body)) + head + body


def _unsupported(frame: bytes, correlation_id: int, versions: Versions) -> UnsupportedRequestError:
    """ApiVersions of an unknown version is told which ones there are, in the oldest form, and asks again (KIP-511)."""
    api_key, api_version = _KEY_AND_VERSION.unpack_from(frame)
    if api_key != k18_api_versions.KEY:
        return UnsupportedRequestError(api_key, api_version)
    api, _, _ = versions[k18_api_versions.KEY << 16]
    response = ApiVersionsResponse(ErrorCode.UNSUPPORTED_VERSION, ((api.key, api.min_version, api.max_version),))
    return UnsupportedRequestError(
        api_key, api_version, encode_response_frame(api, 0, correlation_id, api.encode_response(0, response))
    )
