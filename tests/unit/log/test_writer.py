"""The journal writer on an event loop."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import AsyncIterator
from time import monotonic

import pytest
import structlog
from tests.unit.log.harness import JOURNAL, Pod

from muster_coordinator.log import writer as writer_module
from muster_coordinator.log.segments.partition_log import PartitionLog
from muster_coordinator.log.segments.segment import segment_name
from muster_coordinator.log.writer import JournalWriter, Pace
from muster_coordinator.records.epoch_cache import CHECKPOINT_NAME, EpochCache


class Owner:
    """Owns the log of one partition of a host."""

    def __init__(self, host: Host, partition: int) -> None:
        self._host = host
        self._partition = partition

    @property
    def open_log(self) -> PartitionLog | None:
        return self._host.pod.logs.get(self._partition)

    def log_durable(self, end_offset: int) -> None:
        log = self.open_log
        if log is not None:
            log.journaled_end = end_offset
        self._host.ends[self._partition] = end_offset


class Host:
    """Owns a pod and its writer; collects what is reported."""

    def __init__(self, pod: Pod) -> None:
        self.pod = pod
        self.reports: list[dict[int, int]] = []
        self.failures: list[OSError] = []
        self.changed = asyncio.Event()
        self.ends: dict[int, int] = {}
        self.writer = JournalWriter({p: Owner(self, p) for p in pod.logs}, Pace(), self.failed, monotonic)

    def start(self) -> None:
        self.writer.start(self.pod.journal, self.written)

    def written(self) -> None:
        ends, self.ends = self.ends, {}
        self.reports.append(ends)
        self.changed.set()

    def failed(self, exc: OSError) -> None:
        self.failures.append(exc)
        self.changed.set()

    async def report(self) -> None:
        async with asyncio.timeout(10):
            await self.changed.wait()
        self.changed.clear()

    async def commit(self, p: int = 0) -> None:
        self.pod.append(p)
        self.writer.submit()
        await self.report()


@pytest.fixture
async def host() -> AsyncIterator[Host]:
    host = Host(Pod(partitions=3, journal_bytes=2048))
    host.start()
    yield host
    host.pod.disk.fault = None
    await host.writer.close()


async def test_submitted_batches_are_reported_durable_and_are(host: Host) -> None:
    host.pod.append(0)
    host.pod.append(2)
    host.pod.append(2)
    host.writer.submit()
    await host.report()
    assert host.reports == [{0: 1, 2: 2}]
    assert host.pod.logs[2].journaled_end == 2
    host.pod.reboot()
    assert host.pod.content(2) == host.pod.written[2]


async def test_what_comes_during_a_write_goes_with_the_next_one(host: Host) -> None:
    gate = threading.Event()

    def wait(operation: str, path: object, size: int) -> int | None:
        if operation == "pwritev_durably":
            gate.wait(10)
        return None

    host.pod.disk.fault = wait
    host.pod.append(0)
    host.writer.submit()
    host.pod.append(0)
    host.writer.submit()
    host.pod.append(1)
    host.writer.submit()
    gate.set()
    await host.report()
    if len(host.reports) < 2:
        await host.report()
    assert host.reports == [{0: 1}, {0: 2, 1: 1}]


async def test_what_a_segment_got_is_told_to_the_operating_system_once(
    roomy: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "HOUSEKEEPING_INTERVAL_S", 0.0)
    told: list[int] = []

    def note(operation: str, path: object, size: int) -> int | None:
        if operation == "begin_write_back":
            told.append(size)
        return None

    roomy.pod.disk.fault = note
    segment = roomy.pod.directory(0) / segment_name(0)
    for _ in range(5):
        await roomy.commit()
        roomy.pod.log.flush_segment()
    size = len(roomy.pod.disk.content(segment))
    async with asyncio.timeout(10):
        while sum(told) < size:
            await roomy.commit()
    assert sum(told) == size, "what is buffered has nothing to write back"


class Times:
    """How long each write takes, and which thread does it."""

    def __init__(self, host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds = 0.0
        self.by_loop: list[bool] = []
        self._now = 0.0
        self._loop_thread = threading.get_ident()
        host.pod.disk.fault = self._write
        monkeypatch.setattr(host.writer, "_now_s", lambda: self._now)

    def _write(self, operation: str, path: object, size: int) -> None:
        if operation == "pwritev_durably":
            self._now += self.seconds
            self.by_loop.append(threading.get_ident() == self._loop_thread)

    async def commits(self, host: Host, count: int, seconds: float) -> list[bool]:
        """For each of so many commits, whether the event loop wrote it."""
        self.seconds = seconds
        self.by_loop.clear()
        for _ in range(count):
            await host.commit()
        return list(self.by_loop)


@pytest.fixture
async def roomy() -> AsyncIterator[Host]:
    """Its journal's file does not change, and its segments get nothing that the test does not flush."""
    host = Host(Pod(journal_bytes=1 << 20, buffer_bytes=1 << 30))
    host.start()
    yield host
    host.pod.disk.fault = None
    await host.writer.close()


