"""Following logs: every batch once over appends, rolls and new logs; truncation and rewriting are noticed."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest
from tests.unit.pipeline.logs import commits_segment

from muster_pipeline.decode.bytes_source import FileBytes
from muster_pipeline.decode.decoder import Decoder
from muster_pipeline.decode.errors import SegmentDamagedError
from muster_pipeline.decode.schema import SCHEMA
from muster_pipeline.source.files import find_segments
from muster_pipeline.source.follow import (
    LogRewrittenError,
    Positions,
    advance,
    decode_positions,
    encode_positions,
    ranges,
)


class Log:
    """A partition's directory that is written to as a pod does: appended, rolled, truncated."""

    def __init__(self, root: Path, partition: int) -> None:
        self.directory = root / f"__consumer_offsets-{partition}"
        self.directory.mkdir()
        self.next_offset = 0
        self.roll()

    def roll(self) -> None:
        self.path = self.directory / f"{self.next_offset:020d}.log"
        self.path.touch()

    def append(self, count: int, per_batch: int = 2) -> None:
        with self.path.open("ab") as file:
            file.write(commits_segment(count, per_batch, base_offset=self.next_offset))
        self.next_offset += count


def read(root: Path, start: Positions, end: Positions) -> list[int]:
    batches: list[pa.RecordBatch] = []
    for split in ranges(find_segments([str(root)], may_be_none=True), start, end):
        with FileBytes(split.segment.path) as source:
            batches += Decoder().decode(source, 0, split.start, split.end)
    rows = pa.Table.from_batches(batches, SCHEMA).to_pylist()
    assert not [row for row in rows if row["problem"]]
    return [row["offset"] for row in rows]


def latest(root: Path, start: Positions) -> Positions:
    found = advance(find_segments([str(root)], may_be_none=True), start)
    assert decode_positions(encode_positions(found)) == found
    return found


@pytest.mark.parametrize("seed", range(20))
def test_every_record_is_read_once_over_appends_torn_writes_rolls_and_new_logs(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    logs = [Log(tmp_path, 0)]
    at: Positions = {}
    seen: list[int] = []
    torn: dict[Path, bytes] = {}
    for _ in range(40):
        log = chance.choice(logs)
        if log.path in torn:  # the write that was under way ends
            with log.path.open("ab") as file:
                file.write(torn.pop(log.path))
        match chance.choice(["append", "append", "torn", "roll", "new", "read", "read"]):
            case "append":
                log.append(chance.randint(1, 5))
            case "torn":
                log.append(2)
                content = log.path.read_bytes()
                cut = chance.randint(len(content) - len(commits_segment(2, 2)), len(content) - 1)
                log.path.write_bytes(content[:cut])
                torn[log.path] = content[cut:]
            case "roll":
                if log.path.stat().st_size:
                    log.roll()
            case "new" if len(logs) < 3:
                logs.append(Log(tmp_path, len(logs)))
            case "read":
                end = latest(tmp_path, at)
                seen += read(tmp_path, at, end)
                at = end
    for path, rest in torn.items():
        with path.open("ab") as file:
            file.write(rest)
    seen += read(tmp_path, at, latest(tmp_path, at))
    assert sorted(seen) == sorted(offset for log in logs for offset in range(log.next_offset))


def test_no_logs_yet_is_nothing_to_read(tmp_path: Path) -> None:
    assert latest(tmp_path, {}) == {}
    Log(tmp_path, 0)
    assert read(tmp_path, {}, latest(tmp_path, {})) == []


def test_truncation_below_what_was_read_is_noticed(tmp_path: Path) -> None:
    log = Log(tmp_path, 0)
    log.append(10)
    at = latest(tmp_path, {})
    log.path.write_bytes(log.path.read_bytes()[:-100])
    with pytest.raises(LogRewrittenError, match="it was truncated"):
        latest(tmp_path, at)


def test_the_same_records_of_another_leader_are_noticed(tmp_path: Path) -> None:
    log = Log(tmp_path, 0)
    log.append(2)
    at = latest(tmp_path, {})
    data = log.path.read_bytes()
    assert data[15] == 4
    log.path.write_bytes(data[:15] + b"\x05" + data[16:])  # the leader epoch is not under the CRC
    with pytest.raises(LogRewrittenError, match="holds another batch at byte"):
        latest(tmp_path, at)


def test_truncation_that_was_written_over_is_noticed(tmp_path: Path) -> None:
    log = Log(tmp_path, 0)
    log.append(10)
    at = latest(tmp_path, {})
    log.path.write_bytes(commits_segment(12, 2, base_offset=1))
    with pytest.raises(LogRewrittenError, match="holds another batch at byte"):
        latest(tmp_path, at)


def test_segment_or_log_that_is_away_is_noticed(tmp_path: Path) -> None:
    log = Log(tmp_path, 0)
    log.append(10)
    at = latest(tmp_path, {})
    first = log.path
    log.roll()
    first.unlink()
    with pytest.raises(LogRewrittenError, match="has no segment 00000000000000000000 any more"):
        latest(tmp_path, at)
    log.path.unlink()
    with pytest.raises(LogRewrittenError, match="is away"):
        latest(tmp_path, at)


def test_header_that_cannot_be_stops_the_stream_with_its_place(tmp_path: Path) -> None:
    log = Log(tmp_path, 0)
    log.append(2)
    size = log.path.stat().st_size
    with log.path.open("ab") as file:
        file.write(b"\xff" * 100)
    with pytest.raises(SegmentDamagedError, match=f"byte {size}: bad_header"):
        latest(tmp_path, {})


def test_zeros_behind_the_last_batch_are_waited_for(tmp_path: Path) -> None:
    log = Log(tmp_path, 0)
    log.append(2)
    with log.path.open("ab") as file:
        file.write(bytes(1000))
    assert read(tmp_path, {}, latest(tmp_path, {})) == [0, 1]
