"""A log as the checks look at it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from muster_coordinator.replication.messages import Batch

__all__ = ["DiskLog"]


@dataclass
class DiskLog:
    """``runs``: the durable epoch cache; batches that compaction removed are missing, ``end`` is the logical end."""

    batches: list[Batch] = field(default_factory=list)
    runs: list[tuple[int, int]] = field(default_factory=list)
    end: int = 0
    horizon: int = 0

    def append(self, end: int, batches: Sequence[Batch], runs: Sequence[tuple[int, int]], horizon: int) -> None:
        for epoch, start in runs:
            if not self.runs or self.runs[-1][0] != epoch:
                self.runs.append((epoch, start))
        self.batches.extend(batches)
        self.end = end
        self.horizon = max(self.horizon, horizon)  # the log may have been cleaned while this was under way

    def cut(self, end: int) -> None:
        while self.batches and self.batches[-1].end_offset > end:
            self.batches.pop()
        self.runs = [run for run in self.runs if run[1] < end]
        self.end = min(self.end, end)
        self.horizon = min(self.horizon, self.end)

    def copy(self) -> DiskLog:
        return DiskLog(list(self.batches), list(self.runs), self.end, self.horizon)

    def epoch_before(self, offset: int) -> int:
        found = -1
        for epoch, start in self.runs:
            if start < offset:
                found = epoch
        return found

    def batches_from(self, start: int) -> list[Batch]:
        low, high = 0, len(self.batches)
        while low < high:
            middle = (low + high) // 2
            if self.batches[middle].base_offset < start:
                low = middle + 1
            else:
                high = middle
        return self.batches[low:]
