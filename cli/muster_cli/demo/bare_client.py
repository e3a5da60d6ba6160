"""Kafka requests over a blocking socket without a client library, one at a time."""

from __future__ import annotations

import socket
import struct


def call(connection: socket.socket, api: tuple[int, int], body: bytes) -> bytes:
    """Send a request, and return the body of its answer. Raises OSError, also if the connection ends.

    `api`: key and version. It must be a version whose headers have no tagged fields.
    """
    request = struct.pack(">hhi", *api, 0) + string("muster") + body
    connection.sendall(struct.pack(">i", len(request)) + request)
    (length,) = struct.unpack(">i", _read(connection, 4))
    return _read(connection, length)[4:]


def string(text: str) -> bytes:
    """A STRING of the protocol: its length in two bytes, then UTF-8."""
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
