"""A running pod's own files: following them gives what was committed, and decoding them what OffsetFetch answers.

Also when its cleaner has compacted them meanwhile.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.support.kafka import KafkaClient
from tests.support.pod import SoloPod

from muster_pipeline.decode.decoder import Decoder, Selection
from muster_pipeline.decode.errors import SegmentReadError
from muster_pipeline.decode.schema import SCHEMA, Kind
from muster_pipeline.source.files import find_segments
from muster_pipeline.source.follow import LogPosition, Positions, advance, ranges
from muster_pipeline.source.locations import open_segment

pytestmark = pytest.mark.integration
READINGS = 20
GROUPS = [f"group-{number}" for number in range(6)]
COMMITS = Selection(kinds=frozenset({Kind.OFFSET_COMMIT, Kind.DAMAGED, Kind.UNREADABLE}))


class Follower:
    def __init__(self, place: str) -> None:
        self.place = place
        self.at: Positions = {}
        self.rows: list[dict[str, Any]] = []

    def read(self) -> None:
        """Again when the cleaner replaced a segment between the look and the reading: a query is started again then."""
        for left in reversed(range(READINGS)):
            try:
                self._read()
                return
            except SegmentReadError:
                if not left:
                    raise

    def _read(self) -> None:
        segments = find_segments([self.place], may_be_none=True)
        end = advance(segments, self.at)
        batches: list[pa.RecordBatch] = []
        for split in ranges(segments, self.at, end):
            with open_segment(split.segment.path) as source:
                batches += Decoder(COMMITS, fail_fast=True).decode(source, split.segment.origin(split.start), split.end)
        self.rows += pa.Table.from_batches(batches, SCHEMA).to_pylist()
        self.at = end


async def commit_all(client: KafkaClient, offset: int) -> int:
    """`offset` for every group; the next one."""
    for group in GROUPS:
        assert await client.commit(group, offset, partition=offset % 3) == 0
    return offset + 1


async def commit_round(pod: SoloPod, first: int, last: int, follower: Follower) -> None:
    client = await pod.client()
    for offset in range(first, last):
        await commit_all(client, offset)
        if offset % 5 == 0:
            await asyncio.to_thread(follower.read)
    await client.close()


@pytest.mark.parametrize("place", ["its directory", "the pod itself"])
async def test_followed_log_of_a_pod_that_is_killed_and_restarted_holds_every_commit_once(
    tmp_path: Path, place: str
) -> None:
    async with SoloPod(tmp_path / "data", partitions=3, config=("offsets.topic.segment.bytes=2000",)) as pod:
        from_pod = place == "the pod itself"
        follower = Follower(f"http://127.0.0.1:{pod.api_port}" if from_pod else str(tmp_path / "data"))
        await commit_round(pod, 0, 30, follower)
        pod.kill()
        reading = asyncio.create_task(asyncio.to_thread(follower.read))  # from the pod: waits until it is back
        await pod.start()
        await reading
        await commit_round(pod, 30, 60, follower)
        client = await pod.client()
        fetched = {(group, part): await client.fetch(group, partition=part) for group in GROUPS for part in range(3)}
        await client.close()
        if from_pod:
            await asyncio.to_thread(follower.read)
        assert pod.terminate() == 0
        if not from_pod:
            follower.read()
        assert len(find_segments([str(tmp_path / "data")])) > 3
    committed = sorted((row["group"], row["committed_offset"]) for row in follower.rows)
    assert committed == sorted((group, offset) for group in GROUPS for offset in range(60))
    last: dict[tuple[str, int], tuple[int, int]] = {}
    for row in sorted(follower.rows, key=lambda row: row["offset"]):
        last[row["group"], row["partition"]] = (row["committed_offset"], 0)
    assert last == fetched


def what_was_read(place: str, at: LogPosition) -> bytes | None:
    """The bytes in front of the position, as they are now; None: there is no such segment any more."""
    for each in find_segments([place]):
        if each.base_offset == at.segment:
            with suppress(SegmentReadError), open_segment(each.path) as source:  # it may go meanwhile
                return bytes(source.read(0, min(source.size, at.position)))
    return None


@pytest.mark.parametrize("place", ["its directory", "the pod itself"])
async def test_follower_goes_on_behind_what_the_cleaner_has_compacted(tmp_path: Path, place: str) -> None:
    config = ("offsets.topic.segment.bytes=2000", "log.cleaner.min.cleanable.ratio=0.1", "log.cleaner.backoff.ms=20")
    async with SoloPod(tmp_path / "data", partitions=1, config=config) as pod:
        from_pod = place == "the pod itself"
        follower = Follower(f"http://127.0.0.1:{pod.api_port}" if from_pod else str(tmp_path / "data"))
        await commit_round(pod, 0, 6, follower)
        client = await pod.client()
        offset = 6
        known: bytes | None = b""
        async with asyncio.timeout(60):
            while not known:  # until it stands inside a segment, not at the start of one
                offset = await commit_all(client, offset)
                await asyncio.to_thread(follower.read)
                [before] = follower.at.values()
                known = await asyncio.to_thread(what_was_read, follower.place, before)
            seen = len(follower.rows)
            while await asyncio.to_thread(what_was_read, follower.place, before) == known:  # until it is another one
                offset = await commit_all(client, offset)
        fetched = {(group, part): await client.fetch(group, partition=part) for group in GROUPS for part in range(3)}
        await client.close()
        if from_pod:
            await asyncio.to_thread(follower.read)
        assert pod.terminate() == 0
        if not from_pod:
            follower.read()
    offsets = [row["offset"] for row in follower.rows]
    assert offsets == sorted(set(offsets))
    assert len(follower.rows) > seen
    last = {(row["group"], row["partition"]): (row["committed_offset"], 0) for row in follower.rows}
    assert last == fetched
