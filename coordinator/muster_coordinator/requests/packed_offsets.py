"""Offsets of one topic, as a commit brings them or a fetch finds them: kept in columns, and those of a commit in the
bytes of the request, not in an object for each partition.

Most commits have no metadata. What OffsetCommit says of a partition then takes ENTRY_BYTES in every version from 6 on:
partition i32 | offset i64 | leader epoch i32 | two bytes for the lack of metadata. The offset and the leader epoch lie
in the record of the log as they lie here (`records.offset_run`), and the partition in the answer (`wire`).

The classes can be iterated like the tuples that they stand for, and are equal to those.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import repeat
from typing import Protocol

from muster_coordinator.errors import ErrorCode

ENTRY_BYTES = 18

PACKED_MIN = 6
"""Fewer partitions of a topic are kept one by one: that is quicker."""
PACKED_MAX = 500
"""More partitions of a topic are kept one by one: the form of so many bytes would take memory for good."""


class PackedOffsets:
    """`data`: ENTRY_BYTES for each partition. Iterated: (partition, offset, leader epoch, metadata).

    `metadata`: None or "", that of every partition.
    """

    __slots__ = ("data", "leader_epochs", "metadata", "offsets", "partitions")

    def __init__(
        self,
        data: bytes,
        partitions: tuple[int, ...],
        offsets: tuple[int, ...],
        leader_epochs: tuple[int, ...],
        metadata: str | None,
    ) -> None:
        self.data = data
        self.partitions = partitions
        self.offsets = offsets
        self.leader_epochs = leader_epochs
        self.metadata = metadata

    def __len__(self) -> int:
        return len(self.partitions)

    def __iter__(self) -> Iterator[tuple[int, int, int, str | None]]:
        return zip(self.partitions, self.offsets, self.leader_epochs, repeat(self.metadata), strict=False)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PackedOffsets | tuple) and tuple(self) == tuple(other)

    def __repr__(self) -> str:
        return repr(tuple(self))


class AcceptedOffsets:
    """The answer to `committed`: every partition is accepted. Iterated: (partition, 0)."""

    __slots__ = ("committed",)

    def __init__(self, committed: PackedOffsets) -> None:
        self.committed = committed

    def __len__(self) -> int:
        return len(self.committed)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self.committed.partitions, repeat(0), strict=False)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AcceptedOffsets | tuple) and tuple(self) == tuple(other)

    def __repr__(self) -> str:
        return repr(tuple(self))


class FoundOffsets:
    """The offsets of a topic without metadata that OffsetFetch has found. Iterated: (partition, offset, leader epoch,
    "", 0)."""

    __slots__ = ("leader_epochs", "offsets", "partitions")

    def __init__(self, partitions: list[int], offsets: list[int], leader_epochs: list[int]) -> None:
        self.partitions = partitions
        self.offsets = offsets
        self.leader_epochs = leader_epochs

    def __len__(self) -> int:
        return len(self.partitions)

    def __iter__(self) -> Iterator[tuple[int, int, int, str, int]]:
        return zip(self.partitions, self.offsets, self.leader_epochs, repeat(""), repeat(0), strict=False)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FoundOffsets | tuple) and tuple(self) == tuple(other)

    def __repr__(self) -> str:
        return repr(tuple(self))


class Committed(Protocol):
    """A committed offset as OffsetFetch shows it."""

    @property
    def offset(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def metadata(self) -> str: ...


class HeldOffsets:
    """The offsets of a topic of a large answer, as OffsetFetch has found them at that moment: `wire` makes it into
    bytes slice after slice. Iterated: (partition, offset, leader epoch, metadata, error code).
    """

    __slots__ = ("_partitions", "_pending", "_stored")

    def __init__(
        self,
        partitions: Sequence[int],
        stored: Sequence[tuple[int, Committed] | None],
        pending: Collection[int],
    ) -> None:
        """`stored`: for each of `partitions`, or empty if none has an offset; nobody changes either. `pending`: those
        that an open transaction writes, which are refused."""
        self._partitions = partitions
        self._stored = stored
        self._pending = pending

    def __len__(self) -> int:
        return len(self._partitions)

    def __iter__(self) -> Iterator[tuple[int, int, int, str, int]]:
        for partition, found in zip(self._partitions, self._stored or repeat(None), strict=False):
            if partition in self._pending:
                yield partition, -1, -1, "", int(ErrorCode.UNSTABLE_OFFSET_COMMIT)
            elif found is None:
                yield partition, -1, -1, "", 0
            else:
                value = found[1]
                yield partition, value.offset, value.leader_epoch, value.metadata, 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HeldOffsets | tuple) and tuple(self) == tuple(other)

    def __repr__(self) -> str:
        return repr(tuple(self))
