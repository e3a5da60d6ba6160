"""A pod that archives, compacts and takes checkpoints under commits, killed in between: nothing acknowledged is lost,
and Kafka's own tool reads what is left."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.integration.test_crash_recovery import commit_until_cut_off
from tests.support.kafka_broker import run_tool, why_no_kafka_yet
from tests.support.pod import SoloPod

pytestmark = pytest.mark.integration

GROUPS = 8
ROUNDS = 2
DUMPED_AT_ONCE = 500
"""Segments: their names are one argument, of at most 128 KiB."""
EVENTS = ('"segment_archived"', '"log_cleaned"', '"checkpoint_taken"')


@pytest.mark.timeout(300)
async def test_pod_killed_between_compactions_loses_nothing_and_kafka_reads_its_segments(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    config = (
        "offsets.topic.segment.bytes=20000",
        "log.cleaner.min.cleanable.ratio=0.1",
        "log.cleaner.backoff.ms=20",
        "muster.checkpoint.interval.bytes=65536",
        f"muster.archive.dir={archive}",
    )
    acknowledged: dict[str, int] = {}
    async with SoloPod(tmp_path / "data", config=config) as pod:
        for round_ in range(ROUNDS):
            seen = len(pod.log()) if round_ else 0
            writers = [
                asyncio.create_task(commit_until_cut_off(pod, f"group-{i}", acknowledged, 1_000_000 * round_))
                for i in range(GROUPS)
            ]
            async with asyncio.timeout(90):
                while not all(event in pod.log()[seen:] for event in EVENTS):
                    await asyncio.sleep(0.05)
            pod.kill()
            await asyncio.gather(*writers)
            await pod.start()
            client = await pod.client()
            for group, offset in acknowledged.items():
                found, error = await client.fetch(group)
                assert error == 0
                assert found in (offset, offset + 1), f"{group}: acknowledged {offset}, found {found}"
            await client.close()
        assert pod.terminate() == 0
    assert "checkpoint_ignored" not in pod.log()
    assert "log_not_cleaned" not in pod.log()
    segments = sorted((tmp_path / "data" / "__consumer_offsets-0").glob("*.log"))
    archived = sorted(archive.rglob("*.log"))
    assert archived
    if not why_no_kafka_yet():
        await _dump(segments)
        await _dump(archived[:3])


async def _dump(files: list[Path]) -> None:
    for start in range(0, len(files), DUMPED_AT_ONCE):
        part = files[start : start + DUMPED_AT_ONCE]
        code, output = await run_tool(
            "org.apache.kafka.tools.DumpLogSegments",
            "--offsets-decoder",
            "--deep-iteration",
            "--files",
            ",".join(map(str, part)),
        )
        assert code == 0, output[-2000:]
        assert "isvalid: false" not in output
        for complaint in ("Found", "Exception", "mismatch", "could not", "ERROR"):
            assert complaint not in output, output[-2000:]
        assert output.count("Dumping ") == len(part)
        assert '"group":"group-' in output
