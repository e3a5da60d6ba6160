"""The journal: frames, files, damage, failed writes."""

from __future__ import annotations

import errno
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.log.harness import JOURNAL, Pod

from muster_coordinator.log.errors import DamagedLogError
from muster_coordinator.log.journal.format import encode_frame_head, file_mark, scan_frames
from muster_coordinator.log.journal.journal import Journal
from muster_coordinator.log.segments.segment import segment_name

FIRST = JOURNAL / "00000000000000000001.journal"
SECOND = JOURNAL / "00000000000000000002.journal"


def frame_starts(pod: Pod, file: Path = FIRST) -> list[int]:
    scan = scan_frames(bytes(pod.disk.content(file)), int(file.stem))
    return [frame.position for frame in scan.frames]


def unflushed_pod(commits: int, partitions: int = 1) -> Pod:
    """The journal alone has the batches."""
    pod = Pod(partitions=partitions)
    for i in range(commits):
        pod.commit(i % partitions)
    return pod


@pytest.mark.parametrize("seed", range(5))
def test_file_name_that_a_killed_process_left_unsynced_is_durable_once_the_next_one_writes(seed: int) -> None:
    pod = Pod()
    pod.disk.unlink(FIRST)
    pod.disk.fsync_dir(JOURNAL)
    # The process ends after it has named the file and before that is synced.
    pod.disk.fail_with(errno.EIO, "fsync_dir", only=lambda path: FIRST in pod.disk.names)
    with pytest.raises(OSError, match="fsync_dir"):
        Journal.open(pod.disk, JOURNAL, pod.journal_settings, "boot")
    pod.disk.fault = None
    pod.restart()
    pod.commit()
    pod.reboot(seed)
    assert pod.content() == pod.written[0]


def damage_frame(pod: Pod, index: int, offset: int = 45) -> None:
    pod.disk.flip(FIRST, frame_starts(pod)[index] + offset)


@given(st.lists(st.binary(max_size=60), max_size=8), st.binary(max_size=100), st.data())
def test_frames_up_to_any_damage_are_read(payloads: list[bytes], rest: bytes, data: st.DataObject) -> None:
    mark = file_mark(7)
    frames = [encode_frame_head(mark, 10 + i, payload) + payload for i, payload in enumerate(payloads)]
    content = b"".join(frames)
    scan = scan_frames(content + rest, 7)
    assert [frame.payload for frame in scan.frames] == payloads
    assert (scan.end, scan.holes) == (len(content), [])
    if content:
        position = data.draw(st.integers(0, len(content) - 1))
        damaged = bytearray(content)
        damaged[position] ^= 1
        scan = scan_frames(bytes(damaged), 7)
        hit = next(i for i in range(len(frames)) if position < sum(map(len, frames[: i + 1])))
        assert [f.payload for f in scan.frames] == payloads[:hit] + payloads[hit + 1 :]
        assert bool(scan.holes) == (hit < len(frames) - 1)


def test_frames_of_a_file_s_earlier_use_are_not_read() -> None:
    old = b"".join(encode_frame_head(file_mark(3), i, b"x" * 40) + b"x" * 40 for i in range(1, 9))
    new = encode_frame_head(file_mark(4), 9, b"new") + b"new"
    scan = scan_frames(new + old[len(new) :], 4)
    assert [frame.payload for frame in scan.frames] == [b"new"]
    assert scan.holes == []


@pytest.mark.parametrize("cut", [1, 30, 44, 100])
def test_torn_last_frame_is_dropped_and_written_over(cut: int) -> None:
    pod = unflushed_pod(3)
    content = pod.disk.content(FIRST)
    last = frame_starts(pod)[-1]
    content[last + cut :] = bytes(len(content) - last - cut)
    pod.disk.write(FIRST, content)
    pod.restart()
    assert pod.content() == pod.written[0][:2]
    pod.written[0].pop()
    pod.commit(filler=300)
    pod.restart()
    assert pod.content() == pod.written[0]


