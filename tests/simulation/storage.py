"""A pod's disk: what a crash leaves of it.

Fault model: a write is durable when it is reported, and may be durable, whole batches of it, before that; a crash keeps
any prefix of what was under way, over all replicas of the pod. Under ``flush os`` a write is reported when the page
cache has it: a power loss takes what was not synced. A flipped bit is found when the log is opened: everything from
there on is gone, and known to be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from tests.simulation.cleaning import clean_batches
from tests.simulation.injected import Injected

from muster_coordinator.replication.effects import Promise
from muster_coordinator.replication.log_state import LogState
from muster_coordinator.replication.messages import Batch

__all__ = ["Checkpoint", "Disk", "DiskLog", "Storage"]


@dataclass(frozen=True)
class Checkpoint:
    """The materialised state at ``offset``, which is behind a record of ``epoch``."""

    offset: int
    epoch: int
    parts: tuple[bytes, ...]


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

    def clean(self, changed: dict[int, Batch | None], horizon: int) -> None:
        kept = (changed.get(batch.base_offset, batch) for batch in self.batches)
        self.batches = [batch for batch in kept if batch is not None]
        self.horizon = max(self.horizon, horizon)

    def copy(self) -> DiskLog:
        return DiskLog(list(self.batches), list(self.runs), self.end, self.horizon)

    def state(self) -> LogState:
        sets = [(batch.base_offset, batch.sets) for batch in self.batches if batch.sets is not None]
        return LogState(self.end, self.runs, sets, self.horizon)

    def epoch_before(self, offset: int) -> int:
        found = -1
        for epoch, start in self.runs:
            if start < offset:
                found = epoch
        return found

    def read(self, start: int, bytes_max: int) -> tuple[int, list[Batch]]:
        """(end of the range, its batches), at least one batch."""
        found: list[Batch] = []
        size = 0
        for batch in self.batches_from(start):
            size += len(batch.data)
            if found and size > bytes_max:
                return batch.base_offset, found
            found.append(batch)
        return self.end, found

    def batches_from(self, start: int) -> list[Batch]:
        low, high = 0, len(self.batches)
        while low < high:
            middle = (low + high) // 2
            if self.batches[middle].base_offset < start:
                low = middle + 1
            else:
                high = middle
        return self.batches[low:]


class Disk:
    """Of one pod: its writes go one after the other, whatever replica they are of."""

    def __init__(self, random: Random, injected: Counter[Injected]) -> None:
        self._random = random
        self._injected = injected
        self._under_way: list[Callable[[], None]] = []

    def open(self) -> None:
        """The process starts."""

    def new_storage(self, log_id: str, partition: int, random: Random) -> Storage:
        return Storage(log_id, random)

    def delete(self, partition: int) -> None:
        """Its log. The process is down."""

    def wipe(self) -> None:
        """The volume is lost."""

    def begin(self, write: Callable[[], None]) -> None:
        """It is under way from now on."""
        self._under_way.append(write)

    def finish(self, count: int) -> None:
        """The ``count`` oldest of what is under way are durable."""
        for _ in range(count):
            self._under_way.pop(0)()
        self.flush()

    def flush(self) -> None:
        """Make durable what was written since the last time."""

    def crash(self, *, power: bool, failed: bool = False) -> None:
        """Any prefix of what is under way reached the disk. ``failed``: a write ended in an I/O error."""
        kept = self._random.randint(0, len(self._under_way))
        self._injected[Injected.WRITE_LOST] += len(self._under_way) - kept
        for write in self._under_way[:kept]:
            write()
        del self._under_way[:kept]
        self.die(power=power, failed=failed)
        self._under_way.clear()

    def die(self, *, power: bool, failed: bool) -> None:
        """In the middle of what is still under way."""


class Storage:
    """Of one replica. ``durable``: what survives; ``synced_end``: what of it also a power loss does, under flush os."""

    def __init__(self, log_id: str, random: Random) -> None:
        self.log_id = log_id
        self.promise = Promise()
        self.durable = DiskLog()
        self.synced_end = 0
        self.checkpoint: Checkpoint | None = None
        self.lost = ""  # why data that was acked may be missing; "" if none is
        self.power_lost = False
        self.random = random

    @property
    def is_damaged(self) -> bool:
        """Something that was acked may be missing, and the replica has not caught up since."""
        return bool(self.lost) or self.power_lost or self.promise.rebuilding

    def open(self) -> LogState:
        """The process starts. ``durable`` and ``lost`` say what was found."""
        return self.durable.state()

    # -- writes, when they become durable -----------------------------------------------------------------------------

    def keep_promise(self, promise: Promise) -> None:
        self.promise = promise
        if promise.rebuilding:
            self.lost, self.power_lost = "", False

    def append(self, end: int, batches: Sequence[Batch], runs: Sequence[tuple[int, int]], horizon: int) -> None:
        self.durable.append(end, batches, runs, horizon)

    def sync(self) -> None:
        self.synced_end = self.durable.end

    def cut(self, end: int) -> None:
        self.durable.cut(end)
        self.synced_end = min(self.synced_end, end)

    def swap(self, copy: DiskLog) -> None:
        self.durable = copy.copy()
        self.synced_end = copy.end
        self.checkpoint = None

    def clean(self, limit: int, wall_ms: int) -> tuple[dict[int, Batch | None], int]:
        """Compact what is durable below ``limit``: (base offset -> what is left of a batch, the horizon)."""
        changed, horizon = clean_batches([one for one in self.durable.batches if one.end_offset <= limit], wall_ms)
        self.durable.clean(changed, horizon)
        return changed, horizon

    # -- faults -------------------------------------------------------------------------------------------------------

    def lose_power(self) -> bool:
        """Under flush os: the page cache is gone. True if something was in it alone."""
        lost = self.durable.end > self.synced_end
        self.durable.cut(self.synced_end)
        self.power_lost = True
        return lost

    def flip_bit(self) -> bool:
        """In a record of the log. False: there is none."""
        if not self.durable.batches:
            return False
        self.durable.cut(self.random.choice(self.durable.batches).base_offset)
        self.synced_end = min(self.synced_end, self.durable.end)
        self.lost = "damage"
        return True
