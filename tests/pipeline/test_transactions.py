"""Logs of transactions through Spark: tables over several runs, the page, and the command line."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import DataFrame, SparkSession
from tests.conformance.producers import Producer
from tests.conformance.session import MUSTER, Server, Session
from tests.pipeline.hand_made import HandMadeLog
from tests.support.pod import SoloPod
from tests.unit.transactions.harness import Harness

from muster_cli.main import cli
from muster_coordinator.records.batch import encode_batch
from muster_coordinator.records.partitioner import partition_for
from muster_pipeline.tables.local import local_offsets, local_transactions
from muster_pipeline.tables.run import read_table, run_tables
from muster_pipeline.tables.store import Store
from muster_pipeline.tables.transforms import current_transactions

pytestmark = [pytest.mark.timeout(400), pytest.mark.usefixtures("few_rows")]
FIRST = f"{0:020d}.log"
BY_KAFKA = Path(__file__).parents[1] / "golden" / "segments" / "kafka-4.3.1-transactions.log"
Rows = list[dict[str, Any]]


class Log:
    """The log of a state machine, as a segment that grows."""

    def __init__(self, root: Path) -> None:
        self.harness = Harness()
        self.directory = root / "__transaction_state-3"
        self.directory.mkdir(parents=True)
        self._written = 0

    def write(self) -> None:
        new = self.harness.log[self._written :]
        with (self.directory / FIRST).open("ab") as file:
            for each in new:
                record = (each.key, each.value)
                file.write(
                    encode_batch([record], base_offset=each.offset, leader_epoch=0, timestamp_ms=each.timestamp_ms)
                )
        self._written += len(new)


def by_id(rows: Rows) -> Rows:
    return sorted(rows, key=lambda row: str(row["transactional_id"]))


def rows_of(frame: DataFrame) -> Rows:
    return by_id([row.asDict(recursive=True) for row in frame.collect()])


def test_tables_have_the_ids_of_the_state_machine_after_each_run_and_at_each_moment(
    spark: SparkSession, tmp_path: Path
) -> None:
    target, log = tmp_path / "tables", Log(tmp_path / "logs")
    source, store, harness = [str(tmp_path / "logs")], Store(target), log.harness
    first = harness.producer("a")
    harness.producer("never used")
    harness.add(first, 1, 3, transactional_id="a")
    log.write()
    moments = [harness.now_ms]
    for step in range(3):
        manifest = run_tables(spark, source, target)
        now = rows_of(read_table(spark, store, manifest, "current_transactions"))
        assert now == by_id(local_transactions(source).to_pylist()), "from tables, and straight from the logs"
        assert {row["transactional_id"]: row["transaction_state"] for row in now} == {
            name: value.status.name.title().replace("_", "")
            for name, (_, value) in harness.coordinator.durable_state().ids.items()
        }
        harness.advance(1000)
        if step == 0:
            assert harness.end(first, transactional_id="a")[0] == 0
            harness.finish()
        else:
            harness.advance(harness.config.id_expiration_ms + harness.config.expiry_interval_ms)
            assert harness.coordinator.durable_state().ids == {}
        moments.append(harness.now_ms)
        log.write()
    manifest = run_tables(spark, source, target)
    counted = {"producer_ids": 1, "transaction_state": 6, "transaction_tombstone": 2}
    assert manifest.kinds == counted | {"offset_commit": 0}
    assert sum(counted.values()) == len(harness.log)
    states = read_table(spark, store, manifest, "transaction_states")
    assert {len(local_transactions(source, at_ms)) for at_ms in moments} == {0, 2}
    for at_ms in moments:
        expected = by_id(local_transactions(source, at_ms).to_pylist())
        assert rows_of(current_transactions(states, at_ms)) == expected
        assert by_id(local_transactions([str(target)], at_ms).to_pylist()) == expected


def test_tables_of_an_older_version_get_transactions_with_the_next_run(spark: SparkSession, tmp_path: Path) -> None:
    log = HandMadeLog(0)
    log.commit(0, "g", 0, 1)
    log.write(tmp_path / "logs")
    target = tmp_path / "tables"
    store, manifest = Store(target), run_tables(spark, [str(tmp_path / "logs")], target)
    older = {name: places for name, places in manifest.tables.items() if "transaction" not in name}
    store.publish(type(manifest)(manifest.run, manifest.positions, older | {"transactions": []}, manifest.kinds))
    place = tmp_path / "logs" / "__transaction_state-0"
    place.mkdir()
    shutil.copyfile(BY_KAFKA, place / FIRST)
    manifest = run_tables(spark, [str(tmp_path / "logs")], target)
    assert read_table(spark, store, manifest, "current_transactions").count() == 7
    assert read_table(spark, store, manifest, "current_offsets").count() == 1


def test_page_and_command_name_transactions_that_are_open_beyond_their_time_out(
    muster: CliRunner, tmp_path: Path
) -> None:
    offsets = HandMadeLog(0)
    offsets.commit(0, "g", 0, 1)
    offsets.write(tmp_path / "logs")
    log = Log(tmp_path / "logs")
    for name, timeout_ms in (("short", 10_000), ("long", 900_000)):
        log.harness.add(log.harness.producer(name, timeout_ms), 1, 3, transactional_id=name)
    ended = log.harness.producer("ended", 900_000)
    log.harness.add(ended, 2, transactional_id="ended")
    log.harness.end(ended, transactional_id="ended")
    log.write()
    place = tmp_path / "logs" / "__transaction_state-0"
    place.mkdir()
    shutil.copyfile(BY_KAFKA, place / FIRST)  # as of years later: none of it is there at the moment that is asked for
    tables, page = tmp_path / "tables", tmp_path / "page.html"
    made = muster.invoke(cli, ["pipeline", "tables", str(tmp_path / "logs"), "--output", str(tables)])
    assert made.exit_code == 0, made.output
    moment = ["--at", "2023-11-14T22:15:20"]  # two minutes after START_MS
    written = muster.invoke(cli, ["report", str(tables), *moment, "--output", str(page)])
    assert written.exit_code == 0, written.output
    html = " ".join(page.read_text().split())
    for text in (
        "1 transaction open beyond the time-out",
        "1 transaction ended 1min ago or more, and markers are missing",
        "2 Ongoing, 1 PrepareCommit.",
        "__consumer_offsets-1, __consumer_offsets-3",
    ):
        assert text in html, text
    for source in (str(tables), str(tmp_path / "logs")):
        told = muster.invoke(cli, ["pipeline", "transactions", source, *moment, "--open", "--json"])
        assert told.exit_code == 0, told.output
        rows = [json.loads(line) for line in told.output.splitlines()]
        assert [(row["transactional_id"], row["age_ms"], row["overdue"]) for row in rows] == [
            ("ended", 120_000, False),
            ("long", 120_000, False),
            ("short", 120_000, True),
        ]
    shown = muster.invoke(cli, ["pipeline", "transactions", str(tables)]).output
    assert "committed-2" in shown


async def test_pod_serves_its_transactions_too(tmp_path: Path) -> None:
    async with SoloPod(tmp_path / "data", 2, transaction_partitions=2) as pod:
        session = Session(Server(MUSTER, pod.kafka_port, 0), "g")
        open_one, ended = Producer(session, "open"), Producer(session, "ended")
        for each in (open_one, ended):
            await each.init()
            await each.commit_offset(5)
        await ended.end(True, 5)
        await session.close()
        address = [f"http://127.0.0.1:{pod.api_port}"]
        found = await asyncio.to_thread(local_transactions, address)
        offsets = await asyncio.to_thread(local_offsets, address)
        assert pod.terminate() == 0
    rows = {row["transactional_id"]: row for row in found.to_pylist()}
    assert {name: row["transaction_state"] for name, row in rows.items()} == {
        "open": "Ongoing",
        "ended": "CompleteCommit",
    }
    assert rows["open"]["transaction_partitions"] == [
        {"topic": "__consumer_offsets", "partition": partition_for("g", 2)}
    ]
    assert {name: (row["producer_id"], row["producer_epoch"]) for name, row in rows.items()} == {
        each.name: each.identity for each in (open_one, ended)
    }
    assert [row["committed_offset"] for row in offsets.to_pylist()] == [5]
    assert by_id(local_transactions([str(tmp_path / "data")]).to_pylist()) == by_id(found.to_pylist())
