"""A pod's logs over a fake disk: what a shard runtime does with journal and logs, in one thread, without a loop."""

from __future__ import annotations

from pathlib import Path
from random import Random

from tests.unit.log.fake_disk import FakeDisk

from muster_coordinator.log.journal.journal import Journal, JournalSettings
from muster_coordinator.log.segments.partition_log import LogSettings, PartitionLog, partition_directory
from muster_coordinator.records.batch import encode_batch, read_batch

DATA = Path("/data")
JOURNAL = DATA / "journal"


def make_batch(base_offset: int, epoch: int, filler: int = 20, count: int = 1) -> bytes:
    """Different offsets and sizes give different bytes."""
    records = [(b"key-%d" % (base_offset + i), b"%d" % base_offset * (filler // 4 + 1)) for i in range(count)]
    return encode_batch(records, base_offset=base_offset, leader_epoch=epoch, timestamp_ms=1000 + base_offset)


class Pod:
    """`acknowledged`: partition -> end that was reported durable. `written`: every batch that was appended."""

    def __init__(
        self,
        disk: FakeDisk | None = None,
        partitions: int = 1,
        *,
        segment_bytes: int = 1 << 20,
        journal_bytes: int = 1 << 16,
        buffer_bytes: int = 1 << 16,
    ) -> None:
        self.disk = disk or FakeDisk()
        self.partitions = partitions
        self.settings = LogSettings(segment_bytes=segment_bytes, buffer_bytes=buffer_bytes, read_chunk_bytes=4096)
        self.journal_settings = JournalSettings(file_bytes=journal_bytes)
        self.boot = 1
        self.epoch = 1
        self.acknowledged = dict.fromkeys(range(partitions), 0)
        self.written: dict[int, list[bytes]] = {p: [] for p in range(partitions)}
        for p in range(partitions):
            PartitionLog.create(self.disk, self.directory(p))
        self.start()

    @staticmethod
    def directory(partition: int = 0) -> Path:
        return partition_directory(DATA, partition)

    @property
    def log(self) -> PartitionLog:
        return self.logs[0]

    def start(self) -> None:
        self.logs: dict[int, PartitionLog] = {}
        self.journal = Journal.open(self.disk, JOURNAL, self.journal_settings, f"boot-{self.boot}")
        for p in range(self.partitions):
            self.open_log(p)

    def open_log(self, p: int) -> None:
        history = self.journal.recovered(p, f"log-{p}")
        self.logs[p] = PartitionLog.open(self.disk, self.directory(p), p, self.settings, history)

    def append(self, p: int = 0, filler: int = 20, count: int = 1) -> bytes:
        log = self.logs[p]
        base, end = log.end_offset, log.end_offset + count
        batch = make_batch(base, self.epoch, filler, count)
        log.append(batch, base, end, self.epoch)
        self.written[p].append(batch)
        self.journal.stage(p, base, end, batch)
        return batch

    def write(self) -> None:
        """The turn's durable write."""
        staged = self.journal.take()
        if staged is not None:
            self.journal.write(staged)
            self.acknowledged.update(staged.ends)
            for p, end_offset in staged.ends.items():
                self.logs[p].journaled_end = end_offset

    def commit(self, p: int = 0, filler: int = 20, count: int = 1) -> bytes:
        batch = self.append(p, filler, count)
        self.write()
        return batch

    def flush(self) -> None:
        for log in self.logs.values():
            log.flush_segment()

    def give_files_back(self) -> None:
        for file in self.journal.closed_files():
            for p in file.partitions:
                self.logs[p].sync()
            self.journal.retire(file)

    def truncate(self, p: int, offset: int) -> None:
        """As a follower does: tell the journal, cut, and acknowledge nothing above from the start."""
        self.write()
        log = self.logs[p]
        self.written[p] = [batch for batch in self.written[p] if read_batch(batch).end_offset <= offset]
        offset = read_batch(self.written[p][-1]).end_offset if self.written[p] else 0
        self.acknowledged[p] = min(self.acknowledged[p], offset)
        log.flush_segment()
        end = log.cut_end(offset)
        self.journal.stage_truncation(p, end)
        if end < offset:
            self.journal.stage_gap(p, end, offset)
        self.write()
        log.begin_truncate(offset)()

    def restart(self) -> None:
        """SIGKILL, and a new process."""
        self.disk.kill()
        self.start()

    def reboot(self, seed: int = 0) -> None:
        """Power loss, and a new boot."""
        self.disk.lose_power(Random(seed))
        self.boot += 1
        self.start()

    def content(self, p: int = 0) -> list[bytes]:
        return [batch.data for batch in self.logs[p].read_batches(0)]


def pod_with(commits: int, **sizes: int) -> Pod:
    pod = Pod(**sizes)
    for _ in range(commits):
        pod.commit()
    pod.flush()
    return pod


def without_journal(pod: Pod) -> None:
    """As if another implementation had written the segments."""
    for name in pod.disk.listdir(JOURNAL):
        pod.disk.unlink(JOURNAL / name)
