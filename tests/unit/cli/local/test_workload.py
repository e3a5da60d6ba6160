from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from muster_cli.local.data_dir import DataDir, RunningPod
from muster_cli.local.workload import LocalWorkload, PodPorts, coordinator_command
from muster_operator.api.models import CoordinatorCluster, CoordinatorClusterSpec, ObjectMeta
from muster_operator.store.port import ClusterKey
from muster_operator.store.workload import PodPhase

KEY = ClusterKey("local", "muster")


def fake_pod(pod: RunningPod, uid: str, data: DataDir, settings: Mapping[str, str]) -> list[str]:
    return [
        sys.executable,
        "-c",
        "import signal, sys; print(*sys.argv[1:], flush=True); signal.pause()",
        uid,
        *settings.values(),
    ]


def first_line(log: Path) -> str:
    while not log.exists() or "\n" not in log.read_text():
        time.sleep(0.01)
    return log.read_text().splitlines()[0]


def cluster(pods: int) -> CoordinatorCluster:
    spec = CoordinatorClusterSpec(pods=pods, settings={"group.max.size": "5"})
    return CoordinatorCluster(metadata=ObjectMeta(name="muster", namespace="local"), spec=spec)


def workload_in(root: Path, changed: asyncio.Event, pods: int) -> LocalWorkload:
    data = DataDir(root)
    data.create()
    ports = [PodPorts(kafka=10_000 + each, api=11_000 + each, peer=12_000 + each) for each in range(pods)]
    return LocalWorkload(KEY, data, ports, changed=changed.set, report=print, command=fake_pod)


async def test_declared_pods_are_started_once_and_found_by_their_cluster_only(tmp_path: Path) -> None:
    changed = asyncio.Event()
    workload = workload_in(tmp_path, changed, pods=2)
    notified: list[ClusterKey] = []
    workload.watch(notified.append)
    assert await workload.ensure_pods(cluster(2)) == "started 2 pods"
    assert await workload.ensure_pods(cluster(2)) == "2 pods are supervised"
    while not all(pod.process for pod in workload.running()):
        changed.clear()
        await changed.wait()
    pods = await workload.pods(KEY)
    assert [(pod.name, pod.node_id, pod.kafka_address, pod.api_address, pod.phase) for pod in pods] == [
        ("muster-0", 0, "127.0.0.1:10000", "127.0.0.1:11000", PodPhase.RUNNING),
        ("muster-1", 1, "127.0.0.1:10001", "127.0.0.1:11001", PodPhase.RUNNING),
    ]
    assert workload.bootstrap(cluster(2), pods) == "127.0.0.1:10000,127.0.0.1:10001"
    assert await workload.pods(ClusterKey("local", "other")) == ()
    assert set(notified) == {KEY}
    assert await workload.stop() == []
    assert [pod.phase for pod in await workload.pods(KEY)] == [PodPhase.PENDING, PodPhase.PENDING]


async def test_uid_of_the_pod_and_its_settings_reach_the_process(tmp_path: Path) -> None:
    workload = workload_in(tmp_path, asyncio.Event(), pods=1)
    await workload.ensure_pods(cluster(1))
    said = await asyncio.to_thread(first_line, tmp_path / "logs" / "muster-0.log")
    assert said.split() == [(await workload.pods(KEY))[0].uid, "10000", "5"]
    await workload.stop()


def test_pod_command_says_everything_that_the_pod_must_know(tmp_path: Path) -> None:
    pod = RunningPod("muster-1", 1, "127.0.0.1:9093", "127.0.0.1:9641", None, "127.0.0.1:9741")
    command = coordinator_command(pod, "some-uid", DataDir(tmp_path), {"group.max.size": "5"})
    assert command == [
        *(sys.executable, "-m", "muster_coordinator.process.main"),
        *("--pod", "muster-1", "--pod-uid", "some-uid", "--node-id", "1"),
        *("--data-dir", str(tmp_path / "pods" / "muster-1"), "--api-listen", "127.0.0.1:9641"),
        *("--kafka-listen", "127.0.0.1:9093", "--advertise", "127.0.0.1:9093"),
        *("--peer-listen", "127.0.0.1:9741", "--peer-advertise", "127.0.0.1:9741"),
        *("--config", "group.max.size=5"),
    ]
