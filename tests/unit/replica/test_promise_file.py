"""The promise file: durable, monotonic, and never open to two leaders of one epoch."""

from __future__ import annotations

import errno
from pathlib import Path
from random import Random
from struct import pack

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.log.fake_disk import FakeDisk

from muster_coordinator.log.disk import OsDisk
from muster_coordinator.replica.log_id import new_log_id
from muster_coordinator.replica.promise_file import PROMISE_NAME, PromiseError, PromiseFile, StalePromiseError
from muster_coordinator.replication.epochs import EPOCH_JUMP_MAX, NOBODY, EpochJumpError, check_epoch

DIRECTORY = Path("/data/__consumer_offsets-0")
FILE = DIRECTORY / PROMISE_NAME
LOG_ID = "0123456789abcdef" * 2


def new_file() -> tuple[FakeDisk, PromiseFile]:
    disk = FakeDisk()
    return disk, PromiseFile.create(disk, DIRECTORY, LOG_ID)


def reopened(disk: FakeDisk) -> tuple[int, str]:
    file = PromiseFile.open(disk, DIRECTORY)
    assert file.log_id == LOG_ID
    return file.epoch, file.leader


def test_new_file_has_promised_nothing_and_survives_a_power_loss() -> None:
    disk, _ = new_file()
    disk.lose_power(Random(0))
    assert reopened(disk) == (-1, NOBODY)


@given(st.lists(st.integers(1, 100), max_size=6), st.integers(0, 2**32))
def test_every_promise_survives_a_power_loss(steps: list[int], seed: int) -> None:
    disk, file = new_file()
    epoch = 0
    for step in steps:
        epoch += step
        file.store(epoch, f"leader-{epoch}")
        disk.lose_power(Random(seed))
        assert reopened(disk) == (epoch, f"leader-{epoch}")
        file = PromiseFile.open(disk, DIRECTORY)


@given(st.integers(0, 2**32))
def test_torn_promise_leaves_the_one_before_or_is_whole(seed: int) -> None:
    disk, file = new_file()
    file.store(5, "a")
    disk.fail_with(errno.EIO, "pwritev_durably")
    with pytest.raises(OSError, match="pwritev_durably"):
        file.store(6, "b")
    assert (file.epoch, file.leader) == (5, "a")
    disk.lose_power(Random(seed))
    assert reopened(disk) in ((5, "a"), (6, "b"))


def test_promise_that_failed_can_be_tried_again() -> None:
    disk, file = new_file()
    file.store(5, "a")
    disk.fail_with(errno.EIO, "pwritev_durably")
    with pytest.raises(OSError, match="pwritev_durably"):
        file.store(6, "b")
    disk.fault = None
    file.store(7, "c")
    assert reopened(disk) == (7, "c")


@pytest.mark.parametrize(("epoch", "leader"), [(4, "a"), (4, "b"), (5, "b"), (5, NOBODY)])
def test_lower_epoch_or_another_leader_of_the_same_is_refused(epoch: int, leader: str) -> None:
    _, file = new_file()
    file.store(5, "a")
    with pytest.raises(StalePromiseError):
        file.store(epoch, leader)


def test_epoch_promised_to_nobody_takes_one_name_once() -> None:
    disk, file = new_file()
    file.store(5, NOBODY)
    file.store(5, "a")
    file.store(5, "a")
    with pytest.raises(StalePromiseError):
        file.store(5, "b")
    assert reopened(disk) == (5, "a")


@pytest.mark.parametrize("stored", [-1, 0, 7])
def test_epoch_far_ahead_is_refused(stored: int) -> None:
    check_epoch(stored, max(stored, 0) + EPOCH_JUMP_MAX)
    with pytest.raises(EpochJumpError):
        check_epoch(stored, max(stored, 0) + EPOCH_JUMP_MAX + 1)


def test_promise_far_ahead_is_not_stored() -> None:
    _, file = new_file()
    with pytest.raises(EpochJumpError):
        file.store(EPOCH_JUMP_MAX + 1, "a")
    assert file.epoch == -1


def test_missing_file_is_an_error() -> None:
    with pytest.raises(PromiseError, match="missing"):
        PromiseFile.open(FakeDisk(), DIRECTORY)


