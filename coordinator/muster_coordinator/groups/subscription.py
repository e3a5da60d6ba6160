"""The part of the consumer protocol that the coordinator reads: the topics of a subscription.

Layout (ConsumerProtocolSubscription v0, the prefix of all versions): int16 version, int32 count, count x (int16
length, UTF-8), nullable int32-length user data. The topics decide which offsets expire and which may be deleted
(KIP-211, KIP-496).
"""

from __future__ import annotations

import struct

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")

CONSUMER_PROTOCOL_TYPE = "consumer"


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """Topics of one member's subscription; None, "not known", for bytes that are no subscription.

    Kafka takes such a member, too. Kafka 4.1 to 4.3 leave its JoinGroup unanswered if a length is negative or points
    behind the end; 4.4 answers it.
    """
    size = len(metadata)
    if size < 6:
        return None
    (count,) = _INT32.unpack_from(metadata, 2)
    if not 0 <= count <= size - 6:
        return None
    position = 6
    topics = []
    for _ in range(count):
        if position + 2 > size:
            return None
        (length,) = _INT16.unpack_from(metadata, position)
        position += 2
        if length < 0 or position + length > size:
            return None
        topics.append(metadata[position : position + length].decode("utf-8", "replace"))
        position += length
    if position + 4 > size:
        return None
    (length,) = _INT32.unpack_from(metadata, position)
    if length >= 0 and position + 4 + length > size:
        return None
    return frozenset(topics)
