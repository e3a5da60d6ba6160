"""The commands as they are typed: against an API server on loopback, and against an instance of this machine."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import tarfile
import time
import tomllib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.support.fake_kubernetes import FakeKubernetes, fake_kubernetes
from tests.support.recorded_clusters import recorded

from muster_cli.local.data_dir import DataDir, RunningPod, RunRecord
from muster_cli.local.declare import CLUSTER
from muster_cli.local.procfs import ProcessRef
from muster_cli.main import cli
from muster_operator.api.conditions import Condition
from muster_operator.api.durations import format_time
from muster_operator.api.models import (
    ClusterRef,
    CoordinatorCluster,
    CoordinatorClusterStatus,
    ObjectMeta,
    OffsetsPartitionStatus,
    OffsetsTopic,
    OffsetsTopicSpec,
    OffsetsTopicStatus,
    PartitionState,
    Replica,
)
from muster_operator.kube.client import connect, context_namespace, uses_service_account
from muster_operator.kube.objects import collection_path
from muster_operator.store.sqlite import SqliteStore

LED = PartitionState.LED


def fill(kubernetes: FakeKubernetes, name: str) -> None:
    """With recorded objects; the operator has renewed its Lease a second ago."""
    objects = recorded(name)
    objects["leases"][0]["spec"]["renewTime"] = format_time(time.time())
    bases = {"pods": "/api/v1", "leases": "/apis/coordination.k8s.io/v1"}
    for plural in ("coordinatorclusters", "offsetstopics", "offsetspartitions", "pods", "leases"):
        base = bases.get(plural, collection_path(CoordinatorCluster).rpartition("/")[0])
        for each in objects[plural]:
            path = f"{base}/namespaces/{each['metadata']['namespace']}/{plural}"
            kubernetes.create(path, each)
            if "status" in each:
                status = {"metadata": {}, "status": each["status"]}
                kubernetes.objects.handle("PUT", f"{path}/{each['metadata']['name']}/status", {}, status)


def _heed_interrupts() -> None:
    """Tests that were started in the background have been told to ignore SIGINT, and so would their processes."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Typed:
    """Commands of `muster`."""

    def __init__(self, kubeconfig: Path) -> None:
        self._kubeconfig = str(kubeconfig)

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        """As a process, to be interrupted."""
        kept = {name: value for name, value in os.environ.items() if name != "KUBERNETES_SERVICE_HOST"}
        command = (sys.executable, "-m", "muster_cli", *arguments)
        environment = {**kept, "KUBECONFIG": self._kubeconfig}
        return await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, env=environment, preexec_fn=_heed_interrupts
        )

    async def run(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code, output, errors."""
        environment = {"KUBECONFIG": self._kubeconfig, "KUBERNETES_SERVICE_HOST": None}
        result = await asyncio.to_thread(CliRunner().invoke, cli, arguments, env=environment)
        return result.exit_code, result.stdout, result.stderr


@asynccontextmanager
async def api_server(directory: Path, name: str) -> AsyncIterator[tuple[FakeKubernetes, Typed]]:
    async with fake_kubernetes(directory) as (kubernetes, kubeconfig):
        fill(kubernetes, name)
        yield kubernetes, Typed(kubeconfig)


async def test_status_of_a_healthy_cluster_exits_with_0_and_of_one_that_needs_a_person_with_1(tmp_path: Path) -> None:
    async with api_server(tmp_path, "healthy") as (kubernetes, typed):
        code, out, err = await typed.run("status", "-n", "shop")
        assert (code, "shop/orders  healthy" in out, err) == (0, True, "")
        (raw,) = kubernetes.objects.all("coordinatorclusters")
        stalled = {"type": "Stalled", "status": "True", "reason": "LogLost", "lastTransitionTime": "", "message": "x"}
        status = {**raw["status"], "conditions": [*raw["status"]["conditions"], stalled]}
        path = "/apis/muster.dev/v1alpha1/namespaces/shop/coordinatorclusters/orders/status"
        kubernetes.objects.handle("PUT", path, {}, {"metadata": {}, "status": status})
        code, out, _ = await typed.run("status", "orders", "-n", "shop", "--json")
        told: dict[str, Any] = json.loads(out)
        assert (code, told["healthy"], told["clusters"][0]["needs_person"][0]["reason"]) == (1, False, "LogLost")
    assert not {verb for verb, _ in kubernetes.requests} - {"GET"}, "it only reads"


async def test_status_takes_the_namespace_of_the_context_and_all_of_them_when_asked(tmp_path: Path) -> None:
    async with api_server(tmp_path, "healthy") as (_, typed):
        code, out, _ = await typed.run("status")
        assert (code, out.strip()) == (0, "no CoordinatorCluster"), "the context names no namespace: default"
        code, out, _ = await typed.run("status", "-A")
        assert (code, "shop/orders" in out) == (0, True)


async def test_status_that_reaches_nothing_or_is_used_wrongly_exits_with_2(tmp_path: Path) -> None:
    async with api_server(tmp_path, "healthy") as (_, typed):
        code, _, err = await typed.run("status", "nope", "-n", "shop")
        assert (code, "namespace shop has no CoordinatorCluster nope" in err) == (2, True)
    code, _, err = await typed.run("status", "-n", "shop")
    assert (code, "the API server does not answer" in err) == (2, True)
    code, _, err = await typed.run("status", "--kubeconfig", str(tmp_path / "none"))
    assert (code, "no way to a Kubernetes API server" in err) == (2, True)
    assert (await typed.run("status", "-n", "shop", "-A"))[0] == 2
    assert (await typed.run("status", "--local", "-n", "shop"))[0] == 2


async def test_watch_prints_what_changes_and_ends_with_the_code_of_the_last_look(tmp_path: Path) -> None:
    async with api_server(tmp_path, "healthy") as (kubernetes, typed):
        process = await typed.start("status", "-n", "shop", "--watch", "--interval", "0.2", "--json")
        assert process.stdout is not None
        assert json.loads(await process.stdout.readline())["healthy"] is True
        (lease,) = kubernetes.objects.all("leases")
        path = "/apis/coordination.k8s.io/v1/namespaces/shop/leases/muster-operator"
        gone = {**lease, "spec": {**lease["spec"], "holderIdentity": ""}}
        kubernetes.objects.handle("PUT", path, {}, gone)
        assert json.loads(await process.stdout.readline())["healthy"] is False
        process.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(process.wait(), 30) == 1
        assert await process.stdout.read() == b""


def test_kubectl_finds_the_command_as_its_plugin(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    declared = tomllib.loads((Path(__file__).parents[4] / "pyproject.toml").read_text())["project"]["scripts"]
    module, _, function = declared["kubectl-muster"].partition(":")
    monkeypatch.setattr(sys, "argv", ["kubectl-muster", "status", "--help"])
    with pytest.raises(SystemExit):
        getattr(import_module(module), function)()
    assert capsys.readouterr().out.startswith("Usage: kubectl muster status")


async def test_kubeconfig_and_context_are_taken_as_kubectl_takes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fake_kubernetes(tmp_path) as (_, kubeconfig):
        config = json.loads(kubeconfig.read_text())
        config["contexts"][0]["context"]["namespace"] = "shop"
        config["contexts"].append({"name": "dead", "context": {"cluster": "dead", "user": "it"}})
        config["clusters"].append({"name": "dead", "cluster": {"server": "http://127.0.0.1:1"}})
        kubeconfig.write_text(json.dumps(config))
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
        assert uses_service_account()
        assert not uses_service_account(str(kubeconfig))
        assert context_namespace(str(kubeconfig)) == "shop"
        assert context_namespace(str(kubeconfig), "dead") == ""
        assert context_namespace(str(tmp_path / "none")) == ""
        client = await connect(str(kubeconfig))
        try:
            assert (await client.list_all("/api/v1/pods"))["items"] == []
        finally:
            await client.close()
        monkeypatch.delenv("KUBERNETES_SERVICE_HOST")
        code, _, err = await Typed(kubeconfig).run("status", "--context", "dead")
        assert (code, "does not answer" in err) == (2, True)


def embedded(root: Path, *, supervised: bool) -> DataDir:
    """A data directory whose supervisor is this process, or is gone; its pod is this process."""
    data = DataDir(root)
    data.create()
    me = ProcessRef.of(os.getpid())
    assert me is not None
    gone = ProcessRef(pid=me.pid, start_ticks=me.start_ticks + 1)
    pod = RunningPod(name="muster-0", node_id=0, kafka_address="127.0.0.1:1", api_address="127.0.0.1:2", process=me)
    data.write_run(RunRecord(supervisor=me if supervised else gone, pods=(pod,)))
    return data


async def declare(data: DataDir) -> None:
    """One pod with one partition, which is led."""
    store = SqliteStore(data.store)
    meta = ObjectMeta(name=CLUSTER.name, namespace=CLUSTER.namespace)
    await store.apply(CoordinatorCluster(metadata=meta))
    await store.apply(OffsetsTopic(metadata=meta, spec=OffsetsTopicSpec(ClusterRef(CLUSTER.name), 1, 1)))
    (topic,) = (await store.observe(CLUSTER)).topics
    await store.create_partitions(topic, [0])
    records = await store.observe(CLUSTER)
    ready = (Condition("Ready", "True", "Led", "", "2026-11-27T22:50:05Z"),)
    assert records.cluster is not None
    await store.write_cluster_status(records.cluster, CoordinatorClusterStatus(conditions=ready))
    await store.write_topic_status(topic, OffsetsTopicStatus(conditions=ready))
    led = OffsetsPartitionStatus(
        conditions=ready, leader="muster-0", epoch=4, replicas=(Replica("muster-0"),), following=1, state=LED
    )
    await store.write_partition_status(records.partitions[0], led)
    store.close()


@pytest.mark.parametrize(("supervised", "code", "reasons"), [(True, 0, []), (False, 1, ["NoOperator"])])
def test_status_of_an_instance_of_this_machine(tmp_path: Path, supervised: bool, code: int, reasons: list[str]) -> None:
    asyncio.run(declare(embedded(tmp_path, supervised=supervised)))
    result = CliRunner().invoke(cli, ["status", "--data-dir", str(tmp_path), "--json"])
    (told,) = json.loads(result.output)["clusters"]
    assert (result.exit_code, [each["reason"] for each in told["needs_person"]]) == (code, reasons)
    assert [(each["leader"], each["epoch"]) for each in told["partitions"]] == [("muster-0", 4)]
    assert [(each["name"], each["leads"]) for each in told["pods"]] == [("muster-0", 1)]


def test_status_where_nothing_runs_on_this_machine_exits_with_2(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["status", "--data-dir", str(tmp_path)])
    assert (result.exit_code, f"nothing runs on {tmp_path}" in result.output) == (2, True)


async def test_explain_exits_with_0_for_a_led_partition_1_for_one_that_waits_and_2_for_none(tmp_path: Path) -> None:
    async with api_server(tmp_path, "majority_lost") as (_, typed):
        code, out, _ = await typed.run("explain", "2", "-n", "shop")
        assert (code, "Pod orders-2 leads it in epoch 0." in out) == (0, True)
        code, out, _ = await typed.run("explain", "0", "orders", "-n", "shop", "--json")
        assert (code, json.loads(out)[0]["state"]) == (1, "Leaderless")
        assert (await typed.run("explain", "billing", "-n", "shop", "--transactional-id"))[0] == 2


async def test_doctor_exits_with_1_where_something_must_be_mended_and_looks_at_kubernetes_only(tmp_path: Path) -> None:
    async with api_server(tmp_path, "healthy") as (kubernetes, typed):
        code, out, _ = await typed.run("doctor", "-n", "shop")
        assert (code, "no NetworkPolicy selects the pods" in out) == (1, True)
        code, out, _ = await typed.run("doctor", "orders", "-n", "shop", "--json")
        (told,) = json.loads(out)
        assert (told["cluster"], told["ready"]) == ("orders", False)
        assert (await typed.run("doctor", "--local"))[0] == 2
    assert not {verb for verb, _ in kubernetes.requests} - {"GET"}, "it only reads"


async def test_bundle_writes_an_archive_and_says_what_is_missing(tmp_path: Path) -> None:
    async with api_server(tmp_path, "healthy") as (kubernetes, typed):
        file = tmp_path / "it.tar.gz"
        code, out, err = await typed.run("bundle", "-n", "shop", "--output", str(file))
        assert (code, f"{file}: " in out, "missing: metrics/shop/orders-0.txt" in err) == (0, True, True)
        with tarfile.open(file) as archive:
            assert "it/objects/shop/offsetspartitions.json" in archive.getnames()
        assert (await typed.run("bundle", "-n", "shop", "--output", str(tmp_path / "no" / "it.tar.gz")))[0] == 1
    assert not {verb for verb, _ in kubernetes.requests} - {"GET"}, "it only reads"
    assert not [plural for _, plural in kubernetes.requests if plural == "secrets"]
