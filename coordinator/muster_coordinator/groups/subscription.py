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


class MalformedSubscriptionError(ValueError):
    """Null or over-long arrays or strings. Kafka 4.1 leaves such a JoinGroup unanswered and the group stuck; we
    refuse it."""


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """Topics of one member's subscription; None if the bytes end early, which Kafka accepts as "not known".

    Raises MalformedSubscriptionError where a length is negative or points after the end.
    """
    size = len(metadata)
    if size < 6:
        return None
    (count,) = _INT32.unpack_from(metadata, 2)
    if count < 0 or count > size - 6:
        raise MalformedSubscriptionError(f"{count} topics in {size} bytes")
    position = 6
    topics = []
    for _ in range(count):
        if position + 2 > size:
            return None
        (length,) = _INT16.unpack_from(metadata, position)
        position += 2
        if length < 0 or position + length > size:
            raise MalformedSubscriptionError(f"topic of {length} bytes at {position} of {size}")
        topics.append(metadata[position : position + length].decode("utf-8", "replace"))
        position += length
    if position + 4 > size:
        return None
    (length,) = _INT32.unpack_from(metadata, position)
    if length >= 0 and position + 4 + length > size:
        raise MalformedSubscriptionError(f"user data of {length} bytes at {position + 4} of {size}")
    return frozenset(topics)
