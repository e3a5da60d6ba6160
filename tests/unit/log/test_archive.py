"""Copies of segments: complete or not there, never overwritten, made again after any interruption."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.unit.log.test_cleaner import DIRECTORY, STORY, CleanedPod, CrashError

from muster_coordinator.log.cleaning.archive import ArchiveConflictError, DirectoryArchive, archive_segment, archived_to
from muster_coordinator.log.errors import DamagedLogError

ROOT = Path("/archive")
STORED = ROOT / DIRECTORY.name / "log-0"


class ArchivedPod(CleanedPod):
    def __init__(self) -> None:
        super().__init__(STORY)

    def archive(self) -> None:
        """All closed segments that are not archived yet."""
        done = archived_to(self.disk, DIRECTORY)
        archive = DirectoryArchive(self.disk, ROOT)
        for segment, end_offset in self.log.closed_segments(self.log.end_offset):
            if end_offset > done:
                for _ in archive_segment(self.disk, archive, self.log, "log-0", segment, end_offset):
                    pass

    @property
    def stored(self) -> dict[str, bytes]:
        names = self.disk.listdir(STORED) if any(STORED in path.parents for path in self.disk.names) else []
        return {name: bytes(self.disk.content(STORED / name)) for name in names if not name.endswith(".part")}

    @property
    def closed(self) -> dict[str, bytes]:
        segments = self.log.closed_segments(self.log.end_offset)
        return {segment.path.name: bytes(self.disk.content(segment.path)) for segment, _ in segments}


def count_operations() -> int:
    pod = ArchivedPod()
    operations = 0

    def count(operation: str, path: Path, size: int) -> None:
        nonlocal operations
        operations += 1

    pod.disk.fault = count
    pod.archive()
    return operations


def test_closed_segments_are_there_byte_for_byte_and_stay_when_the_log_is_cleaned() -> None:
    pod = ArchivedPod()
    closed = pod.closed
    pod.archive()
    assert pod.stored == closed
    assert archived_to(pod.disk, DIRECTORY) == pod.log.closed_segments(pod.log.end_offset)[-1][1]
    pod.clean()
    pod.archive()
    assert pod.stored == closed, "what was archived is not archived again"
    pod.add(STORY[:4])
    whole = b"".join(pod.stored[name] for name in sorted(pod.stored))
    assert b"".join(pod.written[0]).startswith(whole)


@pytest.mark.parametrize("power_loss", [False, True])
@pytest.mark.parametrize("operation", range(count_operations()))
def test_archive_holds_whole_segments_only_whenever_it_was_interrupted(operation: int, power_loss: bool) -> None:
    pod = ArchivedPod()
    closed = pod.closed
    left = operation

    def fault(name: str, path: Path, size: int) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise CrashError

    pod.disk.fault = fault
    with pytest.raises(CrashError):
        pod.archive()
    pod.disk.fault = None
    if power_loss:
        pod.reboot(seed=operation)
    else:
        pod.restart()
    pod.flush()
    assert pod.stored.items() <= closed.items()
    done = archived_to(pod.disk, DIRECTORY)
    for segment, end_offset in pod.log.closed_segments(pod.log.end_offset):
        assert end_offset > done or segment.path.name in pod.stored, "noted before it was durable"
    pod.archive()
    assert pod.stored == closed


def test_another_file_of_that_name_is_not_overwritten() -> None:
    pod = ArchivedPod()
    name = next(iter(pod.closed))
    for content in (b"something else", pod.closed[name] + b"\0", pod.closed[name][:-1]):
        pod.disk.write(STORED / name, content)
        with pytest.raises(ArchiveConflictError, match=name):
            pod.archive()
        assert pod.disk.content(STORED / name) == content
        assert archived_to(pod.disk, DIRECTORY) == 0


def test_damaged_segment_is_not_archived() -> None:
    pod = ArchivedPod()
    pod.disk.flip(DIRECTORY / next(iter(pod.closed)), 80)
    with pytest.raises(DamagedLogError):
        pod.archive()
    assert pod.stored == {}


def test_copy_that_was_not_stored_as_it_was_written_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    pod = ArchivedPod()
    pwritev = pod.disk.pwritev

    def damaged(descriptor: int, buffers: Sequence[bytes], position: int) -> int:
        return pwritev(descriptor, [b"".join(buffers)[:-1] + b"x"], position)

    monkeypatch.setattr(pod.disk, "pwritev", damaged)
    with pytest.raises(ArchiveConflictError):
        pod.archive()
    assert pod.stored == {}


def test_full_archive_leaves_no_file_behind() -> None:
    pod = ArchivedPod()
    pod.disk.fail_with(errno.ENOSPC, "pwritev", only=lambda path: ROOT in path.parents)
    with pytest.raises(OSError, match="part"):
        pod.archive()
    assert not [path for path in pod.disk.names if ROOT in path.parents]


def test_unreadable_note_is_an_error_and_not_a_beginning() -> None:
    pod = ArchivedPod()
    pod.archive()
    pod.disk.flip(DIRECTORY / "muster.archive", 2)
    with pytest.raises(DamagedLogError, match=r"muster\.archive"):
        pod.archive()
