"""What the transaction coordinator must know of the topics of its cluster."""

from __future__ import annotations

from typing import Protocol


class MarkedTopics(Protocol):
    """The topics whose partitions take part in transactions: those to which this cluster can write markers."""

    def takes_markers(self, topic: str) -> bool:
        """Whether partitions of `topic` can be marked at all."""
        ...

    def has(self, topic: str, partition: int) -> bool:
        """Whether the partition exists."""
        ...

    def partition_of_group(self, group_id: str) -> tuple[str, int] | None:
        """Returns topic and partition with the group's offsets; None while that is not known."""
        ...