FAST, SLOW, STALLED = 0.0001, 0.002, 0.2


async def test_event_loop_writes_while_the_disk_is_fast(roomy: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    times = Times(roomy, monkeypatch)
    first = await times.commits(roomy, 40, FAST)
    assert not any(first[:20])
    assert all(first[30:])
    slow = await times.commits(roomy, 40, SLOW)
    assert all(slow[:10])
    assert not any(slow[30:])
    assert not any(await times.commits(roomy, 10, FAST))
    roomy.pod.reboot()
    assert roomy.pod.content() == roomy.pod.written[0]


async def test_disk_that_is_slow_now_and_then_counts_as_fast(roomy: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    times = Times(roomy, monkeypatch)
    await times.commits(roomy, 40, FAST)
    for _ in range(20):
        assert await times.commits(roomy, 3, FAST) + await times.commits(roomy, 1, SLOW) == [True] * 4


async def test_after_a_write_that_stalled_the_thread_writes_for_long(
    roomy: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = Times(roomy, monkeypatch)
    await times.commits(roomy, 40, FAST)
    assert await times.commits(roomy, 1, STALLED) == [True]
    assert not any(await times.commits(roomy, 100, FAST))
    assert (await times.commits(roomy, 50, FAST))[-1]


async def test_write_that_all_groups_of_the_pod_waited_for_is_logged(
    roomy: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = Times(roomy, monkeypatch)
    with structlog.testing.capture_logs() as logs:
        await times.commits(roomy, 40, SLOW)
        assert logs == []
        await times.commits(roomy, 1, STALLED)
    (line,) = logs
    assert (line["event"], line["log_level"], line["ms"]) == ("journal_write_slow", "warning", 200)
    assert line["ends"] == {0: roomy.pod.log.end_offset}, "followers name the records as the leader does"
    assert line["partitions"] == 1


async def test_large_write_and_change_of_the_file_are_the_threads(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    times = Times(host, monkeypatch)
    await times.commits(host, 60, FAST)
    monkeypatch.setattr(writer_module, "INLINE_BYTES_MAX", 10)
    assert await times.commits(host, 1, FAST) == [False]
    monkeypatch.undo()
    times = Times(host, monkeypatch)
    before = host.pod.journal._sequence
    by_loop: list[bool] = []
    while host.pod.journal._sequence == before:
        by_loop = await times.commits(host, 1, FAST)
    assert by_loop == [False]


async def test_what_was_scheduled_before_the_write_comes_first(roomy: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn's appends leave for the other replicas while this pod writes."""
    times = Times(roomy, monkeypatch)
    await times.commits(roomy, 40, FAST)
    times.by_loop.clear()
    roomy.pod.append()
    sent: list[int] = []
    asyncio.get_running_loop().call_soon(lambda: sent.append(len(times.by_loop)))
    roomy.writer.submit()
    assert roomy.writer.is_writing
    await roomy.report()
    assert sent == [0]
    assert times.by_loop == [True]


async def test_failed_write_of_the_event_loop_is_reported_as_one_of_the_thread(
    roomy: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    await Times(roomy, monkeypatch).commits(roomy, 40, FAST)
    roomy.pod.disk.fail_with(errno.EIO, "pwritev_durably")
    await roomy.commit()
    assert [exc.errno for exc in roomy.failures] == [errno.EIO]
    assert not roomy.writer.is_writing
    roomy.pod.disk.fault = None
    await roomy.writer.recover(roomy.pod.logs.values())
    await roomy.commit()
    assert roomy.reports[-1] == {0: 42}


async def test_submit_of_nothing_writes_nothing(host: Host) -> None:
    host.writer.submit()
    await host.commit()
    assert host.reports == [{0: 1}]


async def test_failed_write_is_reported_once_and_nothing_is_written_until_recovery(host: Host) -> None:
    await host.commit()
    host.pod.disk.fail_with(errno.ENOSPC, "pwritev_durably")
    await host.commit()
    assert [exc.errno for exc in host.failures] == [errno.ENOSPC]
    host.pod.append()
    host.writer.submit()
    host.pod.disk.fail_with(errno.ENOSPC, "pwritev")
    with pytest.raises(OSError, match="pwritev"):
        await host.writer.recover(host.pod.logs.values())
    host.pod.disk.fault = None
    host.pod.disk.fail_with(errno.EIO, "pwritev_durably")
    with pytest.raises(OSError, match="pwritev_durably"):  # to say where the logs end
        await host.writer.recover(host.pod.logs.values())
    host.pod.append()
    assert host.writer.submit() == host.writer.ended, "it would be written behind a gap"
    host.pod.disk.fault = None
    await host.writer.recover(host.pod.logs.values())
    await host.commit()
    assert host.reports == [{0: 1}, {0: 5}]
    host.pod.reboot()
    assert host.pod.content() == host.pod.written[0]


@pytest.mark.parametrize("seed", range(6))
async def test_what_a_failed_write_carried_stays_in_a_log_that_was_cut_before(host: Host, seed: int) -> None:
    """Only the segment has it, and since the recovery it counts: no start may take it for what the cut removed."""
    for _ in range(3):
        await host.commit()
    host.pod.flush()
    host.pod.truncate(0, 2)
    host.pod.disk.fail_with(errno.ENOSPC, "pwritev_durably")
    await host.commit()
    host.pod.disk.fault = None
    await host.writer.recover(host.pod.logs.values())
    host.pod.reboot(seed)
    assert host.pod.log.end_offset == 3
    assert host.pod.content() == host.pod.written[0]


async def test_full_files_are_given_back_in_the_background(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "HOUSEKEEPING_INTERVAL_S", 0.0)
    for _ in range(200):
        await host.commit(0)
        await host.commit(1)
    async with asyncio.timeout(10):
        while len(host.pod.journal.closed_files()) > 1:
            await host.commit(0)
            await asyncio.sleep(0.01)  # a file holds some ten of these commits
    assert len(host.pod.disk.listdir(JOURNAL)) <= 4
    host.pod.reboot()
    assert host.pod.content() == host.pod.written[0]


async def test_file_with_batches_of_a_log_that_is_not_open_is_kept(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "HOUSEKEEPING_INTERVAL_S", 0.0)
    await host.commit(2)
    closed = host.pod.logs.pop(2)
    for _ in range(60):
        await host.commit(0)
    assert 2 in host.pod.journal.closed_files()[0].partitions
    host.pod.logs[2] = closed
    async with asyncio.timeout(10):
        while any(2 in file.partitions for file in host.pod.journal.closed_files()):
            await host.commit(0)


async def test_failed_sync_is_reported_and_keeps_the_file(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "HOUSEKEEPING_INTERVAL_S", 0.0)
    while not host.pod.journal.closed_files():
        host.pod.commit(1)
    host.pod.disk.fail_with(errno.EIO, "fdatasync")
    await host.commit(0)
    if not host.failures:
        await host.report()
    assert host.pod.logs[1].failed is not None
    assert host.pod.logs[0].failed is None
    assert host.pod.journal.closed_files()


async def test_close_writes_what_is_staged(host: Host) -> None:
    host.pod.append()
    await host.writer.close()
    host.pod.reboot()
    assert host.pod.content() == host.pod.written[0]


async def test_full_disk_at_a_sync_costs_no_trust_and_the_epochs_are_written_later(host: Host) -> None:
    pod = host.pod
    pod.commit(0)
    pod.disk.fail_with(errno.ENOSPC, "pwritev", only=lambda path: path.name.startswith(CHECKPOINT_NAME))
    with pytest.raises(OSError, match="pwritev"):
        pod.logs[0].sync()
    assert pod.logs[0].failed is None
    pod.disk.fault = None
    pod.logs[0].sync()
    assert EpochCache.decode(bytes(pod.disk.content(pod.directory(0) / CHECKPOINT_NAME))).last_epoch == pod.epoch
    pod.commit(0)
    pod.reboot()
    assert len(pod.content(0)) == 2
