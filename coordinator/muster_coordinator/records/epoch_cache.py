"""The offset at which each leader epoch began: Kafka's leader epoch cache and its checkpoint file.

File `leader-epoch-checkpoint`, text: a line with the version (0), a line with the number of entries, then one line
"epoch start-offset" each. Source: LeaderEpochFileCache, LeaderEpochCheckpointFile.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

CHECKPOINT_NAME = "leader-epoch-checkpoint"
_VERSION = 0


class EpochCache:
    """Entries (epoch, start offset), both strictly increasing."""

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._entries: list[tuple[int, int]] = []
        for epoch, start_offset in entries:
            self.assign(epoch, start_offset)

    @property
    def entries(self) -> tuple[tuple[int, int], ...]:
        return tuple(self._entries)

    @property
    def last_epoch(self) -> int:
        """Epoch of the last entry, -1 without any."""
        return self._entries[-1][0] if self._entries else -1

    @property
    def last(self) -> tuple[int, int]:
        """The last entry; (-1, 0) without any."""
        return self._entries[-1] if self._entries else (-1, 0)

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Note that the batch at `start_offset` has `epoch`. True if that began an epoch; ValueError if it went
        back.
        """
        if epoch < 0 or (self._entries and epoch == self._entries[-1][0]):
            return False
        if self._entries:
            last_epoch, last_start = self._entries[-1]
            if epoch < last_epoch or start_offset < last_start:
                raise ValueError(f"epoch {epoch} at offset {start_offset} after epoch {last_epoch} at {last_start}")
            if start_offset == last_start:  # the earlier epoch has no records
                self._entries.pop()
        self._entries.append((epoch, start_offset))
        return True

    def epoch_at(self, offset: int) -> int:
        """Epoch of the batch at `offset`, -1 if unknown."""
        if self._entries and self._entries[-1][1] <= offset:
            return self._entries[-1][0]  # the present one: the usual case
        index = bisect_right(self._entries, offset, key=lambda entry: entry[1])
        return self._entries[index - 1][0] if index else -1

    def end_of(self, epoch: int, log_end: int) -> tuple[int, int]:
        """(largest epoch at or below `epoch`, where it ends); (-1, -1) if there is none.

        What a follower asks to find the common prefix (OffsetsForLeaderEpoch, KIP-101 and KIP-279).
        """
        index = bisect_right(self._entries, epoch, key=lambda entry: entry[0])
        if not index:
            return -1, -1
        end = self._entries[index][1] if index < len(self._entries) else log_end
        return self._entries[index - 1][0], end

    def truncate_to(self, end_offset: int) -> bool:
        """Drop epochs that begin at or after `end_offset`. True if one was dropped."""
        kept = [entry for entry in self._entries if entry[1] < end_offset]
        dropped = len(kept) < len(self._entries)
        self._entries = kept
        return dropped

    def encode(self) -> bytes:
        lines = [str(_VERSION), str(len(self._entries)), *(f"{epoch} {start}" for epoch, start in self._entries), ""]
        return "\n".join(lines).encode()

    @classmethod
    def decode(cls, text: bytes) -> EpochCache:
        """ValueError if the file is not what Kafka or `encode` writes."""
        lines = text.decode().split("\n")
        if len(lines) < 2 or int(lines[0]) != _VERSION:
            raise ValueError(f"unknown head {lines[:2]}")
        count = int(lines[1])
        entries = [line.split() for line in lines[2:] if line]
        if len(entries) != count or any(len(entry) != 2 for entry in entries):
            raise ValueError(f"{len(entries)} lines, the head says {count}")
        return cls((int(epoch), int(start)) for epoch, start in entries)