@pytest.mark.parametrize("offset", [0, 14, 25, 45, 80], ids=["magic", "write number", "length", "entry", "batch"])
def test_damage_in_the_middle_of_the_journal_is_refused_where_it_is_needed(offset: int) -> None:
    pod = unflushed_pod(5)
    damage_frame(pod, 2, offset)
    with pytest.raises(DamagedLogError, match="the log ends at offset 2, the journal goes on at 3"):
        pod.restart()


def test_damage_in_the_middle_of_the_journal_does_not_matter_to_a_log_whose_segments_reach_what_follows() -> None:
    pod = unflushed_pod(5)
    pod.flush()
    damage_frame(pod, 2)
    pod.restart()
    assert pod.content() == pod.written[0]


def test_damaged_file_goes_once_its_logs_are_synced_and_later_starts_doubt_nothing() -> None:
    pod = unflushed_pod(5)
    pod.flush()
    damage_frame(pod, 2)
    pod.restart()
    pod.commit()
    assert [file.path for file in pod.journal.closed_files()] == [FIRST]
    pod.give_files_back()
    pod.reboot()
    assert not pod.journal._history._has_hole
    assert pod.content() == pod.written[0]


def test_damaged_file_stays_in_use_on_a_disk_without_room_for_another() -> None:
    pod = unflushed_pod(5)
    pod.flush()
    damage_frame(pod, 2)
    pod.disk.fail_with(errno.ENOSPC, "fill_with_zeros")
    pod.restart()
    assert pod.journal.closed_files() == []
    pod.commit()
    pod.reboot()
    assert pod.content() == pod.written[0]


def test_log_that_no_entry_behind_the_damage_names_is_refused() -> None:
    pod = Pod(partitions=2)
    for p in (0, 1, 0, 1, 1, 1):
        pod.commit(p)
    pod.flush()
    damage_frame(pod, 3)
    pod.disk.kill()
    pod.partitions = 0
    pod.start()
    with pytest.raises(DamagedLogError, match="records may be missing after 2: the journal is damaged"):
        pod.open_log(0)
    pod.open_log(1)
    assert pod.content(1) == pod.written[1]


def test_damage_before_the_next_file_is_settled_by_the_ends_that_it_begins_with() -> None:
    pod = Pod(partitions=2, journal_bytes=2048)
    pod.commit(0)
    pod.commit(1)
    while SECOND not in pod.disk.names:
        pod.commit(1)
    pod.flush()
    damage_frame(pod, 1)
    pod.restart()
    assert [pod.content(p) for p in (0, 1)] == [pod.written[0], pod.written[1]]


def test_last_frames_of_a_closed_file_lost_are_noticed() -> None:
    pod = Pod(journal_bytes=2048)
    while SECOND not in pod.disk.names:
        pod.commit()
    last = frame_starts(pod)[-1]
    content = pod.disk.content(FIRST)
    content[last:] = bytes(len(content) - last)
    pod.disk.write(FIRST, content)
    with pytest.raises(DamagedLogError):
        pod.restart()


def test_file_is_used_again_once_its_logs_were_synced() -> None:
    pod = Pod(journal_bytes=2048)
    inode = pod.disk.names[FIRST]
    for _ in range(60):
        pod.commit()
        pod.give_files_back()
    assert FIRST not in pod.disk.names
    assert len(pod.disk.listdir(JOURNAL)) == 2
    assert inode in [pod.disk.names[JOURNAL / name] for name in pod.disk.listdir(JOURNAL)]
    pod.reboot()
    assert pod.content() == pod.written[0]


def test_files_go_only_in_the_order_in_which_they_were_written() -> None:
    pod = Pod(journal_bytes=1024)
    for _ in range(60):
        pod.commit()
    with pytest.raises(AssertionError, match="not the oldest"):
        pod.journal.retire(pod.journal.closed_files()[1])


def test_frame_larger_than_a_file_is_written_all_the_same() -> None:
    pod = Pod(journal_bytes=1024)
    pod.commit()
    pod.commit(filler=5000)
    pod.commit()
    pod.reboot()
    assert pod.content() == pod.written[0]


