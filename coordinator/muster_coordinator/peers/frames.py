"""Bytes between pods: frames of int32 length, int32 partition, message; control frames have a negative partition.

HELLO   first in both directions: msgpack map, see `Hello`
PING    from the pod that made the connection; empty, or a msgpack map of partition and log id: the replicas of that
        pod, on the first one, and when they have changed since the last one
PONG    the answer; empty
ASK     first instead of HELLO, with the same map, from a pod that asks: after the answer, which is a HELLO, come
        Kafka's requests and answers (ADR 34)
>= 0    a message for the replica of that partition (`replication.messages`), from the pod that made the connection
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

import msgspec

HELLO, PING, PONG, ASK = -1, -2, -3, -4
MAGIC = "muster-peer"
VERSION = 2

FRAME_BYTES_MAX = 128 << 20
"""Largest frame. The largest message holds one turn's batches of a partition, or 1 MiB and one batch more."""

HELLO_BYTES_MAX = 4 << 10
"""Largest frame before the hello is checked, and largest frame from the pod that accepted the connection."""

_HEAD = struct.Struct(">ii")
_PARTITION = struct.Struct(">i")


class HelloError(Exception):
    """This pod does not talk to the other side. `reason`: label of the metric."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Hello(msgspec.Struct, frozen=True):
    """The names of the pod that speaks and of the one that it means. `address`: HOST:PORT of the speaker's own peer
    listener. `cluster_id` "": no metadata image has named it yet."""

    magic: str
    version: int
    cluster_id: str
    pod: str
    uid: str
    address: str
    to: str


_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(Hello)
_log_ids_decoder = msgspec.msgpack.Decoder(dict[int, str])


def encode_frame(partition: int, body: bytes = b"") -> bytes:
    return _HEAD.pack(len(body) + 4, partition) + body


def partition_of(frame: bytes) -> int:
    """The partition that a frame (without its length) names. Raises HelloError."""
    if len(frame) < 4:
        raise HelloError("malformed", f"a frame of {len(frame)} bytes")
    partition: int = _PARTITION.unpack_from(frame)[0]
    return partition


def encode_hello(cluster_id: str, pod: str, uid: str, address: str, to: str, kind: int = HELLO) -> bytes:
    """`kind`: HELLO or ASK."""
    return encode_frame(kind, _encode(Hello(MAGIC, VERSION, cluster_id, pod, uid, address, to)))


def encode_ping(log_ids: Mapping[int, str]) -> bytes:
    return encode_frame(PING, _encode(log_ids))


def decode_ping(frame: bytes) -> dict[int, str] | None:
    """The replicas that it names; None: it names none. Raises msgspec.DecodeError."""
    return _log_ids_decoder.decode(memoryview(frame)[4:]) if len(frame) > 4 else None


def decode_hello(frame: bytes, kind: int = HELLO) -> Hello:
    """The first frame of a connection, without its length. Raises HelloError."""
    if partition_of(frame) != kind:
        raise HelloError("malformed", "the first frame is no hello")
    try:
        hello = _decoder.decode(memoryview(frame)[4:])
    except (msgspec.DecodeError, RecursionError) as error:
        raise HelloError("malformed", f"unreadable hello: {error}") from error
    if hello.magic != MAGIC:
        raise HelloError("malformed", f"not a pod of Muster: it calls itself {hello.magic[:40]!r}")
    return hello


def why_not(hello: Hello, cluster_id: str, pod: str) -> HelloError | None:
    """The fault of `hello` for `pod` of `cluster_id` ("" while that is not known)."""
    if hello.version != VERSION:
        return HelloError("wrong_version", f"it speaks version {hello.version}, this pod {VERSION}")
    if hello.cluster_id and cluster_id and hello.cluster_id != cluster_id:
        return HelloError("wrong_cluster", f"it is of cluster {hello.cluster_id!r}, this pod of {cluster_id!r}")
    if hello.to != pod:
        return HelloError("wrong_pod", f"it means pod {hello.to!r}, this is {pod!r}")
    if hello.pod == pod:
        return HelloError("same_name", f"it is called {pod!r} like this pod (uid {hello.uid})")
    return None
