"""The cleaner on a disk that stops at any of its steps: the log says the same, its offsets and epochs stay."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.log.harness import JOURNAL, Pod
from tests.unit.log.offsets_history import HISTORIES, RETENTION_MS, History, Step, assert_same, state_of

from muster_coordinator.groups.durable_state import DurableState
from muster_coordinator.log.cleaning.cleaner import Cleaning
from muster_coordinator.log.errors import DamagedLogError
from muster_coordinator.log.segments.cleaned import STATE_NAME, CleanedTo
from muster_coordinator.log.segments.segment import segment_name
from muster_coordinator.records.batch import read_batch

DIRECTORY = Pod.directory()
SEGMENT_BYTES = 400


class CrashError(BaseException):
    """The process ends here."""


class CleanedPod(Pod):
    """Holds the history that was appended to it. `now_ms`: after its last batch."""

    def __init__(self, steps: list[Step], *, journal_bytes: int = 1 << 16) -> None:
        super().__init__(segment_bytes=SEGMENT_BYTES, journal_bytes=journal_bytes, buffer_bytes=200)
        self.history = History()
        self.add(steps)

    def add(self, steps: list[Step], *, durable: bool = True) -> None:
        for step in steps:
            data = self.history.batch(step)
            if data is not None:
                batch = read_batch(data)
                self.log.append(data, batch.base_offset, batch.end_offset, batch.leader_epoch)
                self.written[0].append(data)
                self.journal.stage(0, batch.base_offset, batch.end_offset, data)
                if durable:
                    self.write()
        self.flush()

    def cleaning(self) -> Cleaning:
        return Cleaning(
            self.disk,
            self.log,
            self.log.end_offset,
            now_ms=self.history.now_ms,
            delete_retention_ms=RETENTION_MS,
            segment_bytes=SEGMENT_BYTES,
        )

    def clean(self) -> bool:
        """False if there is nothing to clean."""
        if not self.log.closed_segments(self.log.end_offset):
            return False
        cleaning = self.cleaning()
        for _ in cleaning.steps():
            cleaning.hand_over()
        return True

    def state(self) -> DurableState:
        return state_of(self.log.read_batches(0))

    def whole(self) -> DurableState:
        return state_of(map(read_batch, self.written[0]))

    def check(self) -> None:
        assert_same(self.state(), self.whole())
        assert self.log.end_offset == self.history.end_offset
        epochs: list[tuple[int, int]] = []
        for batch in map(read_batch, self.written[0]):
            if not epochs or epochs[-1][0] != batch.leader_epoch:
                epochs.append((batch.leader_epoch, batch.base_offset))
        assert self.log.epochs.entries == tuple(epochs)
        ends = [batch.end_offset for batch in map(read_batch, self.written[0])]
        for data in (b.data for b in self.log.read_batches(0)):
            assert read_batch(data).end_offset in ends

    def files(self) -> set[str]:
        return set(self.disk.listdir(DIRECTORY))


def count_operations(steps: list[Step]) -> int:
    pod = CleanedPod(steps)
    operations = 0

    def count(operation: str, path: Path, size: int) -> None:
        nonlocal operations
        operations += 1

    pod.disk.fault = count
    pod.clean()
    return operations


def crash_at(pod: CleanedPod, operation_number: int) -> None:
    left = operation_number

    def fault(operation: str, path: Path, size: int) -> None:
        nonlocal left
        if left == 0:
            raise CrashError
        left -= 1

    pod.disk.fault = fault
    with pytest.raises(CrashError):
        pod.clean()
    pod.disk.fault = None


A, B = ("g1", 0, 5, False), ("g2", 1, 6, False)
STORY: list[Step] = [
    ("put", [A, B]),
    ("put", [A, B]),
    ("pending", [A], 1),
    ("put", [B]),
    ("remove", [B]),
    ("leader change",),
    ("marker", 1, True),
    ("group", "g1", 1),
    ("group", "g2", 1),
    ("pending", [B], 2),
    ("delete group", "g2"),
    ("wait", RETENTION_MS),
    ("put", [A]),
    ("pending", [A], 2),
    ("put", [A]),
    ("put", [A, A, A]),
    ("put", [A, A, A]),
    ("leader change",),
    ("put", [A, A, A]),
    ("put", [A]),
]


def test_log_is_smaller_and_says_the_same() -> None:
    pod = CleanedPod(STORY)
    before = sum(len(pod.disk.content(DIRECTORY / name)) for name in pod.files() if name.endswith(".log"))
    segments = len(pod.log.closed_segments(pod.log.end_offset))
    assert segments > 3
    assert pod.clean()
    pod.check()
    after = sum(len(pod.disk.content(DIRECTORY / name)) for name in pod.files() if name.endswith(".log"))
    assert after < before
    assert len(pod.log.closed_segments(pod.log.end_offset)) < segments, "neighbours are merged"
    for start in (pod.restart, pod.reboot):
        start()
        pod.check()
        pod.add([("put", [A]), ("put", [B])])
        pod.check()


@pytest.mark.parametrize("power_loss", [False, True])
@pytest.mark.parametrize("operation", range(count_operations(STORY)))
def test_crash_at_any_step_leaves_a_log_that_says_the_same(operation: int, power_loss: bool) -> None:
    pod = CleanedPod(STORY)
    crash_at(pod, operation)
    if power_loss:
        pod.reboot(seed=operation)
    else:
        pod.restart()
    pod.check()
    assert not [name for name in pod.files() if name.endswith((".compacting", ".compacted"))]
    assert pod.clean()
    pod.check()
    pod.restart()
    pod.check()


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(HISTORIES, min_size=2, max_size=4), st.data())
def test_random_histories_survive_cleaning_and_crashes(histories: list[list[Step]], data: st.DataObject) -> None:
    pod = CleanedPod(histories[0], journal_bytes=data.draw(st.sampled_from([2048, 1 << 16])))
    for steps in histories[1:]:
        pod.add(steps)
        pod.give_files_back()
        left = data.draw(st.integers(0, 40))

        def fault(operation: str, path: Path, size: int) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise CrashError

        pod.disk.fault = fault
        try:
            pod.clean()
        except CrashError:
            pod.disk.fault = None
            pod.reboot(data.draw(st.integers(0, 99))) if data.draw(st.booleans()) else pod.restart()
        pod.disk.fault = None
        pod.check()
    pod.clean()
    pod.check()
    pod.reboot()
    pod.check()


def test_journal_that_still_has_the_cleaned_batches_does_not_bring_them_back() -> None:
    pod = CleanedPod(STORY)
    assert pod.journal.closed_files() == []
    assert pod.clean()
    content = pod.content()
    pod.restart()
    assert pod.content() == content


def test_only_whole_closed_segments_below_the_limit_are_touched() -> None:
    pod = CleanedPod(STORY)
    closed = pod.log.closed_segments(pod.log.end_offset)
    limit = closed[2][1] + 1 if closed[3][1] > closed[2][1] + 1 else closed[2][1]
    untouched = {s.path: bytes(pod.disk.content(s.path)) for s, end in closed if end > limit}
    assert untouched
    cleaning = Cleaning(
        pod.disk, pod.log, limit, now_ms=0, delete_retention_ms=RETENTION_MS, segment_bytes=SEGMENT_BYTES
    )
    for _ in cleaning.steps():
        cleaning.hand_over()
    pod.check()
    for path, content in untouched.items():
        assert pod.disk.content(path) == content
    assert CleanedTo.read(pod.disk, DIRECTORY).end_offset == closed[2][1]


def test_log_ends_where_it_did_although_no_file_follows_what_was_cleaned_yet() -> None:
    pod = CleanedPod([("put", [A])])
    while len(pod.log._segments) == 1:
        pod.write()
        pod.add([("remove", [A])], durable=False)
    pod.history.now_ms += RETENTION_MS
    pod.clean()
    pod.write()
    assert not pod.log._segment.exists
    pod.restart()
    pod.check()


def test_tombstone_horizon_is_durable_before_the_first_tombstone_goes_and_never_goes_back() -> None:
    pod = CleanedPod(STORY)
    assert pod.clean()
    horizon = CleanedTo.read(pod.disk, DIRECTORY).tombstone_horizon
    tombstones = [r.offset for b in map(read_batch, pod.written[0]) for r in b.records() if r.value is None]
    left = [r.offset for b in pod.log.read_batches(0) for r in b.records() if r.value is None]
    assert left == []
    assert horizon >= max(tombstones) + 1
    pod.reboot(seed=3)
    pod.add([("put", [A, A, A])] * 3)
    assert pod.clean()
    assert CleanedTo.read(pod.disk, DIRECTORY).tombstone_horizon == horizon


def test_reader_that_began_before_goes_on_in_the_old_segments() -> None:
    pod = CleanedPod(STORY)
    reader = pod.log.read_batches(0)
    first = next(reader)
    opened = len(pod.disk._open)
    pod.clean()
    assert [first.data, *(batch.data for batch in reader)] == pod.written[0]
    assert len(pod.disk._open) < opened, "the replaced files are closed behind the last reader"
    pod.check()


def test_full_disk_leaves_the_log_as_it_was_and_no_file_behind() -> None:
    pod = CleanedPod(STORY)
    before = pod.content()
    pod.disk.fail_with(errno.ENOSPC, "pwritev", only=lambda path: path.suffix == ".compacting")
    with pytest.raises(OSError, match="compacting"):
        pod.clean()
    pod.disk.fault = None
    assert pod.content() == before
    assert pod.log.failed is None
    assert not [name for name in pod.files() if name.endswith(".compacting")]
    pod.restart()
    pod.check()


def test_swap_that_fails_halfway_is_finished_by_the_next_start() -> None:
    pod = CleanedPod(STORY)
    pod.disk.fail_with(errno.EIO, "rename", only=lambda path: path.suffix == ".compacted")
    with pytest.raises(OSError, match="compacted"):
        pod.clean()
    pod.disk.fault = None
    assert pod.log.cannot_clean
    pod.check()
    pod.restart()
    assert not pod.log.cannot_clean
    pod.check()


def test_damaged_closed_segment_is_not_cleaned_away() -> None:
    pod = CleanedPod(STORY)
    pod.disk.flip(DIRECTORY / segment_name(0), 100)
    content = bytes(pod.disk.content(DIRECTORY / segment_name(0)))
    with pytest.raises(DamagedLogError):
        pod.clean()
    assert pod.disk.content(DIRECTORY / segment_name(0)) == content


def test_unreadable_state_is_refused() -> None:
    pod = CleanedPod(STORY)
    pod.clean()
    pod.disk.flip(DIRECTORY / STATE_NAME, 3)
    with pytest.raises(DamagedLogError, match=STATE_NAME):
        pod.restart()


def test_log_that_ends_before_what_was_cleaned_is_refused() -> None:
    pod = CleanedPod(STORY)
    pod.clean()
    pod.log.sync()
    for segment, _ in pod.log.closed_segments(pod.log.end_offset)[1:]:
        pod.disk.unlink(segment.path)
    for name in pod.disk.listdir(JOURNAL):
        pod.disk.unlink(JOURNAL / name)
    pod.disk.unlink(pod.log._segment.path)
    with pytest.raises(DamagedLogError, match="cleaned up to"):
        pod.restart()


def test_kafka_s_index_files_of_replaced_segments_go() -> None:
    pod = CleanedPod(STORY)
    index = DIRECTORY / segment_name(0).replace(".log", ".index")
    pod.disk.write(index, b"of Kafka")
    pod.clean()
    assert index.name not in pod.files()
