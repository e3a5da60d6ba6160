"""`muster pipeline` on a Kafka broker's segments, as a person runs it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession
from tests.unit.pipeline.logs import commit

from muster_cli.main import cli
from muster_coordinator.records.batch import encode_batch

GOLDEN = Path(__file__).parents[1] / "golden" / "segments"
pytestmark = pytest.mark.timeout(300)


def muster(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "muster_cli", "pipeline", *arguments], capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Path:
    root = tmp_path_factory.mktemp("cli")
    for partition in range(2):
        directory = root / "logs" / f"__consumer_offsets-{partition}"
        directory.mkdir(parents=True)
        (directory / f"{0:020d}.log").write_bytes((GOLDEN / f"kafka-4.1.0-gzip-{partition}.log").read_bytes())
    directory = root / "logs" / "__consumer_offsets-2"
    directory.mkdir()
    hostile = encode_batch([commit("[red]\x1b[2J", "t", 0, 1)], base_offset=0, leader_epoch=0, timestamp_ms=0)
    (directory / f"{0:020d}.log").write_bytes(hostile + bytes(30))
    done = muster("tables", str(root / "logs"), "--output", str(root / "tables"))
    assert done.returncode == 0, done.stderr
    assert "offset_commit" in done.stdout
    assert "1 problems" in done.stdout
    assert re.search(r"^ +[1-9]\d*  consumer_group$", done.stdout, re.MULTILINE)
    return root / "tables"


@pytest.fixture
def running_spark(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands use the session that the tests have: each would start a JVM otherwise."""
    for module in ("command", "queries"):
        monkeypatch.setattr(f"muster_cli.pipeline.{module}.spark", lambda _: nullcontext(spark))


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["pipeline", *map(str, arguments)])


def output(*arguments: str | Path) -> str:
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_offsets_are_those_that_the_broker_would_answer(tables: Path) -> None:
    rows = [json.loads(line) for line in output("offsets", tables, "--json").splitlines()]
    found = {(row["group"], row["partition"]): row["committed_offset"] for row in rows if row["topic"] == "bench"}
    # the second of the three transactions was aborted, "audit" was deleted
    assert found == {
        **{("payments", partition): 20 for partition in range(4)},
        **{("billing-ü", partition): 20 for partition in range(4)},
        **{("streams-app", partition): 500 + partition for partition in range(3)},
        ("modern", 1): 77,
    }


def test_offsets_of_a_moment_are_exact_to_the_millisecond(tmp_path: Path) -> None:
    directory = tmp_path / "__consumer_offsets-0"
    directory.mkdir()
    batches = [
        encode_batch([commit("g", "t", 0, n)], base_offset=n, leader_epoch=0, timestamp_ms=1_700_000_000_000 + n)
        for n in range(1000)
    ]
    (directory / f"{0:020d}.log").write_bytes(b"".join(batches))
    for millisecond in (1, 57, 999):
        moment = f"2023-11-14T22:13:20.{millisecond:03d}"
        (row,) = output("offsets", directory, "--engine", "local", "--at", moment, "--json").splitlines()
        assert json.loads(row)["committed_offset"] == millisecond


def test_rebalances_of_one_group_are_shown_in_order(tables: Path) -> None:
    lines = output("rebalances", tables, "--group", "payments").splitlines()
    assert [line.split()[2] for line in lines[1:]] == ["0", "1", "2", "3"]
    assert all(line.startswith("payments") for line in lines[1:])


def test_quality_names_file_byte_and_reason(tables: Path) -> None:
    [row] = [json.loads(line) for line in output("quality", tables, "--json").splitlines()]
    assert (row["problem"], row["problem_bytes"]) == ("zero_tail", 30)
    assert "__consumer_offsets-2" in row["file"]


def test_names_chosen_by_a_client_reach_no_terminal_unescaped(tables: Path) -> None:
    shown = output("offsets", tables, "--group", "[red]\x1b[2J")
    assert "\x1b" not in shown
    assert r"[red]\x1b[2J" in shown


@pytest.mark.usefixtures("running_spark")
def test_past_offsets_before_the_first_record_are_none(tables: Path) -> None:
    shown = output("offsets", tables, "--at", "2020-01-01", "--json")
    assert [json.loads(line)["topic"] for line in shown.splitlines()] == ["t"]  # written in 1970


@pytest.mark.usefixtures("running_spark")
def test_errors_are_one_line_and_exit_code_1(tables: Path, tmp_path: Path) -> None:
    result = run("rebalances", tmp_path)
    assert (result.exit_code, result.output) == (
        1,
        f"Error: {tmp_path} holds no tables: `muster pipeline tables` makes them\n",
    )
    result = run("offsets", tmp_path)
    told = f"Error: no segments of __consumer_offsets under {tmp_path}\n"
    assert (result.exit_code, result.output) == (1, told)
    result = run("tables", tables.parent / "logs", "--output", tmp_path / "t", "--fail-fast")
    assert result.exit_code == 0, result.output  # a tail may be a write under way
    log = tmp_path / "__consumer_offsets-0" / f"{0:020d}.log"
    log.parent.mkdir()
    batch = encode_batch([commit("g", "t", 0, 1)], base_offset=0, leader_epoch=0, timestamp_ms=0)
    log.write_bytes(batch[:-1] + b"\xff" + batch)
    result = run("tables", log, "--output", tmp_path / "u", "--fail-fast")
    assert result.exit_code == 1
    assert result.output.splitlines()[-1].startswith(f"Error: {log}, byte 0: bad_crc: CRC-32C does not match")


def test_interrupted_run_says_what_it_left_and_ends_with_130(tables: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "muster_cli", "pipeline", "tables", str(tables.parent / "logs")]
    with subprocess.Popen(
        [*command, "--output", str(tmp_path / "t")], stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as child:
        assert child.stderr is not None
        lines = []
        for line in child.stderr:
            lines.append(line)
            if line.startswith("[1/3]"):
                os.killpg(child.pid, signal.SIGINT)  # a terminal sends it to Spark and its workers as well
    assert child.returncode == 130, lines
    assert lines[-1] == "Interrupted. The tables are as before.\n"
    assert not any("Traceback" in line for line in lines)
    assert not (tmp_path / "t" / "manifest.json").exists()
