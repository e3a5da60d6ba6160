"""Reading a log: who begins in the middle looks at nothing before, as a follower replays its log in many small steps;
ranges are whole batches."""

from __future__ import annotations

import pytest
from tests.unit.log.harness import Pod, pod_with

from muster_coordinator.log.errors import DamagedLogError
from muster_coordinator.log.segments import reading
from muster_coordinator.records.batch import RecordBatch, read_batch


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Batches that were decoded and checked."""
    seen: list[bytes] = []

    def counting(data: bytes, at: int = 0) -> RecordBatch:
        batch = read_batch(data, at)
        seen.append(batch.data)
        return batch

    monkeypatch.setattr(reading, "read_batch", counting)
    return seen


@pytest.mark.parametrize("segment_bytes", [1000, 1 << 20])
@pytest.mark.parametrize("offset", [0, 1, 20, 37, 39, 40])
def test_batches_that_end_before_the_start_are_neither_checked_nor_given(
    segment_bytes: int, offset: int, checked: list[bytes]
) -> None:
    pod = Pod(segment_bytes=segment_bytes)
    for _ in range(20):
        pod.commit(count=2)
    pod.flush()
    checked.clear()
    wanted = pod.written[0][offset // 2 :]
    assert [batch.data for batch in pod.log.read_batches(offset)] == wanted
    assert checked == wanted


def test_what_waits_in_memory_is_read_without_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    pod = Pod()
    pod.commit()
    pod.flush()
    for _ in range(3):
        pod.commit()

    def no_file(*arguments: object) -> None:
        raise AssertionError("a file was read")

    monkeypatch.setattr(reading, "_read_chunk", no_file)
    assert [batch.data for batch in pod.log.read_batches(2)] == pod.written[0][2:]
    with pytest.raises(AssertionError, match="a file was read"):
        list(pod.log.read_batches(0))


@pytest.mark.parametrize("max_bytes", [1, 100, 250, 10000])
def test_range_is_whole_batches_from_file_and_buffer(max_bytes: int) -> None:
    pod = pod_with(30, segment_bytes=1000)
    pod.append()
    pod.append()
    got: list[bytes] = []
    offset = 5
    while offset < pod.log.end_offset:
        end, batches = pod.log.read_range(offset, max_bytes).run()
        assert [(base, epoch) for base, _, epoch, _ in batches] == [(b, 1) for b in range(offset, end)]
        assert len(batches) == 1 or sum(len(data) for _, _, _, data in batches) <= max_bytes
        got += [data for _, _, _, data in batches]
        offset = end
    assert got == pod.written[0][5:]


def _overwritten(by: int, place: int) -> Pod:
    """The write of the batches `by` and behind it has landed on those at `place`: all from 10 to 39 have one size."""
    pod = pod_with(40)
    path, batches = pod.log.segments[0].path, pod.written[0]
    assert {len(batch) for batch in batches[10:]} == {len(batches[10])}
    content = pod.disk.content(path)
    at, data = sum(map(len, batches[:place])), b"".join(batches[by : by + 2])
    content[at : at + len(data)] = data
    pod.disk.write(path, content)
    return pod


@pytest.mark.parametrize(("by", "place"), [(30, 15), (15, 30)])
def test_batches_at_the_place_of_others_are_given_to_nobody(by: int, place: int) -> None:
    """Their checksums are right, and what is missing in front of them may have been compacted."""
    pod = _overwritten(by, place)
    for bytes_max in (1, 1 << 20):
        with pytest.raises(DamagedLogError, match="is not between"):
            pod.log.read_range(place, bytes_max).run()
    with pytest.raises(DamagedLogError, match="is not between"):
        next(pod.log.read_batches(place))


def test_batch_of_another_size_at_the_place_of_others_is_given_to_nobody() -> None:
    pod = pod_with(40)
    path, batches = pod.log.segments[0].path, pod.written[0]
    content = pod.disk.content(path)
    content[: len(batches[30])] = batches[30]
    pod.disk.write(path, content)
    with pytest.raises(DamagedLogError, match="no batch here, and others are missing before it"):
        pod.log.read_range(0, 1).run()
    with pytest.raises(DamagedLogError, match="no batch here, and others are missing before it"):
        next(pod.log.read_batches(0))


def test_last_batch_of_a_closed_segment_that_is_of_another_one_is_given_to_nobody() -> None:
    pod = pod_with(40, segment_bytes=1000)
    segment, behind = pod.log.segments[2:4]
    last = pod.written[0][behind.base_offset - 1]
    content = pod.disk.content(segment.path)
    content[-len(last) :] = pod.written[0][39]
    pod.disk.write(segment.path, content)
    with pytest.raises(DamagedLogError, match="is not between"):
        pod.log.read_range(behind.base_offset - 1, 1).run()
    with pytest.raises(DamagedLogError, match="is not between"):
        list(pod.log.read_batches(segment.base_offset))
    with pytest.raises(DamagedLogError, match="is not between"):
        list(pod.log.batches_of(segment, behind.base_offset))


def test_log_in_which_batches_are_not_in_their_place_is_not_cut() -> None:
    """Nobody knows what would be left."""
    for by, place in ((30, 15), (15, 30)):
        with pytest.raises(DamagedLogError, match="is behind one that ends at"):
            _overwritten(by, place).log.cut_end(20)
    pod = pod_with(40)
    path = pod.log.segments[0].path
    content = pod.disk.content(path)
    content[sum(map(len, pod.written[0][:15])) + 16] = 0
    pod.disk.write(path, content)
    with pytest.raises(DamagedLogError, match="no batch here"):
        pod.log.cut_end(20)
