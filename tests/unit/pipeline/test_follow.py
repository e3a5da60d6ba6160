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
    restarts,
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

    def name(self, topic_id: str, *epochs: tuple[int, int]) -> None:
        """As Kafka says which log it is."""
        (self.directory / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}\n")
        lines = ["0", str(len(epochs)), *(f"{epoch} {offset}" for epoch, offset in epochs)]
        (self.directory / "leader-epoch-checkpoint").write_text("\n".join(lines) + "\n")

    def append(self, count: int, per_batch: int = 2) -> None:
        with self.path.open("ab") as file:
            file.write(commits_segment(count, per_batch, base_offset=self.next_offset))
        self.next_offset += count


def read(root: Path, start: Positions, end: Positions) -> list[int]:
    batches: list[pa.RecordBatch] = []
    for split in ranges(find_segments([str(root)], may_be_none=True), start, end):
        with FileBytes(split.segment.path) as source:
            batches += Decoder().decode(source, split.segment.origin(split.start), split.end)
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
    with pytest.raises(LogRewrittenError, match="was truncated below what was read; it was read up to offset 10"):
        latest(tmp_path, at)


def test_the_same_records_of_another_leader_are_noticed(tmp_path: Path) -> None:
    log = Log(tmp_path, 0)
    log.append(2)
    at = latest(tmp_path, {})
    data = log.path.read_bytes()
    assert data[15] == 4
    log.path.write_bytes(data[:15] + b"\x05" + data[16:])  # the leader epoch is not under the CRC
    with pytest.raises(LogRewrittenError, match="holds other batches than were read"):
        latest(tmp_path, at)


def test_truncation_that_was_written_over_is_noticed(tmp_path: Path) -> None:
    log = Log(tmp_path, 0)
    log.name("topic-a", (4, 0))
    log.append(10)
    at = latest(tmp_path, {})
    log.path.write_bytes(commits_segment(8, 2) + commits_segment(6, 2, base_offset=8, epoch=5))
    log.name("topic-a", (4, 0), (5, 8))
    with pytest.raises(LogRewrittenError, match="was truncated and written again in leader epoch 5"):
        latest(tmp_path, at)


def test_segment_or_log_that_is_away_is_noticed(tmp_path: Path) -> None:
    log = Log(tmp_path, 0)
    log.append(10)
    at = latest(tmp_path, {})
    log.path.unlink()
    with pytest.raises(LogRewrittenError, match=r"__consumer_offsets-0 is away; it was read up to .*next_offset=10"):
        latest(tmp_path, at)
    log.roll()
    with pytest.raises(LogRewrittenError, match="nothing says that it is the same log"):
        latest(tmp_path, at)


def compacted(log: Log) -> None:
    """Of each closed segment the odd batches go, and the first two become one, as a cleaner leaves them."""
    paths = sorted(log.directory.glob("*.log"))
    for path in paths[:-1]:
        data = path.read_bytes()
        size = len(commits_segment(2, 2))
        path.write_bytes(b"".join(data[at : at + size] for at in range(0, len(data), 2 * size)))
    paths[0].write_bytes(paths[0].read_bytes() + paths[1].read_bytes())
    paths[1].unlink()


@pytest.mark.parametrize("read_first", [4, 10, 16])
def test_log_that_was_compacted_goes_on_where_it_was_read_to(tmp_path: Path, read_first: int) -> None:
    log = Log(tmp_path, 0)
    log.name("topic-a", (4, 0))
    log.append(read_first)
    at = latest(tmp_path, {})
    for count in (20 - read_first, 10, 10):
        log.append(count)
        log.roll()
    log.append(4)
    kept = [*range(0, 20, 4), *range(20, 30, 4), *range(30, 40, 4)]  # first offsets of the batches of two
    compacted(log)
    end = latest(tmp_path, at)
    assert read(tmp_path, at, end) == [
        each for first in kept for each in (first, first + 1) if each >= read_first
    ] + list(range(40, 44))
    assert end[str(log.directory)].next_offset == 44
    assert read(tmp_path, end, latest(tmp_path, end)) == []


def test_compacted_log_of_another_identity_is_noticed(tmp_path: Path) -> None:
    log = Log(tmp_path, 0)
    log.name("topic-a", (4, 0))
    log.append(4)  # its last batch goes
    at = latest(tmp_path, {})
    for _ in range(3):
        log.append(10)
        log.roll()
    log.append(1)
    compacted(log)
    log.name("topic-b", (4, 0))
    with pytest.raises(LogRewrittenError, match="is another log now, topic-b, not topic-a: wiped, or re-sharded"):
        latest(tmp_path, at)


def test_log_that_is_begun_anew_says_so_once_and_is_read_from_its_start(tmp_path: Path) -> None:
    log, other = Log(tmp_path, 0), Log(tmp_path, 1)
    log.append(10)
    other.append(2)
    at = latest(tmp_path, {})
    log.path.write_bytes(commits_segment(6, 2))
    other.path.unlink()
    other.directory.rmdir()
    end = advance(find_segments([str(tmp_path)]), at, restart=True)
    assert read(tmp_path, at, end) == list(range(6))
    told = list(restarts(at, end))
    assert [each.home for each in told] == [str(log.directory), str(other.directory)]
    assert "was truncated below what was read" in told[0].reason
    assert "is away; it was read up to offset 2" in told[1].reason
    assert decode_positions(encode_positions(end)) == end
    with log.path.open("ab") as file:
        file.write(commits_segment(2, 2, base_offset=6))
    later = advance(find_segments([str(tmp_path)]), end, restart=True)
    assert read(tmp_path, end, later) == [6, 7]
    assert not list(restarts(end, later))


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
