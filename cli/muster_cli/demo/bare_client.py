"""Kafka requests over a blocking socket, without a client library: one at a time, each waits for its answer."""

from __future__ import annotations

import socket
import struct

__all__ = ["call", "string"]


def call(connection: socket.socket, api: tuple[int, int], body: bytes) -> bytes:
    """The body of the answer. `api`: key and version, of one whose headers have no tagged fields. Raises OSError,
    also when the connection ends."""
    request = struct.pack(">hhi", *api, 0) + string("muster") + body
    connection.sendall(struct.pack(">i", len(request)) + request)
    (length,) = struct.unpack(">i", _read(connection, 4))
    return _read(connection, length)[4:]


def string(text: str) -> bytes:
    """Its length in two bytes, and UTF-8."""
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def _read(connection: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        more = connection.recv(length - len(data))
        if not more:
            raise ConnectionResetError("closed by the other side")
        data += more
    return data