@pytest.mark.parametrize("content", [b"", bytes(8192), b"x" * 8192], ids=["empty", "zeros", "garbage"])
def test_file_without_a_valid_slot_is_an_error(content: bytes) -> None:
    disk, _ = new_file()
    disk.write(FILE, content)
    with pytest.raises(PromiseError, match="no valid slot"):
        PromiseFile.open(disk, DIRECTORY)


def test_promise_needs_no_free_space() -> None:
    disk, file = new_file()
    size = len(disk.content(FILE))
    for epoch in range(5):
        file.store(epoch, "leader" * 20)
        assert len(disk.content(FILE)) == size


class WatchedDisk(OsDisk):
    """`opened`: names of files, and whether past the page cache."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[tuple[str, bool]] = []

    def open(self, path: Path, *, create: bool = False, direct: bool = False) -> int:
        self.opened.append((path.name, direct))
        return super().open(path, create=create, direct=direct)


@pytest.mark.interpreted
def test_promise_is_written_past_the_page_cache(tmp_path: Path) -> None:
    disk = WatchedDisk()
    file = PromiseFile.create(disk, tmp_path, LOG_ID)
    for epoch in (1, 2, 3):
        disk.opened.clear()
        file.store(epoch, "pod-1")
        assert disk.opened == [(PROMISE_NAME, True)]
        assert PromiseFile.open(disk, tmp_path).epoch == epoch


def test_log_ids_are_random_and_printable() -> None:
    assert new_log_id(lambda count: bytes(range(count))) == "000102030405060708090a0b0c0d0e0f"
    assert new_log_id() != new_log_id()


def test_replica_that_people_have_to_look_at_stays_so_with_its_promise() -> None:
    disk, file = new_file()
    file.store(3, "leader", incarnation=1)
    assert file.stopped == ""
    file.stop("é" * 2_000)
    again = PromiseFile.open(disk, DIRECTORY)
    assert (again.epoch, again.leader, again.incarnation, again.stopped) == (3, "leader", 1, "é" * 512)
    again.store(4, "other")
    assert PromiseFile.open(disk, DIRECTORY).stopped == "é" * 512


@pytest.mark.parametrize(("epoch", "used"), [(-1, False), (0, True), (5, True)])
def test_slot_of_a_version_without_the_last_fields_is_read(epoch: int, used: bool) -> None:
    """That version kept no mark: a log that promised an epoch may have held records."""
    body = b"MPR1" + pack(">qi32sh", 7, epoch, LOG_ID.encode(), 1) + b"a"
    body = body.ljust(4092, b"\0")
    disk = FakeDisk()
    disk.write(FILE, body + pack(">I", crc32c(body)) + bytes(4096))
    file = PromiseFile.open(disk, DIRECTORY)
    assert (file.epoch, file.leader, file.incarnation, file.rebuilding) == (epoch, "a", 0, False)
    assert (file.used, file.stopped) == (used, "")


def test_mark_of_a_used_log_is_durable_and_stays() -> None:
    disk, file = new_file()
    file.store(0, "a")
    assert not PromiseFile.open(disk, DIRECTORY).used
    file.store(0, "a", used=True)
    assert PromiseFile.open(disk, DIRECTORY).used
    file.store(1, "b")
    assert PromiseFile.open(disk, DIRECTORY).used


def test_loss_of_data_is_kept_with_the_promise_and_survives_the_next_one() -> None:
    disk, file = new_file()
    assert (file.incarnation, file.rebuilding) == (0, False)
    file.store(3, "leader", incarnation=1, rebuilding=True)
    file.store(4, "other")
    again = PromiseFile.open(disk, DIRECTORY)
    assert (again.epoch, again.leader, again.incarnation, again.rebuilding) == (4, "other", 1, True)
    again.store(4, "other", rebuilding=False)
    assert not PromiseFile.open(disk, DIRECTORY).rebuilding


@given(st.integers(0, 2**32))
def test_promise_that_a_process_left_unsynced_is_durable_once_the_next_one_has_read_it(seed: int) -> None:
    disk, file = new_file()
    file.store(5, "a")
    disk.fail_with(errno.EIO, "pwritev_durably")  # the process ends after the write and before its sync
    with pytest.raises(OSError, match="pwritev_durably"):
        file.store(6, "b")
    disk.fault = None
    disk.kill()
    found = reopened(disk)
    disk.lose_power(Random(seed))
    assert reopened(disk) == found
