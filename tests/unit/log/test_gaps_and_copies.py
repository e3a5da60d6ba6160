"""Logs of followers: gaps where records were compacted away elsewhere, cuts, and copies that are swapped in; under
crashes at every call of the disk."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from tests.unit.log.fake_disk import FakeDisk
from tests.unit.log.harness import DATA, JOURNAL, make_batch

from muster_coordinator.log.errors import DamagedLogError
from muster_coordinator.log.journal.journal import Journal, JournalSettings
from muster_coordinator.log.segments.copy import LogCopy, finish_swap, swap_count, swap_mark
from muster_coordinator.log.segments.partition_log import LogSettings, PartitionLog, partition_directory
from muster_coordinator.log.segments.segment import segment_name, segment_offsets
from muster_coordinator.records.batch import RecordBatch

DIRECTORY = partition_directory(DATA, 0)
SETTINGS = LogSettings(segment_bytes=400, buffer_bytes=1, read_chunk_bytes=4096)


class Died(Exception):
    """The process ends in the middle of a call."""


class Follower:
    """One log with a journal, on a disk that outlives it."""

    def __init__(self, disk: FakeDisk | None = None) -> None:
        self.disk = disk or FakeDisk()
        self.boot = 1
        if disk is None:
            PartitionLog.create(self.disk, DIRECTORY)
        self.open()

    def open(self) -> None:
        self.journal = Journal.open(self.disk, JOURNAL, JournalSettings(4096), f"boot-{self.boot}")
        self.reopen()

    def reopen(self, *, has_hole: bool = False) -> None:
        finish_swap(self.disk, DIRECTORY)
        history = self.journal.recovered(0, f"log/{swap_count(self.disk, DIRECTORY)}")
        history = replace(history, has_hole=has_hole)
        self.log = PartitionLog.open(self.disk, DIRECTORY, 0, SETTINGS, history)

    def receive(self, *bases: int, end: int, epoch: int = 1) -> None:
        """Batches of one record each at `bases`; the log ends at `end` then."""
        for base in bases:
            self.skip_to(base)
            data = make_batch(base, epoch)
            self.log.append(data, base, base + 1, epoch)
            self.journal.stage(0, base, base + 1, data)
        self.skip_to(end)
        self.write()

    def skip_to(self, offset: int) -> None:
        if self.log.end_offset < offset:
            self.journal.stage_gap(0, self.log.end_offset, offset)
            self.log.skip_to(offset)

    def write(self) -> None:
        staged = self.journal.take()
        assert staged is not None
        self.journal.write(staged)
        self.log.journaled_end = self.log.end_offset

    def cut(self, offset: int) -> None:
        self.log.flush_segment()
        end = self.log.cut_end(offset)
        self.journal.stage_truncation(0, end)
        if end < offset:
            self.journal.stage_gap(0, end, offset)
        staged = self.journal.take()
        assert staged is not None
        self.journal.write(staged)
        self.log.journaled_end = offset
        self.log.begin_truncate(offset)()

    def restart(self, *, power: int | None = None) -> None:
        if power is None:
            self.disk.kill()
        else:
            self.disk.lose_power(Random(power))
            self.boot += 1
        self.open()

    @property
    def found(self) -> tuple[list[int], int]:
        batches: list[RecordBatch] = list(self.log.read_batches(0))
        return [batch.base_offset for batch in batches], self.log.end_offset


@pytest.mark.parametrize("power", [None, *range(8)])
def test_gap_at_the_end_outlives_crashes_and_the_journal(power: int | None) -> None:
    follower = Follower()
    follower.receive(0, 1, 5, end=9)
    follower.restart(power=power)
    assert follower.found == ([0, 1, 5], 9)
    follower.log.sync()
    for path in [path for path in follower.disk.names if path.suffix == ".journal"]:
        follower.disk.unlink(path)
    follower.restart()
    assert follower.found == ([0, 1, 5], 9), "the name of a segment says where the log ends"
    follower.receive(12, end=13)
    follower.restart(power=power)
    assert follower.found == ([0, 1, 5, 12], 13)


@pytest.mark.parametrize("offset", [13, 10, 8, 6, 5, 1, 0])
@pytest.mark.parametrize("synced", [False, True])
def test_log_with_gaps_is_cut_between_two_batches_or_in_a_gap(offset: int, synced: bool) -> None:
    follower = Follower()
    follower.receive(0, 5, 7, end=9)
    follower.receive(11, 12, end=14, epoch=2)
    if synced:
        follower.log.sync()
    left = [base for base in (0, 5, 7, 11, 12) if base < offset]
    follower.cut(offset)
    assert follower.found == (left, offset)
    assert follower.log.epochs.last_epoch == (2 if offset > 11 else 1 if offset else -1)
    follower.restart(power=offset)
    assert follower.found == (left, offset)
    follower.receive(20, end=21, epoch=3)
    follower.restart()
    assert follower.found == ([*left, 20], 21)


def test_cut_that_is_interrupted_anywhere_is_whole_or_undone_after_a_start() -> None:
    for calls in range(40):
        follower = Follower()
        follower.receive(0, 1, 2, 3, 4, end=5)
        follower.receive(5, 6, 7, 8, 9, end=10, epoch=2)
        follower.log.sync()
        died = die_after(follower.disk, calls, lambda follower=follower: follower.cut(5))
        follower.restart(power=calls)
        found = follower.found
        assert found in (([0, 1, 2, 3, 4], 5), (list(range(10)), 10)), calls
        if not died:
            break
    assert found[1] == 5


def test_copy_takes_the_place_of_the_log_whole_or_not_at_all_wherever_it_is_interrupted() -> None:
    seen = set()
    for calls in range(200):
        follower = Follower()
        follower.receive(*range(10), end=10)
        follower.log.sync()
        follower.receive(10, 11, end=12)

        def swap(follower: Follower = follower) -> None:
            copy = LogCopy(follower.disk, DIRECTORY, 400)
            for base in (0, 3, 20, 21, 22, 23, 24, 25):
                copy.append(make_batch(base, 4), base, base + 1, 4)
            copy.skip_to(30)
            follower.log.close()
            copy.swap_in(17, 1)

        died = die_after(follower.disk, calls, swap)
        follower.restart(power=calls)
        found = follower.found
        assert found in ((list(range(12)), 12), ([0, 3, 20, 21, 22, 23, 24, 25], 30)), calls
        seen.add(found[1])
        assert follower.log.cleaned_to.tombstone_horizon == (17 if found[1] == 30 else 0)
        assert follower.log.epochs.entries == (((4, 0),) if found[1] == 30 else ((1, 0),))
        assert not [name for name in follower.disk.listdir(DIRECTORY) if name.endswith((".copying", ".moving"))]
        follower.receive(40, end=41, epoch=5)
        follower.restart()
        assert follower.found[0][-1] == 40
        if not died:
            break
    else:
        raise AssertionError("it never ended")
    assert seen == {12, 30}


COPIED = (0, 3, 20, 21, 22, 30, 31, 33, 34, 35, 40)
"""At 30 and 40 begins a segment: offsets are missing before both, and within the second one."""


def copied() -> Follower:
    """A follower with a copy of a log that was compacted elsewhere."""
    follower = Follower()
    follower.receive(*range(10), end=10)
    follower.log.sync()
    copy = LogCopy(follower.disk, DIRECTORY, 400)
    for base in COPIED:
        copy.append(make_batch(base, 4), base, base + 1, 4)
    copy.skip_to(44)
    follower.log.close()
    copy.swap_in(17, 1)
    follower.reopen()
    return follower


@pytest.mark.parametrize("cut", [None, 44, 41, 38, 36, 32, 31, 25, 10, 0])
def test_gaps_of_a_copy_are_none_of_lost_writes_though_the_journal_has_a_hole(cut: int | None) -> None:
    follower = copied()
    if cut is not None:
        follower.cut(cut)
    follower.log.sync()
    found = follower.found
    follower.log.close()
    follower.reopen(has_hole=True)
    assert follower.found == found


@pytest.mark.parametrize("cut", [44, 41, 36, 31, 3, 0])
def test_lost_end_of_a_segment_is_found_also_where_a_copy_was_before_it_was_cut(cut: int) -> None:
    follower = copied()
    follower.cut(cut)
    follower.receive(*range(cut, cut + 40), end=cut + 40, epoch=5)
    follower.log.sync()
    follower.log.close()
    first, second = segment_offsets(follower.disk.listdir(DIRECTORY))[-3:-1]
    for path in [path for path in follower.disk.names if path.suffix == ".journal"]:
        follower.disk.unlink(path)
    follower.restart()
    follower.log.close()
    descriptor = follower.disk.open(DIRECTORY / segment_name(first))
    follower.disk.truncate(descriptor, follower.disk.size(descriptor) - len(make_batch(second - 1, 5)))
    with pytest.raises(DamagedLogError, match=f"ends at offset {second - 1}, the next begins at {second}"):
        follower.reopen(has_hole=True)


@pytest.mark.parametrize("calls", range(0, 60, 3))
def test_copy_that_is_cut_and_dies_meanwhile_is_trusted_no_further_than_it_was_cut(calls: int) -> None:
    follower = copied()
    died = die_after(follower.disk, calls, lambda: follower.cut(31))
    follower.restart(power=calls)
    left = [base for base in COPIED if base < 31]
    assert follower.found in ((left, 31), ([*COPIED], 44))
    assert died or follower.found[1] == 31
    assert swap_mark(follower.disk, DIRECTORY)[1] <= follower.found[1]


def die_after(disk: FakeDisk, calls: int, work: object) -> bool:
    """Run `work` on a disk that dies at the call of that number; whether it did."""
    left = calls

    def fault(operation: str, path: object, size: int) -> int | None:
        nonlocal left
        left -= 1
        if left < 0:
            raise Died
        return None

    disk.fault = fault
    try:
        work()  # type: ignore[operator]
    except Died:
        return True
    finally:
        disk.fault = None
    return False
