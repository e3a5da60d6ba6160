"""A running log whose writes or syncs fail: see "Errors while running" in docs/log.md."""

from __future__ import annotations

import errno
from pathlib import Path
from random import Random

import pytest
from tests.unit.log.harness import Pod, pod_with, without_journal


def short_writes(operation: str, path: Path, size: int) -> int | None:
    return max(1, size // 3) if operation.startswith("pwritev") and size > 1 else None


def test_short_writes_are_carried_on() -> None:
    pod = Pod(buffer_bytes=200)
    pod.disk.fault = short_writes
    for _ in range(5):
        pod.commit()
    pod.flush()
    pod.restart()
    assert pod.content() == pod.written[0]


def test_write_that_makes_no_progress_is_an_error() -> None:
    pod = pod_with(2)
    pod.disk.fault = lambda operation, path, size: 0 if operation == "pwritev" else None
    pod.commit()
    with pytest.raises(OSError, match="stopped"):
        pod.flush()


def in_segments(path: Path) -> bool:
    return path.suffix == ".log"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_segment_write_that_fails_keeps_the_batches_and_succeeds_later(number: int) -> None:
    pod = pod_with(2, buffer_bytes=100)
    pod.disk.fail_with(number, "pwritev", only=in_segments)
    pod.commit()
    with pytest.raises(OSError, match="pwritev"):
        pod.flush()
    assert pod.content() == pod.written[0]
    pod.disk.fault = None
    pod.flush()
    pod.restart()
    assert pod.content() == pod.written[0]


def test_file_that_was_made_by_a_write_that_failed_keeps_its_name_when_power_is_lost() -> None:
    pod = pod_with(2, segment_bytes=300)
    pod.log.sync()
    pod.disk.fail_with(errno.ENOSPC, "pwritev", only=in_segments)
    pod.commit(filler=400)  # it begins a segment
    with pytest.raises(OSError, match="pwritev"):
        pod.flush()
    pod.disk.fault = None
    pod.log.sync()
    pod.disk.lose_power(Random(0), written_back=False)
    without_journal(pod)  # it was given back, as the log was synced
    pod.restart()
    assert pod.content() == pod.written[0]


def test_append_to_a_full_buffer_that_cannot_be_written_takes_nothing() -> None:
    pod = pod_with(2, buffer_bytes=10)
    pod.commit(filler=400)
    pod.disk.fail_with(errno.ENOSPC, "pwritev", only=in_segments)
    with pytest.raises(OSError, match="pwritev"):
        pod.append()
    assert pod.log.end_offset == 3
    pod.disk.fault = None
    pod.commit()
    assert pod.content() == pod.written[0]


def test_log_takes_nothing_after_a_failed_sync() -> None:
    pod = pod_with(2)
    pod.disk.fail_with(errno.EIO, "fdatasync")
    with pytest.raises(OSError, match="fdatasync"):
        pod.log.sync()
    pod.disk.fault = None
    with pytest.raises(OSError, match="failed before"):
        pod.append()
    with pytest.raises(OSError, match="failed before"):
        pod.log.sync()


@pytest.mark.parametrize("segment_bytes", [1 << 20, 300])
def test_pages_that_the_kernel_counts_as_written_after_a_failed_sync_reach_the_disk(segment_bytes: int) -> None:
    pod = pod_with(7, segment_bytes=segment_bytes)
    segments = [path for path in pod.disk.names if path.suffix == ".log"]
    pod.disk.fail_with(errno.EIO, "fdatasync")
    with pytest.raises(OSError, match="fdatasync"):
        pod.log.sync()
    pod.disk.fault = None
    for path in segments:
        pod.disk.count_as_written(path)
    pod.restart()
    pod.log.sync()
    without_journal(pod)  # it was given back, as the log was synced
    pod.reboot()
    assert pod.content() == pod.written[0]


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_segment_that_finds_no_descriptor_keeps_nobody_from_appending(number: int) -> None:
    pod = pod_with(2, buffer_bytes=10, segment_bytes=300)
    files = len(pod.disk.names)
    pod.disk.fail_with(number, "open", only=in_segments)
    for _ in range(5):
        pod.commit(filler=200)
    pod.log.relieve()
    assert len(pod.disk.names) == files
    assert pod.content() == pod.written[0]
    pod.disk.fault = None
    pod.commit()
    pod.log.relieve()
    assert len(pod.disk.names) > files
    assert not pod.log.has_pending
    assert pod.content() == pod.written[0]
    pod.restart()
    assert pod.content() == pod.written[0]
