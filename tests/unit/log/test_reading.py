"""Reading a log: who begins in the middle looks at nothing before, as a follower replays its log in many small steps;
ranges are whole batches."""

from __future__ import annotations

import pytest
from tests.unit.log.harness import Pod, pod_with

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
