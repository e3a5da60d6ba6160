"""Traces of real processes at a collector: a failover that operator and pods tell together, and a request that is slow
because followers hang."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.collector import Collector, Seen
from tests.support.local_cluster import LocalCluster, wait_until

from muster_cli.demo.meter import Meter

pytestmark = pytest.mark.integration

SLOW_MS = 300
FROZEN_S = 2 * SLOW_MS / 1000
GROUP = "billing"


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as collector:
        yield collector


@pytest.fixture
def cluster(tmp_path: Path, collector: Collector) -> Iterator[LocalCluster]:
    """One partition with three replicas."""
    settings = (f"muster.tracing.endpoint={collector.endpoint}", f"muster.slow.request.ms={SLOW_MS}")
    options = [part for each in settings for part in ("--config", each)]
    shape = ("--pods", "3", "--partitions", "1", "--replication-factor", "3", "--transaction-partitions", "0")
    with LocalCluster(tmp_path / "data", *shape, "--topic", "orders:1", *options) as cluster:
        yield cluster


def leader_of(cluster: LocalCluster) -> str:
    (line,) = cluster.status()["partitions"]
    return str(line["leader"])


def lines(cluster: LocalCluster, pod: str, event: str) -> list[dict[str, Any]]:
    """What a pod's log says."""
    text = (cluster.data / "logs" / f"{pod}.log").read_text()
    found = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    return [each for each in found if each["event"] == event]


def test_failover_is_one_trace_of_operator_and_pod(cluster: LocalCluster, collector: Collector) -> None:
    meter = Meter(cluster.wait_ready(), GROUP, "orders")
    meter.start()
    wait_until(lambda: meter.count > 20, "a client commits")
    first = leader_of(cluster)
    pids = {pod["name"]: pod["pid"] for pod in cluster.status()["pods"]}
    os.kill(pids[first], signal.SIGKILL)

    def failovers() -> list[Seen]:
        lost = {each.trace for each in collector.spans("noticed")}
        return [
            each for each in collector.spans("election") if each.trace in lost and each.attributes["outcome"] == "led"
        ]

    wait_until(lambda: bool(failovers()), "a failover is traced")
    (whole, *_) = failovers()

    def pod_side() -> list[Seen]:
        return [each for each in collector.spans("onElection") if each.trace == whole.trace]

    wait_until(lambda: bool(pod_side()), "the pod tells of the same trace")
    meter.stop()
    assert meter.error is None
    (on_election, *_) = pod_side()
    by_id = {each.id: each for each in collector.spans() if each.trace == whole.trace}
    call = by_id[on_election.parent]
    assert (call.name, call.service, call.parent) == ("call", "muster-operator", whole.id)
    assert (on_election.service, on_election.attributes["outcome"]) == ("muster-coordinator", "ACTIVE")
    assert on_election.instance.rpartition("/")[2] == call.attributes["pod"] != first
    phases = {each.name: each for each in by_id.values() if each.parent == whole.id}
    assert {"noticed", "decided", "recorded", "called", "call", "led"} == phases.keys()
    order = [phases[name] for name in ("noticed", "decided", "recorded", "called", "led")]
    assert [each.start_s for each in order] == pytest.approx(
        [whole.start_s, *(each.end_s for each in order[:-1])], abs=0.01
    )
    told = [json.loads(line) for line in (cluster.data / "logs" / "operator.log").read_text().splitlines()]
    assert whole.trace in [each["trace"] for each in told if each["event"] == "election_traced"]


def test_request_that_waits_for_frozen_followers_is_found_in_log_and_trace(
    cluster: LocalCluster, collector: Collector
) -> None:
    """On a machine that stalls a leader may resign meanwhile: then followers are frozen once more."""
    meter = Meter(cluster.wait_ready(), GROUP, "orders")
    meter.start()
    told: list[dict[str, Any]] = []

    def is_told() -> bool:
        before = meter.count
        wait_until(lambda: meter.count > before + 20, "a client commits")
        leader = leader_of(cluster)
        freeze([pod["pid"] for pod in cluster.status()["pods"] if pod["name"] != leader])
        told[:] = [each for each in lines(cluster, leader, "slow_request") if len(each.get("followers", ())) == 2]
        return bool(told)

    wait_until(is_told, "the request is told")
    meter.stop()
    line = told[0]
    assert (line["api"], line["group"], line["partition"]) == ("OffsetCommit", GROUP, 0)
    assert line["ms"] >= SLOW_MS
    assert line["connection"].startswith("127.0.0.1:")
    assert line["correlation_id"] >= 0
    ends = {each.rpartition("=")[0]: int(each.rpartition("=")[2]) for each in line["followers"]}
    assert ends.keys() <= {"muster-0", "muster-1", "muster-2"}
    assert max(ends.values()) >= line["commit_point"], "a majority has it"
    wait_until(lambda: any(each.trace == line["trace"] for each in collector.spans("request")), "its span is there")
    (span,) = [each for each in collector.spans("request") if each.trace == line["trace"]]
    assert (span.end_s - span.start_s) * 1000 == pytest.approx(line["ms"], abs=1)
    assert span.attributes["correlation_id"] == line["correlation_id"]


def freeze(pids: list[int]) -> None:
    """Stop the processes for FROZEN_S."""
    try:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        threading.Event().wait(FROZEN_S)
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
