"""`muster drain` and `muster fence`: what a pod leads is seen to leave, and what would stay is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.fake_kubernetes import FakeKubernetes
from tests.unit.cli.drive.site import declare, operator, say, seen, show, site, spec, writes

CLUSTER = ("coordinatorclusters", "orders")
NAMES = ("orders-0", "orders-1", "orders-2", "orders-3")


def led(kubernetes: FakeKubernetes, pod: str) -> list[str]:
    return [name for name in NAMES if seen(kubernetes, "offsetspartitions", name)["status"]["leader"] == pod]


@pytest.mark.parametrize(("verb", "asked"), [("drain", "Drained"), ("fence", "Fenced")])
async def test_pod_is_taken_out_of_service_until_it_leads_nothing_and_taken_back(
    tmp_path: Path, verb: str, asked: str
) -> None:
    async with site(tmp_path) as (kubernetes, typed):
        assert led(kubernetes, "orders-2")

        def move(declared: dict[str, Any]) -> None:
            for name in led(kubernetes, "orders-2") if declared.get("maintenance") else ():
                show(kubernetes, "offsetspartitions", name, leader="orders-0", epoch=9)

        code, out, err = await typed.run(verb, "orders-2", "-n", "shop", "--timeout", "0.1")
        assert (code, "orders-2 leads orders-" in err) == (1, True), "nobody moves them"
        code, _, _ = await typed.run(verb, "orders-2", "-n", "shop", "--undo")
        assert (code, spec(kubernetes, *CLUSTER)["maintenance"]) == (0, {})
        async with operator(kubernetes, move, *CLUSTER):
            code, out, err = await typed.run(verb, "orders-2", "-n", "shop", "--json")
        told = json.loads(out)
        assert (code, told["done"], told["undo"]) == (0, True, f"muster {verb} orders-2 --undo"), err
        assert spec(kubernetes, *CLUSTER)["maintenance"] == {"orders-2": asked}
        assert led(kubernetes, "orders-2") == []
        assert writes(kubernetes) == {("PATCH", "coordinatorclusters")}
        code, out, _ = await typed.run("status", "-n", "shop")
        assert f"ready {asked.lower()}" in out
        before = kubernetes.requests["PATCH", "coordinatorclusters"]
        code, out, _ = await typed.run(verb, "orders-2", "-n", "shop")
        assert (code, "Done" in out, kubernetes.requests["PATCH", "coordinatorclusters"]) == (0, True, before)


async def test_fenced_pod_is_not_undone_as_a_drained_one_and_one_that_serves_has_nothing_to_undo(
    tmp_path: Path,
) -> None:
    async with site(tmp_path) as (kubernetes, typed):
        declare(kubernetes, *CLUSTER, maintenance={"orders-1": "Fenced"})
        code, _, err = await typed.run("drain", "orders-1", "-n", "shop", "--undo")
        assert (code, "`muster fence orders-1 --undo` takes that back" in err) == (1, True)
        code, out, _ = await typed.run("drain", "orders-0", "-n", "shop", "--undo")
        assert (code, "orders-0 is neither drained nor fenced" in out) == (0, True)
        assert writes(kubernetes) == set()


async def test_pod_that_has_to_stay_is_not_taken_out_of_service(tmp_path: Path) -> None:
    async with site(tmp_path) as (kubernetes, typed):

        async def refused(why: str) -> None:
            for verb in ("drain", "fence"):
                code, _, err = await typed.run(verb, "orders-2", "-n", "shop")
                assert (code, why in err) == (1, True), err
            assert writes(kubernetes) == set()

        declare(kubernetes, *CLUSTER, maintenance={"orders-0": "Drained", "orders-1": "Fenced"})
        await refused("has a replica of orders-0, orders-1, orders-2, orders-3: it could not leave the pod")
        declare(kubernetes, *CLUSTER, maintenance=None)
        show(kubernetes, "offsetspartitions", "orders-3", replicas=[{"pod": "orders-2", "logId": "log"}])
        await refused("has a replica of orders-3: it could not leave the pod")
        say(kubernetes, "orders-1", "Leaderless", "NoMajority", "1 of 3")
        await refused("orders-1: not led now")
        assert (await typed.run("drain", "orders-7", "-n", "shop"))[0] == 2
