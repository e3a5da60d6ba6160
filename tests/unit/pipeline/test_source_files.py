"""What is found under a path, how files are cut into splits, and how splits are put into tasks."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.pipeline.logs import commits_segment, segments

from muster_coordinator.partition_numbers import OFFSETS, TRANSACTIONS
from muster_pipeline.decode.bytes_source import MemoryBytes
from muster_pipeline.decode.decoder import Decoder, decode_segment
from muster_pipeline.decode.errors import SegmentReadError
from muster_pipeline.decode.fast_rows import Origin
from muster_pipeline.decode.schema import SCHEMA
from muster_pipeline.source import http_ranges, locations, pod_logs
from muster_pipeline.source.files import (
    InputError,
    SegmentFile,
    Split,
    find_segments,
    log_origin,
    pack,
    split_points,
    splits,
)
from muster_pipeline.source.follow import LogRewrittenError, Positions, advance, ranges
from muster_pipeline.source.locations import open_segment
from muster_pipeline.source.options import SourceOptions
from muster_pipeline.source.topics import (
    BOTH_TOPICS,
    OFFSETS_TOPIC,
    TRANSACTIONS_FIRST,
    TRANSACTIONS_TOPIC,
    partition_name,
)

FIRST, SECOND = f"{0:020d}.log", f"{500:020d}.log"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for partition in (0, 11):
        directory = tmp_path / f"__consumer_offsets-{partition}"
        directory.mkdir()
        (directory / FIRST).write_bytes(commits_segment(10, 2))
        (directory / "leader-epoch-checkpoint").write_text("0\n0\n")
    (tmp_path / "__consumer_offsets-11" / SECOND).write_bytes(b"")
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "orders-0" / FIRST).write_bytes(b"another topic")
    return tmp_path


def test_data_directory_gives_the_segments_of_the_offsets_topic_only(data: Path) -> None:
    found = find_segments([str(data)])
    assert [(Path(one.path).name, one.offsets_partition, one.base_offset) for one in found] == [
        (FIRST, 0, 0),
        (FIRST, 11, 0),
        (SECOND, 11, 500),
    ]


def test_partition_directory_and_file_are_found_as_themselves_and_once(data: Path) -> None:
    directory = data / "__consumer_offsets-11"
    whole = find_segments([str(directory)])
    assert [one.base_offset for one in whole] == [0, 500]
    assert find_segments([str(directory), str(directory / FIRST)]) == whole


def test_directory_with_segments_of_another_name_is_read_without_a_partition(data: Path) -> None:
    assert find_segments([str(data / "orders-0")])[0].offsets_partition is None


def test_paths_that_hold_nothing_are_refused(data: Path) -> None:
    (data / "empty").mkdir()
    with pytest.raises(InputError, match="no segments of __consumer_offsets under"):
        find_segments([str(data / "empty")])
    with pytest.raises(InputError, match="no such file or directory"):
        find_segments([str(data / "gone")])
    with pytest.raises(InputError, match="not named like a segment"):
        find_segments([str(data / "__consumer_offsets-0" / "leader-epoch-checkpoint")])


def test_directory_that_cannot_be_listed_is_refused_with_its_name(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(InputError, match=f"^{data}: Permission denied$"):
        find_segments([str(data)])


def test_two_logs_of_one_partition_are_refused(data: Path) -> None:
    other = data / "other" / "__consumer_offsets-0"
    other.mkdir(parents=True)
    (other / FIRST).write_bytes(b"")
    with pytest.raises(InputError, match="__consumer_offsets-0 is in"):
        find_segments([str(data), str(data / "other")])


@settings(max_examples=80)
@given(segments(), st.integers(1, 500))
def test_splits_of_any_size_give_each_row_once(content: bytes, split_bytes: int) -> None:
    source = MemoryBytes(content)
    points = split_points(source, split_bytes)
    batches: list[pa.RecordBatch] = []
    for start, end in zip(points, [*points[1:], None], strict=True):
        batches += Decoder().decode(source, Origin("", position=start), end)
    rows = pa.Table.from_batches(batches, SCHEMA).to_pylist()
    assert rows == decode_segment(content).to_pylist()


def test_split_points_are_where_batches_begin() -> None:
    content = commits_segment(100, 1)
    size = len(content) // 100
    assert split_points(MemoryBytes(content), 3 * size)[:3] == [0, 3 * size, 6 * size]


def test_splits_of_files_say_how_much_each_reads(data: Path) -> None:
    segment = find_segments([str(data)])[0]
    size = Path(segment.path).stat().st_size
    assert [(one.start, one.end) for one in splits([segment], size)] == [(0, None)]
    cut = list(splits([segment], size // 2))
    assert len(cut) > 1
    assert sum(one.size for one in cut) == size


def test_segment_that_vanished_before_planning_is_an_error_with_its_name(data: Path) -> None:
    segment = find_segments([str(data)])[0]
    Path(segment.path).unlink()
    with pytest.raises(SegmentReadError, match="No such file"):
        list(splits([segment]))


def test_neighbours_are_packed_into_tasks_of_about_the_size() -> None:
    segment = SegmentFile("x", 0, 0)
    sizes = [1, 1, 1, 5, 1, 1]
    packed = pack([Split(segment, 0, None, size) for size in sizes], 3)
    assert [[one.size for one in task] for task in packed] == [[1, 1, 1], [5], [1, 1]]


def test_options_are_parsed_and_unknown_ones_refused() -> None:
    parsed = SourceOptions.parse({"path": "/a", "MODE": "failfast", "splitbytes": "1000"})
    assert (parsed.paths, parsed.fail_fast, parsed.split_bytes) == (("/a",), True, 1000)
    for wrong, text in [
        ({"path": "/a", "header": "true"}, "no such options: header"),
        ({"path": "/a", "mode": "DROPMALFORMED"}, "mode is DROPMALFORMED"),
        ({"path": "/a", "splitBytes": "-1"}, "positive number"),
        ({"path": "/a", "onRewrittenLog": "IGNORE"}, "onRewrittenLog is IGNORE, it can be FAIL or RESTART"),
        ({"path": "/a", "mode": "FAILFAST", "onRewrittenLog": "restart"}, "contradict each other"),
        ({}, "nothing to read"),
    ]:
        with pytest.raises(InputError, match=text):
            SourceOptions.parse(wrong)


def test_archive_with_its_log_ids_is_read(tmp_path: Path) -> None:
    log_id = "0123456789abcdef" * 2
    directory = tmp_path / "__consumer_offsets-7" / log_id
    directory.mkdir(parents=True)
    (directory / FIRST).write_bytes(commits_segment(3, 1))
    [found] = find_segments([str(tmp_path)])
    assert (found.path, found.offsets_partition) == (str(directory / FIRST), 7)
    (directory.parent / log_id[::-1]).mkdir()
    (directory.parent / log_id[::-1] / FIRST).write_bytes(b"")
    with pytest.raises(InputError, match="__consumer_offsets-7 is in"):
        find_segments([str(tmp_path)])


def test_object_store_gives_the_same_splits_and_bytes_as_the_directory(data: Path) -> None:
    stored = find_segments([f"file://{data}"])
    local = find_segments([str(data)])
    assert [each.path.removeprefix("file://") for each in stored] == [each.path for each in local]
    assert [each.offsets_partition for each in stored] == [each.offsets_partition for each in local]
    with open_segment(stored[0].path) as one, open_segment(local[0].path) as other:
        assert one.size == other.size
        assert bytes(one.read(3, one.size - 3)) == bytes(other.read(3, one.size - 3))
        with pytest.raises(SegmentReadError, match="it was longer when it was opened"):
            one.read(0, one.size + 1)
    assert find_segments([stored[0].path]) == stored[:1]
    Path(local[0].path).unlink()
    with pytest.raises(SegmentReadError, match=r"file://.*\.log, byte 0"):
        open_segment(stored[0].path)
    with pytest.raises(InputError, match="nosuchstore"):
        find_segments(["nosuchstore://bucket"])


class Pod:
    """Serves what a pod would, and what it must not: by path (status, body); `wanted` counts requests."""

    def __init__(self) -> None:
        self.bodies: dict[str, bytes] = {}
        pod = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = pod.bodies.get(self.path)
                if body is None:
                    self.send_error(404, "no such segment")
                    return
                found = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
                part = body[int(found[1]) : min(int(found[2]) + 1, int(found[1]) + 1000)] if found else body
                self.send_response(206 if part else 416)
                start = int(found[1]) if found else 0
                where = f"{start}-{start + len(part) - 1}" if part else "*"
                self.send_header("Content-Range", f"bytes {where}/{len(body)}")
                self.send_header("Content-Length", str(len(part)))
                self.end_headers()
                self.wfile.write(part)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def pod() -> Iterator[Pod]:
    yield from serving(Pod())


def serving(pod: Pod) -> Iterator[Pod]:
    thread = threading.Thread(target=pod.server.serve_forever)
    thread.start()
    yield pod
    pod.server.shutdown()
    thread.join()
    pod.server.server_close()


def test_partitions_of_both_topics_are_told_apart_by_the_number_that_a_pod_has(pod: Pod) -> None:
    assert (OFFSETS.name, TRANSACTIONS.name) == (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)
    assert TRANSACTIONS.first == TRANSACTIONS_FIRST
    numbers = (4, TRANSACTIONS_FIRST + 3)
    assert [partition_name(number) for number in numbers] == ["__consumer_offsets-4", "__transaction_state-3"]
    listed = [{"partition": number, "segments": [{"baseOffset": 0, "size": 5}]} for number in numbers]
    pod.bodies = {"/v1/segments": json.dumps({"partitions": listed}).encode()}
    for number in numbers:
        pod.bodies[f"/v1/segments/{number}/0"] = commits_segment(1, 1)
    home = f"{pod.address}/v1/segments"
    offsets = SegmentFile(f"{home}/4/0", 4, 0)
    transactions = SegmentFile(f"{home}/500003/0", None, 0, 3)
    assert find_segments([pod.address]) == [offsets]
    assert find_segments([pod.address], BOTH_TOPICS) == [offsets, transactions]
    assert (transactions.number, transactions.topic) == (TRANSACTIONS_FIRST + 3, TRANSACTIONS_TOPIC)
    assert log_origin(transactions.log) == Origin(transactions.log, None, 3)
    assert log_origin("/data/__transaction_state-3") == Origin("/data/__transaction_state-3", None, 3)


def test_pod_is_read_by_ranges_and_what_it_lost_is_an_error_with_the_place(
    pod: Pod, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_ranges, "UNREACHABLE_FOR_S", 0.3)
    content = commits_segment(100, 3)
    pod.bodies = {
        "/v1/segments": b'{"partitions": [{"partition": 4, "segments": [{"baseOffset": 0, "size": 5}]}]}',
        "/v1/segments/4/0": content,
    }
    [segment] = find_segments([pod.address])
    assert segment == SegmentFile(f"{pod.address}/v1/segments/4/0", 4, 0)
    with open_segment(segment.path) as source:
        assert (source.size, bytes(source.read(5, 4000))) == (len(content), content[5:4005])
        pod.bodies["/v1/segments/4/0"] = content[:2000]
        with pytest.raises(SegmentReadError, match=r"4/0, byte 2000: the segment ends here"):
            source.read(0, 4000)
        del pod.bodies["/v1/segments/4/0"]
        with pytest.raises(SegmentReadError, match="HTTP 404"):
            source.read(0, 10)
    pod.bodies["/v1/segments"] = b'{"partitions": [1]}'
    with pytest.raises(SegmentReadError, match="no list of segments"):
        find_segments([pod.address])


def test_pod_that_serves_less_after_its_restart_is_waited_for(pod: Pod, monkeypatch: pytest.MonkeyPatch) -> None:
    url, content = f"{pod.address}/v1/segments/4/0", commits_segment(100, 3)
    listed = b'{"partitions": [{"partition": 4, "segments": [{"baseOffset": 0, "size": 5}]}]}'
    pod.bodies = {"/v1/segments": listed, "/v1/segments/4/0": content}
    at = advance(find_segments([pod.address]), {})
    pod.bodies["/v1/segments/4/0"] = content[:700]
    assert advance(find_segments([pod.address]), at) == at
    pod.bodies["/v1/segments"] = b'{"partitions": []}'
    assert advance(find_segments([pod.address], may_be_none=True), at) == at
    with pytest.raises(LogRewrittenError, match="no longer holds the records"):
        list(ranges([], {}, at))
    threading.Timer(0.5, lambda: pod.bodies.update({"/v1/segments/4/0": content})).start()
    with open_segment(url, len(content)) as source:
        assert source.size == len(content)
    monkeypatch.setattr(locations, "UNREACHABLE_FOR_S", 0.3)
    with pytest.raises(SegmentReadError, match=f"{len(content) + 1} bytes were there before"):
        open_segment(url, len(content) + 1)


def with_unserved(listed: bytes, *partitions: int) -> bytes:
    return json.dumps(json.loads(listed) | {"unserved": partitions}).encode()


def test_partition_that_a_pod_does_not_serve_yet_is_waited_for(pod: Pod, other_pod: Pod) -> None:
    none = b'{"partitions": []}'
    pod.bodies = {"/v1/segments": with_unserved(none, 4)}
    assert find_segments([pod.address], may_be_none=True) == []
    threading.Timer(0.5, lambda: pod.bodies.update({"/v1/segments": listing("a", (4, 0))})).start()
    assert find_segments([pod.address]) == [SegmentFile(f"{pod.address}/v1/segments/4/0", 4, 0)]
    other_pod.bodies = {"/v1/segments": with_unserved(none, 4)}
    [found] = find_segments([other_pod.address, pod.address])
    assert found.path.startswith(pod.address), "one that serves it is enough"


def test_partition_that_no_pod_serves_in_the_end_is_an_error(pod: Pod, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_logs, "UNREACHABLE_FOR_S", 0.3)
    pod.bodies = {"/v1/segments": with_unserved(listing("a", (4, 0)), 5, 7)}
    with pytest.raises(SegmentReadError, match=r"http://127.*_offsets-5, __consumer_offsets-7 are here, but"):
        find_segments([pod.address])


@pytest.mark.parametrize("address", ["http://[bad", "http://pod:port"])
def test_address_that_is_none_is_named(pod: Pod, address: str) -> None:
    pod.bodies = {"/v1/segments": b'{"partitions": []}'}
    with pytest.raises(InputError, match=re.escape(f"{pod.address}, {address}: ")):
        find_segments([pod.address, address])


def listing(log_id: str, *epochs: tuple[int, int]) -> bytes:
    segments = [{"baseOffset": 0, "size": 5}]
    return json.dumps(
        {"partitions": [{"partition": 4, "logId": log_id, "epochs": epochs, "segments": segments}]}
    ).encode()


def test_pod_with_another_log_than_was_read_is_noticed(pod: Pod) -> None:
    content = commits_segment(100, 3)
    pod.bodies = {"/v1/segments": listing("a", (4, 0)), "/v1/segments/4/0": content}
    at = advance(find_segments([pod.address]), {})
    pod.bodies |= {"/v1/segments": listing("b", (4, 0)), "/v1/segments/4/0": commits_segment(7, 1)}
    with pytest.raises(LogRewrittenError, match="segments/4 is another log now, b, not a: wiped, or re-sharded"):
        advance(find_segments([pod.address]), at)
    pod.bodies |= {"/v1/segments": listing("b", (4, 0)), "/v1/segments/4/0": commits_segment(200, 2)}
    with pytest.raises(LogRewrittenError, match="is another log now"):
        advance(find_segments([pod.address]), at)


@pytest.fixture
def other_pod() -> Iterator[Pod]:
    yield from serving(Pod())


def offsets_between(segments: list[SegmentFile], start: Positions, end: Positions) -> list[int]:
    rows: list[int] = []
    for split in ranges(segments, start, end):
        with open_segment(split.segment.path) as source:
            for batch in Decoder().decode(source, split.segment.origin(split.start), split.end):
                rows += batch.column("offset").to_pylist()
    return rows


def test_another_pods_replica_goes_on_where_the_first_was_read_to(pod: Pod, other_pod: Pod) -> None:
    whole = commits_segment(99, 3)
    size = len(whole) // 33
    pod.bodies = {"/v1/segments": listing("a", (4, 0)), "/v1/segments/4/0": whole[: 20 * size]}
    other_pod.bodies = {"/v1/segments": listing("b", (4, 0)), "/v1/segments/4/0": whole[size : 10 * size]}
    both = [pod.address, other_pod.address]
    at = advance(find_segments(both), {})
    pod.bodies["/v1/segments"] = b'{"partitions": []}'  # it gave its replica away
    assert advance(find_segments(both), at) == at, "the other one is not as far yet"
    assert offsets_between(find_segments(both), at, at) == []
    other_pod.bodies["/v1/segments/4/0"] = whole[size:]  # compacted: the same records at other bytes
    segments = find_segments(both)
    end = advance(segments, at)
    assert list(end) == [f"{other_pod.address}/v1/segments/4"]
    assert offsets_between(segments, at, end) == list(range(60, 99))
    other_pod.bodies["/v1/segments"] = listing("b", (4, 0), (5, 30))
    with pytest.raises(LogRewrittenError, match="is another log now"):
        advance(find_segments(both), replace_head(at))


def replace_head(positions: Positions) -> Positions:
    return {home: replace(each, head="00") for home, each in positions.items()}


def test_file_that_was_cut_since_it_was_planned_is_an_error(data: Path) -> None:
    [segment, *_] = find_segments([str(data)])
    size = Path(segment.path).stat().st_size
    Path(segment.path).write_bytes(b"")
    with pytest.raises(SegmentReadError, match=f"byte 0: the segment ends here; {size} bytes were there before"):
        open_segment(segment.path, size)


def test_pod_that_does_not_come_back_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_ranges, "UNREACHABLE_FOR_S", 0.3)
    with pytest.raises(SegmentReadError, match="refused"):
        find_segments(["http://127.0.0.1:1"])
