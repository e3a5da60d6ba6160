"""Our own tools on a cluster with TLS: they have the certificates that they need, and not more."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

pytest.importorskip("cryptography")

from tests.support.kafka import KafkaClient
from tests.support.local_cluster import LocalCluster, muster

from muster_cli.local.tls import CLUSTER_NAME
from muster_pipeline.decode.errors import SegmentReadError
from muster_pipeline.source import http_ranges

pytestmark = pytest.mark.integration

GROUPS = [f"group-{n}" for n in range(12)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """With one commit of each of GROUPS."""
    data = tmp_path_factory.mktemp("cluster")
    with LocalCluster(data, "--tls", "--partitions", "4", "--any-topic", "--transaction-partitions", "0") as cluster:
        bootstrap = cluster.wait_ready()
        asyncio.run(commit(bootstrap))
        yield cluster


async def commit(bootstrap: str) -> None:
    clients = [await KafkaClient.connect(int(each.rpartition(":")[2])) for each in bootstrap.split(",")]
    for number, group in enumerate(GROUPS):
        assert 0 in [await client.commit(group, number + 1) for client in clients]
    for client in clients:
        await client.close()


async def fetched(bootstrap: str) -> dict[str, int]:
    clients = [await KafkaClient.connect(int(each.rpartition(":")[2])) for each in bootstrap.split(",")]
    found = {}
    for group in GROUPS:
        answers = [await client.fetch(group) for client in clients]
        found[group] = max((offset for offset, code in answers if code == 0), default=-1)
    for client in clients:
        await client.close()
    return found


def test_status_asks_the_pods(cluster: LocalCluster) -> None:
    assert all(len(each["followers"]) == 2 for each in cluster.status()["partitions"])


def test_pipeline_reads_by_a_readers_certificate(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    pods = json.loads((cluster.data / "run.json").read_text())["pods"]
    url = f"https://{pods[0]['apiAddress']}/v1/segments"
    monkeypatch.setattr(http_ranges, "UNREACHABLE_FOR_S", 0.0)
    with pytest.raises(SegmentReadError):
        http_ranges.get(url, "", 1 << 20)
    monkeypatch.setenv("MUSTER_TLS_DIR", str(cluster.data / "tls" / "reader"))
    monkeypatch.setenv("MUSTER_CLUSTER", "local/other")
    with pytest.raises(SegmentReadError, match="is not of cluster local/other"):
        http_ranges.get(url, "", 1 << 20)
    monkeypatch.setenv("MUSTER_CLUSTER", CLUSTER_NAME)
    _, listed = http_ranges.get(url, "", 1 << 20)
    assert json.loads(listed)["partitions"]
    monkeypatch.setenv("MUSTER_TLS_DIR", str(cluster.data / "tls" / "nobody"))
    with pytest.raises(SegmentReadError, match=r"nobody/tls\.crt"):
        http_ranges.get(url, "", 1 << 20)


def test_reshard_copies_with_the_operators_certificate(cluster: LocalCluster) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "muster_cli", "reshard", "--data-dir", str(cluster.data), "--partitions", "7"],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    record = json.loads((cluster.data / "run.json").read_text())
    bootstrap = ",".join(pod["kafkaAddress"] for pod in record["pods"])
    assert asyncio.run(fetched(bootstrap)) == {group: number + 1 for number, group in enumerate(GROUPS)}
    assert muster("local", "status", "--data-dir", str(cluster.data)).returncode == 0
