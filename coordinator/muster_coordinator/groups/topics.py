"""The port through which the coordinator knows which topic partitions exist: it keeps no data of its own."""

from __future__ import annotations

from typing import Protocol


class TopicCatalog(Protocol):
    def has(self, topic: str, partition: int) -> bool:
        """True if offsets of this partition may be committed. False is UNKNOWN_TOPIC_OR_PARTITION. The partitions of a
        topic have numbers without gaps: if two exist, so do those in between."""
        ...

    def id_of(self, topic: str) -> bytes:
        """The id of the topic, of 16 bytes, which its committed offsets keep; NO_TOPIC_ID if it has none."""
        ...
