"""`muster restart`: the operator is asked by the uids of pods, and followed until all replicas follow again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.fake_kubernetes import FakeKubernetes
from tests.unit.cli.drive.site import declare, operator, seen, show, site, spec, writes

CLUSTER = ("coordinatorclusters", "orders")
PODS = ("orders-0", "orders-1", "orders-2")


def uid(kubernetes: FakeKubernetes, pod: str) -> str:
    return str(seen(kubernetes, "pods", pod)["metadata"]["uid"])


def replace(kubernetes: FakeKubernetes, pod: str) -> None:
    """Replace pods as the operator and the controller of StatefulSets do."""
    old = seen(kubernetes, "pods", pod)
    kubernetes.objects.remove(("pods", "shop", pod))
    path = "/api/v1/namespaces/shop/pods"
    kubernetes.create(path, old)
    kubernetes.objects.handle("PUT", f"{path}/{pod}/status", {}, {"metadata": {}, "status": old["status"]})


@pytest.mark.parametrize(("which", "pods"), [("orders-1", ["orders-1"]), ("--all", [*PODS])])
async def test_pods_are_asked_for_by_uid_and_it_is_done_when_there_are_others_and_all_replicas_follow(
    tmp_path: Path, which: str, pods: list[str]
) -> None:
    async with site(tmp_path) as (kubernetes, typed):
        before = {pod: uid(kubernetes, pod) for pod in PODS}

        def roll(declared: dict[str, Any]) -> None:
            for pod, asked in declared["rollout"]["restart"].items():
                if uid(kubernetes, pod) == asked:
                    replace(kubernetes, pod)

        async with operator(kubernetes, roll, *CLUSTER):
            code, out, err = await typed.run("restart", which, "-n", "shop", "--json")
        assert (code, json.loads(out)["done"]) == (0, True), err
        assert spec(kubernetes, *CLUSTER)["rollout"]["restart"] == {pod: before[pod] for pod in pods}
        assert [pod for pod in PODS if uid(kubernetes, pod) != before[pod]] == pods
        assert writes(kubernetes) == {("PATCH", "coordinatorclusters")}, "the operator replaces pods"
        code, out, _ = await typed.run("restart", "--undo", "-n", "shop")
        assert (code, "No pod is to be restarted" in out) == (0, True), "what was asked for is spent"


async def test_restart_waits_for_replicas_that_do_not_follow_yet_and_can_be_taken_back(tmp_path: Path) -> None:
    async with site(tmp_path) as (kubernetes, typed):
        show(kubernetes, "offsetspartitions", "orders-0", following=2)

        def roll(declared: dict[str, Any]) -> None:
            replace(kubernetes, "orders-1")

        async with operator(kubernetes, roll, *CLUSTER):
            code, _, err = await typed.run("restart", "orders-1", "-n", "shop", "--timeout", "2")
        assert (code, "not all replicas follow of orders-0" in err) == (1, True), err
        code, _, err = await typed.run("restart", "orders-2", "-n", "shop", "--timeout", "0.1")
        assert (code, "0 of 1 pods are replaced" in err) == (1, True), err
        code, out, _ = await typed.run("restart", "--undo", "-n", "shop")
        assert (code, "orders-2 is not restarted" in out) == (0, True)
        assert "restart" not in spec(kubernetes, *CLUSTER)["rollout"]


async def test_restart_that_is_unsafe_or_would_never_be_done_is_refused(tmp_path: Path) -> None:
    async with site(tmp_path) as (kubernetes, typed):
        path = "/api/v1/namespaces/shop/pods/orders-0/status"
        kubernetes.objects.handle("PUT", path, {}, {"metadata": {}, "status": {"phase": "Pending"}})
        code, _, err = await typed.run("restart", "orders-1", "-n", "shop", "--timeout", "1")
        assert (code, "orders-0 is not ready: a pod more that is away could stop partitions" in err) == (1, True), err
        declare(kubernetes, *CLUSTER, rollout={"paused": True})
        code, _, err = await typed.run("restart", "--all", "-n", "shop", "--timeout", "1")
        assert (code, "spec.rollout.paused of orders is set" in err) == (1, True), err
        for wrong in ((), ("orders-1", "--all"), ("orders-1", "--undo"), ("orders-9",)):
            assert (await typed.run("restart", *wrong, "-n", "shop"))[0] == 2
        assert writes(kubernetes) == set()
