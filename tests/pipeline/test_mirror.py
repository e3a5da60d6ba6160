"""The pipeline on the logs of a mirror: what Kafka had committed at any moment, from what Muster wrote."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.integration.test_mirror import KAFKA, TOPICS, assert_mirrored, mirroring, transact
from tests.support.kafka import KafkaClient
from tests.support.kafka_broker import KafkaBroker, why_no_kafka_yet

from muster_cli.main import cli
from muster_pipeline.tables.local import local_offsets

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(bool(why_no_kafka_yet()), reason=why_no_kafka_yet()),
    pytest.mark.timeout(300),
]

GROUPS = [f"group-{number}" for number in range(6)]
COMMITS = 60

Offsets = dict[str, int]
"""Of t-0, by group."""


async def _now_ms() -> int:
    """A moment in which nothing was committed."""
    await asyncio.sleep(0.003)
    now_ms = int(time.time() * 1000)
    await asyncio.sleep(0.003)
    return now_ms


async def write(broker: KafkaBroker, ledger: list[tuple[int, Offsets]]) -> None:
    """Commits of groups, some in transactions, of which some are aborted. `ledger`: what counts at a moment."""
    client = await KafkaClient.connect(broker.port)
    known: Offsets = ledger[-1][1] if ledger else {}
    for number in range(COMMITS):
        group = GROUPS[number % len(GROUPS)]
        if number % 20 == 7:
            commit = number % 40 == 7
            await asyncio.to_thread(lambda g=group, n=number, c=commit: transact(broker.port, g, n, commit=c))
            while commit and await client.fetch(group) != (number, 0):
                await asyncio.sleep(0.01)  # until the marker is written, which counts
            known = known | ({group: number} if commit else {})
        else:
            assert await client.commit(group, number) == 0
            known = known | {group: number}
        ledger.append((await _now_ms(), known))
    await client.close()


def offsets_at(source: str, at_ms: int | None) -> Offsets:
    return {row["group"]: row["committed_offset"] for row in local_offsets((source,), at_ms, ()).to_pylist()}


async def test_offsets_at_every_moment_are_those_of_kafka(tmp_path: Path, muster: CliRunner) -> None:
    """The mirror begins when half is written already, so times are Kafka's and not those of the mirror."""
    ledger: list[tuple[int, Offsets]] = []
    async with KafkaBroker(tmp_path / "upstream", KAFKA, TOPICS) as broker:
        await write(broker, ledger)
        async with mirroring(tmp_path, broker) as pod:
            await assert_mirrored(broker, pod)
            await write(broker, ledger)
            await assert_mirrored(broker, pod)
            pod.terminate()
    source = str(tmp_path / "data")
    wrong = [
        (at_ms, expected, found)
        for at_ms, expected in ledger
        if (found := await asyncio.to_thread(offsets_at, source, at_ms)) != expected
    ]
    assert wrong == []
    assert offsets_at(source, None) == ledger[-1][1]
    commands(muster, source, str(tmp_path / "tables"), ledger)


def commands(muster: CliRunner, source: str, tables: str, ledger: list[tuple[int, Offsets]]) -> None:
    """As a person asks, without a word about the mirror."""

    def output(*arguments: str) -> str:
        done = muster.invoke(cli, ["pipeline", *arguments])
        assert done.exit_code == 0, done.output
        return done.stdout

    def rows(*arguments: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in output(*arguments, "--json").splitlines()]

    shown = rows("offsets", source, "--at", "2099-01-01")
    assert {row["group"]: row["committed_offset"] for row in shown} == ledger[-1][1]
    assert rows("offsets", source, "--at", "2001-01-01") == []
    output("tables", source, "--output", tables, "--fail-fast")
    assert {row["group"]: row["committed_offset"] for row in rows("offsets", tables)} == ledger[-1][1]
    assert rows("quality", tables) == []
    page = Path(tables) / "report.html"
    output("report", tables, "--output", str(page))
    assert all(group in page.read_text() for group in GROUPS)