def test_spare_is_prepared_once_and_taken_by_the_next_file() -> None:
    pod = Pod(journal_bytes=2048)
    assert not pod.journal.wants_housekeeping
    while not pod.journal.wants_spare:
        pod.commit()
    pod.journal.prepare_spare()
    assert not pod.journal.wants_spare
    spare = pod.disk.names[JOURNAL / "spare"]
    while SECOND not in pod.disk.names:
        pod.commit()
    assert pod.disk.names[SECOND] is spare
    assert pod.journal.wants_housekeeping


def test_file_is_not_lost_with_the_second_name_that_a_power_loss_in_its_renaming_left() -> None:
    pod = Pod(journal_bytes=2048)
    while not pod.journal.wants_spare:
        pod.commit()
    pod.journal.prepare_spare()
    pod.disk.names[JOURNAL / "spare.new"] = pod.disk.names[JOURNAL / "spare"]
    pod.restart()
    while SECOND not in pod.disk.names or not pod.journal.wants_spare:
        pod.commit()
    pod.journal.prepare_spare()
    pod.restart()
    assert pod.content() == pod.written[0]


def pod_with_three_files() -> Pod:
    """Two partitions with batches in each of them, and a spare."""
    pod = Pod(partitions=2, journal_bytes=1024)
    while len(pod.journal.closed_files()) < 2:
        pod.commit(0)
        pod.commit(1)
    pod.journal.prepare_spare()
    return pod


def ended_pod(*synced: int) -> Pod:
    """The logs of `synced` are, and the journal ends in order."""
    pod = pod_with_three_files()
    for p in synced:
        pod.logs[p].sync()
    pod.journal.end(set(synced))
    pod.journal.close()
    return pod


def test_orderly_end_leaves_nothing_to_read_but_where_the_logs_end() -> None:
    pod = ended_pod(0, 1)
    assert len(pod.disk.listdir(JOURNAL)) == 2, "the file of the ends, and a spare"
    pod.boot += 1
    pod.disk.lose_power(Random(1))
    journal = Journal.open(pod.disk, JOURNAL, pod.journal_settings, "boot-2")
    for p in (0, 1):
        history = journal.recovered(p, f"log-{p}")
        assert (history.batches, history.known_end) == ((), pod.acknowledged[p])
    journal.close()
    pod.start()
    assert [pod.content(p) for p in (0, 1)] == [pod.written[p] for p in (0, 1)]
    pod.commit(0)
    pod.reboot()
    assert pod.content(0) == pod.written[0]


def test_end_of_a_log_is_known_though_the_journal_has_no_batch_of_it() -> None:
    pod = ended_pod(0, 1)
    segment = pod.directory(0) / segment_name(0)
    del pod.disk.names[segment].cached[-1]
    with pytest.raises(DamagedLogError, match=f"durable up to {pod.acknowledged[0]}"):
        pod.start()


@pytest.mark.parametrize("synced", [(), (0,), (1,)])
def test_journal_keeps_what_a_log_that_was_not_synced_needs(synced: tuple[int, ...]) -> None:
    pod = ended_pod(*synced)
    pod.reboot()
    assert [pod.content(p) for p in (0, 1)] == [pod.written[p] for p in (0, 1)]


def test_end_right_behind_a_recovery_says_where_the_logs_end() -> None:
    """The new file has nothing yet, and those that said it go."""
    pod = unflushed_pod(4, partitions=2)
    for log in pod.logs.values():
        log.sync()
    pod.journal.go_on({p: log.end_offset for p, log in pod.logs.items()})
    pod.journal.end({0, 1})
    pod.journal.close()
    pod.disk.lose_power(Random(1))
    journal = Journal.open(pod.disk, JOURNAL, pod.journal_settings, "boot-2")
    assert [journal.recovered(p, f"log-{p}").known_end for p in (0, 1)] == [2, 2]


def test_current_file_is_kept_for_a_log_that_was_not_synced() -> None:
    pod = unflushed_pod(4, partitions=2)
    pod.journal.prepare_spare()
    pod.logs[0].sync()
    pod.journal.end({0})
    pod.reboot()
    assert [pod.content(p) for p in (0, 1)] == [pod.written[p] for p in (0, 1)]


