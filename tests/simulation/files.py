"""The real journal, logs and promise files, over a disk in memory that loses, tears and damages what it can.

What is durable is at any time what these files say: they are read again after every crash. A crash may come between
any two calls to the disk, and with a power loss, which keeps anything of what was not synced.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

from tests.simulation.injected import Injected
from tests.simulation.machine import decode_batch
from tests.simulation.storage import Disk, DiskLog, Storage
from tests.simulation.world import Violation
from tests.unit.log.fake_disk import FakeDisk

from muster_coordinator.log.cleaning.cleaner import Cleaning
from muster_coordinator.log.errors import DamagedLogError
from muster_coordinator.log.journal.journal import Journal, JournalSettings
from muster_coordinator.log.segments.copy import swap_count, write_swap_count
from muster_coordinator.log.segments.partition_log import LogSettings, PartitionLog, partition_directory
from muster_coordinator.pod.opening import log_state
from muster_coordinator.records.batch import LENGTH_OVERHEAD
from muster_coordinator.replica.promise_file import PROMISE_NAME, PromiseFile
from muster_coordinator.replica.stored import StoredReplica
from muster_coordinator.replication.effects import Promise
from muster_coordinator.replication.log_state import LogState
from muster_coordinator.replication.messages import Batch

__all__ = ["FileDisk"]

DATA = Path("/data")
JOURNAL = DATA / "journal"
SEGMENT_BYTES = 2_000
LOG_SETTINGS = LogSettings(segment_bytes=SEGMENT_BYTES, buffer_bytes=500, read_chunk_bytes=4_096)
JOURNAL_SETTINGS = JournalSettings(file_bytes=8_192)
STEPS_MAX = 12
"""Calls to the disk that a dying process still makes, at most."""


WRITES = ("pwritev_durably", "fdatasync")


class _Dies(Exception):
    """At this call to the disk."""

    def __init__(self, operation: str, path: Path) -> None:
        super().__init__(operation)
        self.operation = operation
        self.path = path


class FileDisk(Disk):
    def __init__(self, random: Random, injected: Counter[Injected]) -> None:
        super().__init__(random, injected)
        self.fake = FakeDisk()
        self.storages: dict[int, FileStorage] = {}
        self._boots = 0

    def new_storage(self, log_id: str, partition: int, random: Random) -> Storage:
        self.storages[partition] = FileStorage(log_id, random, self, partition)
        return self.storages[partition]

    def delete(self, partition: int) -> None:
        directory = partition_directory(DATA, partition)
        for path in [path for path in self.fake.names if path.parent == directory]:
            self.fake.unlink(path)
        self.fake.fsync_dir(directory)

    def wipe(self) -> None:
        self.fake = FakeDisk()

    def open(self) -> None:
        self.journal = Journal.open(self.fake, JOURNAL, JOURNAL_SETTINGS, f"boot {self._boots}")

    def flush(self) -> None:
        staged = self.journal.take()
        if staged is None:
            return
        self.journal.write(staged)
        for partition, end in staged.ends.items():
            self.storages[partition].journaled(end)
        if self.journal.wants_housekeeping and self._random.random() < 0.3:
            self._keep_house()

    def _keep_house(self) -> None:
        for file in self.journal.closed_files():
            for partition in sorted(file.partitions):
                self.storages[partition].files.log.sync()
            self.journal.retire(file)
        self.journal.prepare_spare()

    def die(self, *, power: bool, failed: bool) -> None:
        steps = self._random.randint(0, STEPS_MAX)
        self.fake.fault = self._dying(steps, in_write=failed or self._random.random() < 0.5)
        try:
            if self._under_way:
                self._under_way[0]()
            self.flush()
        except _Dies as end:
            if failed and end.operation in WRITES:
                self.fake.count_as_written(end.path)
        self.fake.fault = None
        if power:
            self._boots += 1
            self._injected[Injected.WRITE_TORN] += self.fake.lose_power(self._random)
        else:
            self.fake.kill()

    @staticmethod
    def _dying(steps: int, *, in_write: bool) -> Callable[[str, Path, int], None]:
        """``in_write``: at the first write that shall be durable, should it come before: a power loss may tear it, and
        if it failed, the kernel tries it no more.
        """
        left = iter(range(steps))

        def fault(operation: str, path: Path, size: int) -> None:
            if next(left, None) is None or (in_write and operation in WRITES):
                raise _Dies(operation, path)

        return fault


class FileStorage(Storage):
    """``durable`` is a copy in memory of what the files hold. ``_floor``: end of what was reported as durable."""

    def __init__(self, log_id: str, random: Random, disk: FileDisk, partition: int) -> None:
        super().__init__(log_id, random)
        self.files: StoredReplica
        self._disk = disk
        self._partition = partition
        self._directory = partition_directory(DATA, partition)
        self._floor = 0
        self._flipped = False
        self._is_new = True

    def open(self) -> LogState:
        fake = self._disk.fake
        if self._flipped:
            self.lost = ""  # unless it is found
        if self._is_new:
            PartitionLog.create(fake, self._directory)
            PromiseFile.create(fake, self._directory, self.log_id)
            self._is_new = False
        try:
            self._open_files()
            self.durable = _content(self.files.log)
        except DamagedLogError as error:
            if not self._flipped:
                raise
            self._begin_anew(str(error))
        self._flipped = False
        self.promise = self.files.promise
        if self.durable.end < self._floor:
            raise Violation(f"the log of {self.log_id} ends at {self.durable.end}, durable was {self._floor}")
        self._floor = self.durable.end
        return log_state(self.files)

    def _open_files(self) -> None:
        fake = self._disk.fake
        promised = PromiseFile.open(fake, self._directory)
        self.files = StoredReplica(fake, self._directory, self._partition, promised, self._disk.journal)
        self.files.open_log(LOG_SETTINGS)

    def _begin_anew(self, reason: str) -> None:
        """The damaged log is put away; an empty one takes its place, and is rebuilt."""
        fake, directory = self._disk.fake, self._directory
        self._disk.journal.release(self._partition)
        count = swap_count(fake, directory) + 1
        for path in [path for path in fake.names if path.parent == directory and path.name != PROMISE_NAME]:
            fake.unlink(path)
        write_swap_count(fake, directory, count)
        PartitionLog.create(fake, directory)
        self._open_files()
        self.durable = DiskLog()
        self.lost, self._floor = f"damage: {reason}", 0

    def journaled(self, end: int) -> None:
        self.files.log.journaled_end = self._floor = end

    # -- writes -------------------------------------------------------------------------------------------------------

    def keep_promise(self, promise: Promise) -> None:
        self.files.store_promise(promise)
        super().keep_promise(promise)

    def append(self, end: int, batches: Sequence[Batch], runs: Sequence[tuple[int, int]], horizon: int) -> None:
        self.files.append_received(batches, end)
        super().append(end, batches, runs, horizon)

    def cut(self, end: int) -> None:
        self._disk.flush()
        self.files.log.flush_segment()
        self._floor = min(self._floor, end)
        self.files.stage_truncation(end)
        self._disk.flush()
        self.files.log.begin_truncate(end)()
        super().cut(end)

    def swap(self, copy: DiskLog) -> None:
        self._disk.flush()
        self._floor = 0
        beside = self.files.begin_copy(SEGMENT_BYTES)
        for batch in copy.batches:
            beside.append(batch.data, batch.base_offset, batch.end_offset, batch.epoch)
        beside.skip_to(copy.end)
        self.files.swap_in(beside, copy.horizon, LOG_SETTINGS)
        super().swap(copy)

    def clean(self, limit: int, wall_ms: int) -> tuple[dict[int, Batch | None], int]:
        log = self.files.log
        if not log.closed_segments(limit):
            return {}, 0
        cleaning = Cleaning(
            self._disk.fake, log, limit, now_ms=wall_ms, delete_retention_ms=0, segment_bytes=SEGMENT_BYTES
        )
        for _ in cleaning.steps():
            cleaning.hand_over()
        cleaning.hand_over()
        before, self.durable = self.durable, _content(log)
        left = {batch.base_offset: batch for batch in self.durable.batches}
        changed = {
            one.base_offset: left.get(one.base_offset) for one in before.batches if left.get(one.base_offset) != one
        }
        return changed, self.durable.horizon

    # -- faults -------------------------------------------------------------------------------------------------------

    def flip_bit(self) -> bool:
        """Anywhere in a segment but in what no checksum covers: base offset and leader epoch of a batch."""
        fake = self._disk.fake
        names = [path for path in fake.names if path.suffix == ".log" and path.parent == self._directory]
        covered = [(path, position) for path in names for position in _covered(bytes(fake.content(path)))]
        if not covered:
            return False
        fake.flip(*self.random.choice(covered))
        self._flipped, self.lost = True, "flipped bit"
        return True


def _covered(content: bytes) -> list[int]:
    """Positions whose bytes a checksum covers, or which decide where the next batch begins."""
    found: list[int] = []
    start = 0
    while start < len(content):
        end = min(start + LENGTH_OVERHEAD + int.from_bytes(content[start + 8 : start + 12], "big"), len(content))
        found += [*range(start + 8, min(start + 12, end)), *range(start + 16, end)]
        start = end
    return found


def _content(log: PartitionLog) -> DiskLog:
    batches = [
        Batch(one.base_offset, one.end_offset, one.leader_epoch, one.data, decode_batch(one.data).sets)
        for one in log.read_batches(log.start_offset)
    ]
    return DiskLog(batches, list(log.epochs.entries), log.end_offset, log.cleaned_to.tombstone_horizon)
