"""What a process left in the page cache only must reach the disk before the next process gives the journal back."""

from __future__ import annotations

import pytest
from tests.unit.log.harness import JOURNAL, Pod

from muster_coordinator.log.journal.journal import Journal


@pytest.mark.parametrize("seed", range(5))
def test_segments_of_a_run_before_are_synced_before_their_journal_file_goes(seed: int) -> None:
    pod = Pod(segment_bytes=600, journal_bytes=4096, buffer_bytes=1)
    while len(pod.journal.closed_files()) < 2:
        pod.commit()
    pod.flush()
    pod.restart()
    covered = pod.journal.closed_files()
    pod.give_files_back()
    assert covered
    assert not pod.journal.closed_files()
    for name in pod.disk.listdir(JOURNAL):  # so that only the segments can have it
        pod.disk.unlink(JOURNAL / name)
    pod.disk.fsync_dir(JOURNAL)
    in_segments = pod.log.end_offset
    pod.reboot(seed)
    assert pod.log.end_offset == in_segments
    assert pod.content() == pod.written[0]


def test_every_segment_that_the_journal_covers_is_dirty_after_open() -> None:
    pod = Pod(segment_bytes=600, journal_bytes=4096, buffer_bytes=1)
    while not pod.journal.closed_files():
        pod.commit()
    pod.log.sync()
    pod.give_files_back()
    pod.commit()
    pod.flush()
    journal = Journal.open(pod.disk, JOURNAL, pod.journal_settings, "boot-1")
    first_journaled = journal.recovered(0, "log-0").batches[0].base_offset
    pod.restart()
    segments = pod.log._segments
    ends = [segment.base_offset for segment in segments[1:]] + [pod.log.end_offset]
    for segment, end_offset in zip(segments, ends, strict=True):
        assert segment.dirty == (end_offset > first_journaled), segment.path