def test_end_without_a_spare_file_makes_none() -> None:
    pod = Pod(journal_bytes=1 << 16)
    pod.commit()
    pod.logs[0].sync()
    pod.disk.fail_with(errno.EIO, "fill_with_zeros")
    pod.journal.end({0})
    pod.reboot()
    assert pod.content() == pod.written[0]


@pytest.mark.parametrize("operation", ["rename", "unlink", "fsync_dir", "pwritev_durably"])
@pytest.mark.parametrize("seed", range(5))
def test_power_loss_during_the_end_loses_nothing(operation: str, seed: int) -> None:
    pod = pod_with_three_files()
    for log in pod.logs.values():
        log.sync()
    pod.disk.fail_with(errno.EIO, operation)
    with suppress(OSError):
        pod.journal.end({0, 1})
    pod.disk.fault = None
    pod.reboot(seed)
    assert [pod.content(p) for p in (0, 1)] == [pod.written[p] for p in (0, 1)]


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_failed_write_is_not_acknowledged_and_stops_the_journal(number: int) -> None:
    pod = unflushed_pod(2)
    pod.append()
    pod.disk.fail_with(number, "pwritev_durably")
    with pytest.raises(OSError, match="pwritev_durably"):
        pod.write()
    pod.disk.fault = None
    pod.append()
    with pytest.raises(OSError, match="failed before"):
        pod.write()
    assert pod.acknowledged[0] == 2


@pytest.mark.parametrize("survives", [False, True], ids=["write lost", "write in the page cache"])
def test_after_a_failed_write_a_new_file_goes_on_behind_synced_segments(survives: bool) -> None:
    pod = unflushed_pod(2)
    pod.append()
    before = bytes(pod.disk.content(FIRST))
    pod.disk.fail_with(errno.EIO, "pwritev_durably")
    with pytest.raises(OSError, match="pwritev_durably"):
        pod.write()
    pod.disk.fault = None
    if not survives:
        pod.disk.write(FIRST, before)
    pod.log.journaled_end = pod.log.end_offset
    pod.log.sync()
    pod.journal.go_on({p: log.end_offset for p, log in pod.logs.items()})
    pod.commit()
    pod.reboot()
    assert pod.content() == pod.written[0]
    assert pod.log.end_offset == 4


@pytest.mark.parametrize("seed", range(6))
def test_frame_that_a_failed_write_left_in_the_page_cache_is_durable_before_it_is_shown(seed: int) -> None:
    pod = unflushed_pod(2)
    pod.append()
    pod.disk.fail_with(errno.EIO, "pwritev_durably")
    with pytest.raises(OSError, match="pwritev_durably"):
        pod.write()
    pod.disk.fault = None
    pod.restart()
    shown = pod.content()
    pod.reboot(seed)
    assert pod.content() == shown


def test_rotation_that_finds_no_room_fails_the_write() -> None:
    pod = Pod(journal_bytes=1024)
    pod.disk.fail_with(errno.ENOSPC, "fill_with_zeros")
    while not pod.journal.wants_spare:
        pod.commit()
    pod.append(filler=6000)
    with pytest.raises(OSError, match="fill_with_zeros"):
        pod.write()
    acknowledged = pod.acknowledged[0]
    pod.disk.fault = None
    pod.restart()
    assert pod.log.end_offset == acknowledged


def test_forgotten_log_keeps_no_file_and_no_mark() -> None:
    pod = Pod(partitions=2, journal_bytes=1024)
    pod.commit(1)
    for _ in range(30):
        pod.commit(0)
    pod.journal.forget(1)
    assert all(1 not in file.partitions for file in pod.journal.closed_files())
    for _ in range(30):
        pod.commit(0)
    pod.give_files_back()
    pod.disk.kill()
    pod.partitions = 1
    pod.start()
    assert pod.journal.recovered(1, "log-1").known_end == -1


def test_staging_for_a_log_that_was_not_recovered_is_a_defect() -> None:
    pod = Pod()
    with pytest.raises(KeyError):
        pod.journal.stage(5, 0, 1, b"")
