"""DeleteGroups 3 for groups at Muster (Kafka 4.4, KIP-1331), whichever release pods follow.

Pods are asked in version 2, which all of them have. The answer gets an empty text for each group: Kafka has texts for
Streams groups only.
"""

from __future__ import annotations

import struct

from muster_coordinator.wire.codec import Reader, Writer
from muster_gateway import apis
from muster_gateway.requests import RequestHead
from muster_gateway.rewriting import answer_body, guarded

OF_PODS = {apis.DELETE_GROUPS: 2}
"""The highest version that pods of every release have, of APIs of which clients are shown one more."""
_VERSION = struct.Struct(">h")
_VERSION_AT = 2


def is_later(head: RequestHead) -> bool:
    """True if not every pod has the version."""
    return head.version > OF_PODS.get(head.rule.key, head.version)


def earlier(head: RequestHead, frame: bytes) -> tuple[RequestHead, bytes]:
    """The request that a pod is asked: the bodies of both versions are the same."""
    version = OF_PODS[head.rule.key]
    rest = frame[_VERSION_AT + _VERSION.size :]
    return head._replace(version=version), frame[:_VERSION_AT] + _VERSION.pack(version) + rest


@guarded
def later_answer(answer: bytes) -> bytes:
    """The answer of version 3 that says what this one of version 2 does. Raises UpstreamError."""
    reader = Reader(answer, answer_body(answer, True), True)
    reader.int32()  # throttle time
    begin = reader.position

    def result() -> tuple[str, int]:
        value = reader.string(), reader.int16()
        reader.tagged_fields()
        return value

    results = reader.array(result)
    writer = Writer(True)

    def write(value: tuple[str, int]) -> None:
        writer.string(value[0])
        writer.int16(value[1])
        writer.nullable_string(None)
        writer.tagged_fields()

    writer.array(results, write)
    return answer[:begin] + writer.so_far() + answer[reader.position :]
