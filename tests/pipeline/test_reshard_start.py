"""Re-sharded logs in use: Muster starts on them and answers every group's offsets; Kafka's own tool reads them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.support.kafka import KafkaClient
from tests.support.kafka_broker import run_tool, why_no_kafka_yet
from tests.support.local_cluster import LocalCluster
from tests.support.local_cluster import muster as run_muster
from tests.support.pod import SoloPod

from muster_cli.main import cli
from muster_coordinator.records.partitioner import partition_for
from muster_pipeline.source.files import find_segments

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

GROUPS = [f"group-{number}" for number in range(20)] + ["gruppe-ä😀"]
ONE_POD = ("--pods", "1", "--any-topic")


def muster(*arguments: str) -> None:
    done = run_muster(*arguments)
    assert done.returncode == 0, done.stderr


async def offsets(bootstrap: str) -> dict[tuple[str, int], tuple[int, int]]:
    client = await KafkaClient.connect(int(bootstrap.rpartition(":")[2]))
    try:
        return {(group, number): await client.fetch(group, partition=number) for group in GROUPS for number in range(3)}
    finally:
        await client.close()


async def commit_rounds(bootstrap: str, first: int, last: int) -> None:
    client = await KafkaClient.connect(int(bootstrap.rpartition(":")[2]))
    for offset in range(first, last):
        for group in GROUPS:
            assert await client.commit(group, offset, partition=offset % 3) == 0
    await client.close()


async def test_muster_starts_on_resharded_logs_and_every_group_has_its_offsets(tmp_path: Path) -> None:
    with LocalCluster(tmp_path / "old", *ONE_POD, "--partitions", "6") as cluster:
        bootstrap = cluster.wait_ready()
        await commit_rounds(bootstrap, 0, 12)
        expected = await offsets(bootstrap)
        assert cluster.stop() == 0
    source = str(tmp_path / "old" / "pods" / "muster-0")
    for number, partitions in enumerate((2, 9)):
        output, data = tmp_path / f"logs-{number}", tmp_path / f"data-{number}"
        muster("reshard", source, "--partitions", str(partitions), "--output", str(output))
        muster("local", "adopt", str(output), "--data-dir", str(data))
        with LocalCluster(data, "--any-topic") as cluster:
            bootstrap = cluster.wait_ready()
            assert len(cluster.status()["partitions"]) == partitions
            assert await offsets(bootstrap) == expected
            await commit_rounds(bootstrap, 100 * number + 100, 100 * number + 103)
            expected = await offsets(bootstrap)
            assert {offset for offset, _ in expected.values()} == set(range(100 * number + 100, 100 * number + 103))
            assert cluster.stop() == 0
        with LocalCluster(data, "--any-topic") as cluster:  # and once more, now that it has a life of its own
            assert await offsets(cluster.wait_ready()) == expected
            assert cluster.stop() == 0
        source = str(data / "pods" / "muster-0")


async def test_logs_of_a_killed_pod_are_refused_while_only_its_journal_has_their_end(tmp_path: Path) -> None:
    config = ("muster.segment.flush.interval.ms=60000",)
    arguments = ["reshard", str(tmp_path / "pod"), "--partitions", "2", "--dry-run"]
    local = ["--engine", "local", "--json"]
    async with SoloPod(tmp_path / "pod", config=config) as pod:
        client = await pod.client()
        for offset in range(10):
            assert await client.commit("group", offset) == 0
        await client.close()
        pod.kill()
        result = CliRunner().invoke(cli, arguments)
        assert result.exit_code == 1
        assert "records are in the pod's journal only" in result.output
        problems = CliRunner().invoke(cli, ["pipeline", "quality", str(tmp_path / "pod"), *local]).output.splitlines()
        [told] = [row for row in map(json.loads, problems) if row["problem"] == "journal_only"]
        assert re.match(r"1\d records in \d+ batches from offset 0 on are in the pod's journal", told["problem_detail"])
        assert (told["offsets_partition"], told["position"], told["offset"]) == (0, 0, 0)
        assert told["problem_bytes"] > 10 * 61
        await pod.start()
        assert pod.terminate() == 0
    result = CliRunner().invoke(cli, arguments)
    assert (result.exit_code, "1 groups, 10 records" in result.output) == (0, True), result.output
    assert CliRunner().invoke(cli, ["pipeline", "quality", str(tmp_path / "pod"), *local]).output == ""


def test_adopt_refuses_what_it_must_not_touch_or_complete(tmp_path: Path) -> None:
    from tests.unit.pipeline.logs import commits_segment

    for number in (0, 2):
        directory = tmp_path / "logs" / f"__consumer_offsets-{number}"
        directory.mkdir(parents=True)
        (directory / f"{0:020d}.log").write_bytes(commits_segment(5, 1))
    arguments = ["local", "adopt", str(tmp_path / "logs"), "--data-dir"]
    result = CliRunner().invoke(cli, [*arguments, str(tmp_path / "data")])
    assert (result.exit_code, "no log of offsets partition 1" in result.output) == (1, True)
    result = CliRunner().invoke(cli, [*arguments, str(tmp_path)])
    assert (result.exit_code, "exists already" in result.output) == (1, True)
    directory = tmp_path / "logs" / "__consumer_offsets-1"
    directory.mkdir()
    good = commits_segment(5, 1)
    (directory / f"{0:020d}.log").write_bytes(good[:80] + b"\xff" + good[81:])
    result = CliRunner().invoke(cli, [*arguments, str(tmp_path / "data")])
    assert (result.exit_code, "cannot adopt a damaged log" in result.output) == (1, True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["logs"]


@pytest.mark.skipif(bool(why_no_kafka_yet()), reason=why_no_kafka_yet())
async def test_kafkas_tool_reads_resharded_logs(tmp_path: Path) -> None:
    from tests.unit.pipeline.logs import commits_segment

    directory = tmp_path / "old" / "__consumer_offsets-0"
    directory.mkdir(parents=True)
    (directory / f"{0:020d}.log").write_bytes(commits_segment(900, 7, groups=9))
    muster("reshard", str(tmp_path / "old"), "--partitions", "4", "--output", str(tmp_path / "new"))
    seen = set()
    for segment in find_segments([str(tmp_path / "new")]):
        if not Path(segment.path).stat().st_size:
            continue
        code, output = await run_tool(
            *(
                "org.apache.kafka.tools.DumpLogSegments",
                "--offsets-decoder",
                "--deep-iteration",
                "--files",
                segment.path,
            )
        )
        assert code == 0, output
        assert "isvalid: false" not in output
        groups = {name for name in (f"group-{number}" for number in range(9)) if f'"group":"{name}"' in output}
        assert {partition_for(group, 4) for group in groups} == {segment.offsets_partition}
        seen |= groups
    assert len(seen) == 9
