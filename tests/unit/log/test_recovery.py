"""Start-up of a log: what is cut, what the journal mends, and what is refused. See the table in docs/log.md."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.unit.log.fake_disk import FakeDisk
from tests.unit.log.harness import JOURNAL, Pod, make_batch, pod_with, without_journal

from muster_coordinator.log.errors import DamagedLogError
from muster_coordinator.log.journal.format import scan_frames
from muster_coordinator.log.journal.journal import Journal
from muster_coordinator.log.segments.segment import segment_name
from muster_coordinator.records.epoch_cache import CHECKPOINT_NAME

DIRECTORY = Pod.directory()
SEGMENT = DIRECTORY / segment_name(0)
JOURNAL_FILE = JOURNAL / "00000000000000000001.journal"


def damage_last_byte(pod: Pod) -> None:
    pod.disk.flip(SEGMENT, len(pod.disk.content(SEGMENT)) - 1)


def damage_crc_free_epoch(pod: Pod) -> None:
    pod.disk.flip(SEGMENT, len(pod.disk.content(SEGMENT)) - len(pod.written[0][-1]) + 13)


def damage_crc_free_base_offset(pod: Pod) -> None:
    pod.disk.flip(SEGMENT, len(pod.disk.content(SEGMENT)) - len(pod.written[0][-1]) + 6)


def damage_length(pod: Pod) -> None:
    pod.disk.flip(SEGMENT, len(pod.disk.content(SEGMENT)) - len(pod.written[0][-1]) + 9)


def tear_tail(pod: Pod) -> None:
    pod.disk.write(SEGMENT, pod.disk.content(SEGMENT)[:-10])


def zero_tail(pod: Pod) -> None:
    size = len(pod.written[0][-1])
    pod.disk.write(SEGMENT, pod.disk.content(SEGMENT)[:-size] + bytes(size))


def add_zeros(pod: Pod) -> None:
    pod.disk.write(SEGMENT, pod.disk.content(SEGMENT) + bytes(5000))


def add_garbage(pod: Pod) -> None:
    pod.disk.write(SEGMENT, pod.disk.content(SEGMENT) + b"\x02garbage" * 100)


def lose_tail(pod: Pod) -> None:
    pod.disk.write(SEGMENT, pod.disk.content(SEGMENT)[: -len(pod.written[0][-1])])


TAIL_DAMAGE = [
    damage_last_byte,
    damage_crc_free_epoch,
    damage_crc_free_base_offset,
    damage_length,
    tear_tail,
    zero_tail,
    add_zeros,
    add_garbage,
    lose_tail,
]


@pytest.mark.parametrize("damage", TAIL_DAMAGE)
def test_damaged_tail_is_cut_and_restored_from_the_journal(damage: Callable[[Pod], None]) -> None:
    pod = pod_with(5)
    damage(pod)
    pod.restart()
    assert pod.content() == pod.written[0]
    pod.commit()
    pod.flush()
    pod.restart()
    assert pod.content() == pod.written[0]


@pytest.mark.parametrize("damage", [damage_last_byte, damage_length, tear_tail, zero_tail])
def test_damaged_tail_that_no_journal_knows_of_is_cut(damage: Callable[[Pod], None]) -> None:
    pod = pod_with(5)
    without_journal(pod)
    damage(pod)
    pod.restart()
    assert pod.content() == pod.written[0][:4]
    assert pod.disk.content(SEGMENT) == b"".join(pod.written[0][:4])


def test_cut_is_durable_before_anything_is_written_behind_it() -> None:
    pod = pod_with(5)
    without_journal(pod)
    tear_tail(pod)
    pod.restart()
    pod.reboot(seed=1)
    assert pod.content() == pod.written[0][:4]


@pytest.mark.parametrize("damage", [damage_last_byte, tear_tail, zero_tail, lose_tail])
def test_damaged_tail_that_was_durable_before_the_journal_began_is_refused(damage: Callable[[Pod], None]) -> None:
    pod = Pod(partitions=2, journal_bytes=2048)
    pod.commit(0)
    pod.commit(0)
    for _ in range(30):
        pod.commit(1)
    pod.give_files_back()
    assert JOURNAL_FILE not in pod.disk.names
    damage(pod)
    with pytest.raises(DamagedLogError, match="durable up to 2"):
        pod.restart()


def flip_first_batch(pod: Pod) -> None:
    pod.disk.flip(SEGMENT, 70)


def zero_middle(pod: Pod) -> None:
    content = pod.disk.content(SEGMENT)
    size = len(pod.written[0][0])
    content[size : 2 * size] = bytes(size)
    pod.disk.write(SEGMENT, content)


def damage_middle_length(pod: Pod) -> None:
    pod.disk.flip(SEGMENT, len(pod.written[0][0]) + 9)


MIDDLE_DAMAGE = [flip_first_batch, zero_middle, damage_middle_length]


@pytest.mark.parametrize("damage", MIDDLE_DAMAGE)
def test_damage_in_the_middle_within_one_boot_is_refused(damage: Callable[[Pod], None]) -> None:
    pod = pod_with(5)
    damage(pod)
    before = pod.disk.content(SEGMENT)
    with pytest.raises(DamagedLogError, match="valid batches follow, and no power loss explains it") as caught:
        pod.restart()
    assert caught.value.file == SEGMENT
    assert caught.value.position in (0, len(pod.written[0][0]))
    assert pod.disk.content(SEGMENT) == before


@pytest.mark.parametrize("damage", MIDDLE_DAMAGE)
def test_damage_in_the_middle_after_a_power_loss_is_mended_from_the_journal(damage: Callable[[Pod], None]) -> None:
    pod = pod_with(5)
    damage(pod)
    pod.boot += 1
    pod.restart()
    assert pod.content() == pod.written[0]


@pytest.mark.parametrize("damage", MIDDLE_DAMAGE)
def test_damage_in_the_middle_without_a_journal_is_refused(damage: Callable[[Pod], None]) -> None:
    pod = pod_with(5)
    without_journal(pod)
    pod.boot += 1
    damage(pod)
    with pytest.raises(DamagedLogError, match="the journal has no copy"):
        pod.restart()


def test_damage_in_a_closed_segment_is_refused_when_it_is_read() -> None:
    pod = pod_with(40, segment_bytes=1000)
    without_journal(pod)
    pod.disk.flip(SEGMENT, 70)
    pod.restart()
    with pytest.raises(DamagedLogError, match="CRC"):
        pod.content()
    with pytest.raises(DamagedLogError, match="CRC"):  # as it is read for other replicas
        pod.log.read_range(0, 1).run()


@pytest.mark.parametrize("place", [0, 3])
def test_last_batch_that_has_landed_on_others_is_no_torn_write(place: int) -> None:
    """At its own place is nothing. The journal has no batch any more, and knows only where the log ends."""
    pod = Pod(partitions=2, journal_bytes=2048)
    for _ in range(6):
        pod.commit()
    while JOURNAL_FILE in pod.disk.names:
        pod.commit(1)
        pod.give_files_back()
    last, content = pod.written[0][-1], pod.disk.content(SEGMENT)
    content[-len(last) :] = bytes(len(last))
    start = sum(map(len, pod.written[0][:place]))
    content[start : start + len(last)] = last
    pod.disk.write(SEGMENT, content)
    with pytest.raises(DamagedLogError, match="may have overwritten others, of which offsets are missing"):
        pod.restart()


def test_closed_segment_that_a_power_loss_took_is_missed_when_the_journal_has_lost_its_batches() -> None:
    """Later ones are there, in journal and segments, and nothing says that those before were synced."""
    pod = pod_with(8, segment_bytes=250)
    behind = pod.log.segments[1].base_offset
    starts = [frame.position for frame in scan_frames(bytes(pod.disk.content(JOURNAL_FILE)), 1).frames]
    for position in starts[: behind + 1]:
        pod.disk.flip(JOURNAL_FILE, position + 45)
    pod.disk.write(SEGMENT, b"")
    pod.boot += 1
    with pytest.raises(DamagedLogError, match=f"the segment ends at offset 0, the next begins at {behind}"):
        pod.restart()


def _cache_lost(pod: Pod) -> None:
    """Under flush os the power was lost: nothing of the journal is left."""
    without_journal(pod)
    pod.disk.kill()
    pod.journal = Journal.open(pod.disk, JOURNAL, pod.journal_settings, "boot-2")
    pod.journal.cache_was_lost()
    pod.open_log(0)


def test_epochs_of_closed_segments_are_found_when_the_cache_was_lost_that_had_their_file() -> None:
    pod = pod_with(20, segment_bytes=1000)
    pod.epoch = 2
    for _ in range(20):
        pod.commit()
    pod.flush()
    assert pod.log.segments[-1].base_offset > 20
    if CHECKPOINT_NAME in pod.disk.listdir(DIRECTORY):
        pod.disk.unlink(DIRECTORY / CHECKPOINT_NAME)
    _cache_lost(pod)
    assert pod.log.epochs.entries == ((1, 0), (2, 20))
    assert pod.content() == pod.written[0]


@pytest.mark.parametrize("lost", ["the end of a closed segment", "a part in the middle of one"])
def test_log_ends_before_the_first_lost_write_when_the_cache_was_lost(lost: str) -> None:
    pod = pod_with(40, segment_bytes=1000)
    path = pod.log.segments[1].path
    content = bytes(pod.disk.content(path))
    begin = pod.log.segments[1].base_offset
    size = len(pod.written[0][begin])
    rest = b"" if lost.startswith("the end") else bytes(size) + content[3 * size :]
    pod.disk.write(path, content[: 2 * size] + rest)
    _cache_lost(pod)
    assert pod.content() == pod.written[0][: begin + 2]
    assert pod.log.end_offset == begin + 2
    pod.restart()
    assert pod.log.end_offset == begin + 2


def test_damage_in_a_closed_segment_that_the_journal_still_covers_is_refused_at_once() -> None:
    pod = pod_with(40, segment_bytes=1000)
    pod.disk.flip(SEGMENT, 70)
    with pytest.raises(DamagedLogError, match="no power loss"):
        pod.restart()


def test_segments_lost_behind_a_power_loss_come_back_from_the_journal() -> None:
    pod = pod_with(40, segment_bytes=1000)
    names = sorted(name for name in pod.disk.listdir(pod.directory()) if name.endswith(".log"))
    for name in names[2:]:
        pod.disk.unlink(pod.directory() / name)
    pod.boot += 1
    pod.restart()
    assert pod.content() == pod.written[0]
    pod.flush()
    assert sorted(name for name in pod.disk.listdir(pod.directory()) if name.endswith(".log")) == names


def test_damaged_segment_is_refused_when_the_journal_lost_its_tail_too_and_later_segments_would_go() -> None:
    pod = pod_with(40, segment_bytes=1000)
    segments = {p: bytes(pod.disk.content(p)) for p in pod.disk.names if p.suffix == ".log"}
    assert len(segments) > 2
    pod.disk.flip(SEGMENT, 70)
    (journal,) = [path for path in pod.disk.names if path.suffix == ".journal"]
    content = bytes(pod.disk.content(journal))
    used = len(content.rstrip(b"\0"))
    pod.disk.write(journal, content[: used // 2] + bytes(len(content) - used // 2))
    pod.boot += 1
    with pytest.raises(DamagedLogError, match="a segment begins after that"):
        pod.restart()
    later = {p: data for p, data in segments.items() if p != SEGMENT}
    assert all(bytes(pod.disk.content(p)) == data for p, data in later.items()), "nothing was cut"


def pod_with_a_begin_that_the_journal_gave_back() -> Pod:
    """Three batches of partition 0, which are in its segment alone."""
    pod = Pod(partitions=2, journal_bytes=2048)
    for _ in range(3):
        pod.commit(0)
    for _ in range(30):
        pod.commit(1)
    pod.give_files_back()
    return pod


def test_segment_behind_the_journal_with_a_gap_is_refused() -> None:
    pod = pod_with_a_begin_that_the_journal_gave_back()
    pod.commit(0)
    pod.flush()
    pod.disk.write(SEGMENT, b"".join(pod.written[0][:2]))
    with pytest.raises(DamagedLogError, match="ends at offset 2, the journal goes on at 3"):
        pod.restart()


def test_batch_that_landed_on_earlier_ones_is_no_write_that_a_power_loss_took() -> None:
    """The journal has that batch and all behind it, and the ones that it overwrote no more."""
    pod = pod_with_a_begin_that_the_journal_gave_back()
    for _ in range(3):
        pod.commit(0)
    pod.flush()
    batches = pod.written[0]
    misdirected = [batches[0], batches[3], batches[2], bytes(len(batches[3])), *batches[4:]]
    pod.disk.write(SEGMENT, b"".join(misdirected))
    pod.boot += 1
    with pytest.raises(DamagedLogError, match="the batch before it may have overwritten others"):
        pod.restart()


def test_gap_that_the_journal_knows_is_no_reason_to_refuse_a_write_that_a_power_loss_took() -> None:
    pod = Pod(partitions=2)
    pod.commit(0)
    pod.journal.stage_gap(0, 1, 5)
    pod.log.skip_to(5)
    for _ in range(3):
        pod.commit(0)
    pod.flush()
    batches = pod.written[0]
    pod.disk.write(SEGMENT, b"".join([*batches[:2], bytes(len(batches[2])), *batches[3:]]))
    pod.boot += 1
    pod.restart()
    assert pod.content() == batches


def test_log_without_any_segment_is_refused() -> None:
    pod = pod_with(1)
    pod.disk.unlink(SEGMENT)
    with pytest.raises(DamagedLogError, match="no segment"):
        pod.restart()


def test_log_of_another_log_id_does_not_get_the_journal_s_batches() -> None:
    pod = pod_with(3)
    pod.disk.kill()
    pod.partitions = 0
    pod.start()
    assert pod.journal.recovered(0, "another").batches == ()


def test_closed_kafka_segment_with_gaps_in_the_offsets_loads() -> None:
    disk = FakeDisk()
    disk.write(SEGMENT, make_batch(3, 0) + make_batch(90, 2))
    disk.write(Pod.directory() / segment_name(100), make_batch(107, 2) + make_batch(120, 5))
    disk.write(Pod.directory() / "00000000000000000100.index", b"not ours")
    disk.write(Pod.directory() / "leader-epoch-checkpoint", b"0\n3\n0 3\n2 90\n5 120\n")
    pod = Pod(disk)
    assert [batch.base_offset for batch in pod.log.read_batches(0)] == [3, 90, 107, 120]
    assert (pod.log.start_offset, pod.log.end_offset) == (0, 121)
    assert pod.log.epochs.entries == ((0, 3), (2, 90), (5, 120))


def test_epochs_missing_in_the_checkpoint_come_from_the_batches() -> None:
    pod = pod_with(3)
    pod.epoch = 4
    pod.commit()
    pod.restart()
    assert pod.log.epochs.entries == ((1, 0), (4, 3))


def test_unreadable_epoch_checkpoint_is_refused() -> None:
    pod = pod_with(3)
    pod.disk.write(pod.directory() / "leader-epoch-checkpoint", b"1\nwhat\n")
    with pytest.raises(DamagedLogError, match="unreadable"):
        pod.restart()


def test_truncation_is_replayed_and_what_followed_it_stands() -> None:
    pod = pod_with(6)
    pod.truncate(0, 3)
    pod.epoch = 2
    pod.commit(filler=60)
    pod.restart()
    assert pod.content() == pod.written[0]
    assert pod.log.end_offset == 4


def test_truncation_that_only_the_journal_knows_is_carried_out() -> None:
    pod = pod_with(6)
    before = pod.disk.content(SEGMENT)
    pod.truncate(0, 3)
    pod.disk.write(SEGMENT, before)
    pod.restart()
    assert pod.log.end_offset == 3
    assert pod.content() == pod.written[0]


def test_truncation_that_only_the_journal_knows_makes_way_for_what_followed_it() -> None:
    pod = pod_with(6)
    before = pod.disk.content(SEGMENT)
    pod.truncate(0, 3)
    pod.epoch = 2
    pod.commit(filler=60)
    pod.disk.write(SEGMENT, before)
    pod.restart()
    assert pod.content() == pod.written[0]
    assert pod.log.end_offset == 4


def test_tail_that_no_journal_has_is_durable_before_it_is_shown() -> None:
    pod = Pod()
    without_journal(pod)
    for offset in range(4):
        file = pod.disk.open(SEGMENT)
        pod.disk.pwritev(file, (make_batch(offset, 1),), pod.disk.size(file))
    pod.restart()
    assert pod.log.end_offset == 4
    for seed in range(4):
        pod.reboot(seed)
        assert pod.log.end_offset == 4


def test_epochs_of_closed_segments_are_durable_when_the_journal_has_gone() -> None:
    pod = Pod(segment_bytes=1000, journal_bytes=1024)
    for epoch in range(1, 6):
        pod.epoch = epoch
        for _ in range(10):
            pod.commit()
        pod.flush()
        pod.give_files_back()
    pod.reboot(seed=3)
    assert pod.log.epochs.entries == ((1, 0), (2, 10), (3, 20), (4, 30), (5, 40))


@pytest.mark.parametrize("seed", range(5))
def test_segment_names_that_a_killed_process_left_unsynced_are_durable_when_the_journal_has_gone(seed: int) -> None:
    pod = pod_with(30, segment_bytes=1000, journal_bytes=1024)
    pod.give_files_back()
    for _ in range(30):
        pod.commit()
    pod.flush()
    pod.restart()
    pod.give_files_back()
    pod.reboot(seed)
    assert pod.content() == pod.written[0]


def test_refused_log_is_left_as_it_was() -> None:
    pod = pod_with(40, segment_bytes=1000)
    pod.disk.flip(SEGMENT, 70)
    before = {path: bytes(inode.cached) for path, inode in pod.disk.names.items() if path.suffix == ".log"}
    with pytest.raises(DamagedLogError):
        pod.restart()
    assert {path: bytes(i.cached) for path, i in pod.disk.names.items() if path.suffix == ".log"} == before


def test_segment_never_has_what_the_journal_does_not() -> None:
    pod = Pod()
    pod.commit()
    pod.append()
    pod.flush()
    assert pod.disk.content(SEGMENT) == pod.written[0][0]
    assert pod.content() == pod.written[0]
    assert pod.log.has_pending
