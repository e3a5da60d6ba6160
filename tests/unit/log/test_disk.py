"""One contract for the real disk and the fake one, and real files from end to end."""

from __future__ import annotations

import errno
import resource
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest
from structlog.testing import capture_logs
from tests.unit.log.fake_disk import FakeDisk
from tests.unit.log.harness import make_batch

from muster_coordinator.log.disk import (
    Disk,
    OsDisk,
    read_fully,
    read_whole_file,
    replace_file,
    write_fully,
    write_fully_durably,
)
from muster_coordinator.log.journal.journal import Journal, JournalSettings
from muster_coordinator.log.segments.partition_log import LogSettings, PartitionLog, partition_directory
from muster_coordinator.tuning.descriptors import SpareDescriptors, lowest_free_descriptor


@pytest.fixture(params=[OsDisk, FakeDisk])
def disk(request: pytest.FixtureRequest) -> Disk:
    made: Disk = request.param()
    return made


def test_missing_file_is_not_found(disk: Disk, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        disk.open(tmp_path / "missing")


def test_written_bytes_are_read_back_and_gaps_are_zeros(disk: Disk, tmp_path: Path) -> None:
    file = disk.open(tmp_path / "file", create=True)
    write_fully(disk, file, b"behind", 10)
    write_fully_durably(disk, file, b"front", 0)
    disk.begin_write_back(file, 0, 16)
    disk.fdatasync(file)
    assert disk.size(file) == 16
    assert read_fully(disk, file, 100, 0) == b"front\0\0\0\0\0behind"
    disk.truncate(file, 3)
    disk.close(file)
    assert read_whole_file(disk, tmp_path / "file") == b"fro"


@pytest.mark.parametrize("gently", [False, True])
def test_zeros_fill_the_file_in_place_of_what_was_there(disk: Disk, tmp_path: Path, gently: bool) -> None:
    file = disk.open(tmp_path / "file", create=True)
    write_fully(disk, file, b"old", 0)
    disk.fill_with_zeros(file, 3 << 20, gently=gently)
    assert read_fully(disk, file, 4 << 20, 0) == bytes(3 << 20)


def test_names_are_listed_replaced_and_removed(disk: Disk, tmp_path: Path) -> None:
    for name in ("a", "b"):
        disk.close(disk.open(tmp_path / name, create=True))
    disk.rename(tmp_path / "a", tmp_path / "b")
    disk.fsync_dir(tmp_path)
    assert disk.listdir(tmp_path) == ["b"]
    disk.unlink(tmp_path / "b")
    assert disk.listdir(tmp_path) == []
    assert disk.free_bytes(tmp_path) > 0


def test_no_power_loss_undoes_a_durable_write() -> None:
    """The writes before it never reached the medium, one because it failed; what of them it replaced cannot come back,
    what lies beside it can.
    """
    left: set[bytes] = set()
    for seed in range(30):
        disk = FakeDisk()
        path = Path("/file")
        disk.write(path, b"....................")
        file = disk.open(path)
        write_fully(disk, file, b"aaaaaaaa", 0)
        disk.fail_with(errno.EIO, "pwritev_durably")
        with pytest.raises(OSError, match="pwritev_durably"):
            write_fully_durably(disk, file, b"bbbbbbbb", 8)
        disk.fault = None
        write_fully_durably(disk, file, b"cccccccc", 4)
        assert read_fully(disk, file, 20, 0) == b"aaaaccccccccbbbb...."
        disk.lose_power(Random(seed))
        left.add(read_whole_file(disk, path))
    assert left == {
        before + b"cccccccc" + behind + b"...." for before in (b"....", b"aaaa") for behind in (b"....", b"bbbb")
    }


def test_a_flipped_bit_is_on_the_medium_as_well() -> None:
    disk = FakeDisk()
    path = Path("/file")
    disk.write(path, b"....")
    disk.flip(path, 2)
    damaged = read_whole_file(disk, path)
    assert damaged != b"...."
    disk.lose_power(Random(0))
    assert read_whole_file(disk, path) == damaged


def test_log_and_journal_on_real_files_come_back(tmp_path: Path) -> None:
    disk = OsDisk()
    directory = partition_directory(tmp_path, 3)
    PartitionLog.create(disk, directory)
    for run in range(3):
        journal = Journal.open(disk, tmp_path / "journal", JournalSettings(file_bytes=4096), "boot")
        log = PartitionLog.open(disk, directory, 3, LogSettings(segment_bytes=2000), journal.recovered(3, "id"))
        assert log.end_offset == run * 20
        for _ in range(20):
            base = log.end_offset
            batch = make_batch(base, run)
            log.append(batch, base, base + 1, run)
            journal.stage(3, base, base + 1, batch)
            staged = journal.take()
            assert staged is not None
            journal.write(staged)
            log.journaled_end = base + 1
        log.close()
        journal.close()
    journal = Journal.open(disk, tmp_path / "journal", JournalSettings(file_bytes=4096), "boot")
    log = PartitionLog.open(disk, directory, 3, LogSettings(), journal.recovered(3, "id"))
    assert [batch.data for batch in log.read_batches(0)] == [make_batch(i, i // 20) for i in range(60)]
    assert log.epochs.entries == ((0, 0), (1, 20), (2, 40))


@pytest.fixture
def exhausted() -> Iterator[None]:
    """No descriptor is left."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free_descriptor(soft), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_directories_are_for_their_user_alone_where_nothing_else_is_said(tmp_path: Path) -> None:
    OsDisk().mkdir(tmp_path / "own")
    OsDisk(directory_mode=0o750).mkdir(tmp_path / "shown")
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("own", "shown")] == [0o700, 0o750]


def test_file_that_finds_no_descriptor_gets_a_spare_one(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    disk = OsDisk(spares := SpareDescriptors(2))
    request.getfixturevalue("exhausted")
    replace_file(disk, tmp_path / "file", b"content")
    disk.fsync_dir(tmp_path)
    assert spares.are_full, "they are taken back"
    files = [disk.open(tmp_path / "file") for _ in range(2)]
    with pytest.raises(OSError, match="Too many open files"):
        disk.open(tmp_path / "file")
    for file in files:
        disk.close(file)
    assert spares.are_full


def test_thread_waits_for_a_descriptor(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    disk = OsDisk()
    held = disk.open(tmp_path / "held", create=True)
    with ThreadPoolExecutor(1) as threads:
        threads.submit(int).result()  # the thread is there
        request.getfixturevalue("exhausted")
        with capture_logs() as logs:
            opening = threads.submit(disk.open, tmp_path / "file", create=True)
            until = time.monotonic() + 10
            while not logs and time.monotonic() < until:
                time.sleep(0.001)
        assert [line["event"] for line in logs] == ["no_descriptor_left"]
        assert not opening.done()
        disk.close(held)
        disk.close(opening.result(timeout=10))
