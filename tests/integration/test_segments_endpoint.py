"""GET /v1/segments of a running pod: every committed batch, those that only the journal has included, and no other."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.support.pod import SoloPod

from muster_coordinator.records.batch import iter_batches
from muster_coordinator.records.decode import decode_record
from muster_coordinator.records.structs import OffsetCommitRecord

pytestmark = pytest.mark.integration

PARTITIONS = 3
GROUPS = [f"group-{number}" for number in range(6)]
RARELY = ("muster.segment.flush.interval.ms=60000",)


async def listing(session: aiohttp.ClientSession) -> list[dict[str, Any]]:
    async with session.get("/v1/segments") as answer:
        assert answer.status == 200
        found: list[dict[str, Any]] = (await answer.json())["partitions"]
        return found


async def read(session: aiohttp.ClientSession, path: str, start: int, end: int) -> bytes:
    async with session.get(path, headers={"Range": f"bytes={start}-{end - 1}"}) as answer:
        assert answer.status == 206, await answer.text()
        assert answer.headers["Content-Range"].startswith(f"bytes {start}-")
        return await answer.read()


async def test_all_that_is_committed_is_served_before_the_segment_files_have_it(tmp_path: Path) -> None:
    async with SoloPod(tmp_path / "data", PARTITIONS, config=RARELY) as pod:
        client = await pod.client()
        for offset in range(20):
            for group in GROUPS:
                assert await client.commit(group, offset) == 0
        await client.close()
        assert sum(pod.segment(number).stat().st_size for number in range(PARTITIONS)) < 5000
        committed = []
        async with aiohttp.ClientSession(f"http://127.0.0.1:{pod.api_port}") as session:
            for partition in await listing(session):
                data = b""
                for segment in partition["segments"]:
                    path = f"/v1/segments/{partition['partition']}/{segment['baseOffset']}"
                    part = b""
                    while len(part) < segment["size"]:  # odd ranges: some across the end of the file
                        part += await read(session, path, len(part), min(len(part) + 777, segment["size"]))
                    assert part == await read(session, path, 0, segment["size"])
                    async with session.get(path, headers={"Range": f"bytes={segment['size']}-"}) as answer:
                        assert answer.status == 416
                    data += part
                found = list(iter_batches(data))
                assert found[-1].end_offset == partition["commitPoint"]
                assert [start for _, start in partition["epochs"]] == [0]
                for record in (record for batch in found if not batch.is_control for record in batch.records()):
                    change = decode_record(record.key, record.value)
                    if isinstance(change, OffsetCommitRecord) and change.value is not None:
                        committed.append((change.group_id, change.value.offset))
            for path in ("/v1/segments/99/0", "/v1/segments/0/7"):
                async with session.get(path) as answer:
                    assert answer.status == 404
    assert sorted(committed) == sorted((group, offset) for group in GROUPS for offset in range(20))


async def test_partitions_whose_commits_are_not_known_yet_are_named(tmp_path: Path) -> None:
    """A pod that came back does not know what is committed before a leader says so: that is not nothing."""
    async with SoloPod(tmp_path / "data", PARTITIONS) as pod:
        client = await pod.client()
        assert await client.commit("group-0", 1) == 0
        await client.close()
        pod.kill()
        await pod.start(elect=False)
        async with aiohttp.ClientSession(f"http://127.0.0.1:{pod.api_port}") as session:
            async with session.get("/v1/segments") as answer:
                assert await answer.json() == {"partitions": [], "unserved": list(range(PARTITIONS))}
            await pod.elect_all()
            async with asyncio.timeout(30):
                while len(await listing(session)) < PARTITIONS:
                    await asyncio.sleep(0.01)
            async with session.get("/v1/segments") as answer:
                assert (await answer.json())["unserved"] == []
