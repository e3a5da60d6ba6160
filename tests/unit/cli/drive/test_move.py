"""`muster move`: the leader of a partition, by what is declared."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.drive.site import declare, operator, say, show, site, spec, writes

PARTITION = ("offsetspartitions", "orders-2")
"""Led by orders-2 in the recorded cluster, with replicas on all three pods."""


async def test_move_declares_the_preferred_leader_and_is_done_when_that_pod_leads(tmp_path: Path) -> None:
    async with site(tmp_path) as (kubernetes, typed):

        def elect(declared: dict[str, Any]) -> None:
            show(kubernetes, *PARTITION, leader=declared["preferredLeader"], epoch=7)

        async with operator(kubernetes, elect, *PARTITION):
            code, out, err = await typed.run("move", "2", "orders-0", "-n", "shop")
        assert (code, "orders-2 moves from orders-2 to orders-0" in out, "Done after" in out) == (0, True, True), err
        assert "muster move orders-2 --undo" in err
        assert spec(kubernetes, *PARTITION)["preferredLeader"] == "orders-0"
        assert writes(kubernetes) == {("PATCH", "offsetspartitions")}
        code, out, _ = await typed.run("move", "2", "orders-0", "-n", "shop", "--json")
        told = json.loads(out)
        assert (code, told["done"], told["changes"]) == (0, True, {}), "it is so already"
        assert kubernetes.requests["PATCH", "offsetspartitions"] == 1
        assert (await typed.run("move", "orders-2", "--undo", "-n", "shop"))[0] == 0
        assert "preferredLeader" not in spec(kubernetes, *PARTITION)


async def test_dry_run_is_checked_by_the_api_server_and_changes_nothing(tmp_path: Path) -> None:
    async with site(tmp_path) as (kubernetes, typed):
        before = spec(kubernetes, *PARTITION)
        code, out, _ = await typed.run("move", "2", "orders-0", "-n", "shop", "--dry-run")
        assert (code, "Nothing was changed" in out) == (0, True)
        assert writes(kubernetes) == {("PATCH", "offsetspartitions")}, "the API server is asked"
        assert spec(kubernetes, *PARTITION) == before
        code, out, _ = await typed.run("move", "2", "orders-0", "-n", "shop", "--dry-run", "--json")
        told = json.loads(out)
        assert told["changes"] == {"OffsetsPartition/orders-2": {"preferredLeader": "orders-0"}}
        assert (told["dry_run"], told["done"]) == (True, False)


async def test_move_that_is_not_done_in_time_exits_with_1_and_stays_declared(tmp_path: Path) -> None:
    async with site(tmp_path) as (kubernetes, typed):
        code, _, err = await typed.run("move", "2", "orders-0", "-n", "shop", "--timeout", "0.1")
        assert (code, "Not done after" in err, "leader orders-2" in err) == (1, True, True)
        assert spec(kubernetes, *PARTITION)["preferredLeader"] == "orders-0"
        code, out, err = await typed.run("move", "2", "orders-1", "-n", "shop", "--timeout", "0")
        assert (code, "Done" in out, err) == (0, False, "")


async def test_ctrl_c_ends_the_wait_with_130_and_says_that_it_stays_declared(tmp_path: Path) -> None:
    async with site(tmp_path) as (kubernetes, typed):
        process = await typed.start("move", "2", "orders-0", "-n", "shop", "--json")
        await kubernetes.until(lambda: "preferredLeader" in spec(kubernetes, *PARTITION), "it is declared")
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        told = json.loads(await process.stdout.read())
        assert (await asyncio.wait_for(process.wait(), 30), told["done"]) == (130, False)


@pytest.mark.parametrize(
    ("arguments", "code", "why"),
    [
        (("move", "2", "orders-9"), 2, "has no pod orders-9; its pods: orders-0, orders-1, orders-2"),
        (("move", "77", "orders-0"), 2, "has no partition 77"),
        (("move", "2"), 2, "give one of POD and --undo"),
        (("move", "2", "orders-0", "--undo"), 2, "give one of POD and --undo"),
    ],
)
async def test_move_of_what_is_not_there_is_wrong_usage(
    tmp_path: Path, arguments: tuple[str, ...], code: int, why: str
) -> None:
    async with site(tmp_path) as (kubernetes, typed):
        found, _, err = await typed.run(*arguments, "-n", "shop")
        assert (found, why in err) == (code, True), err
        assert writes(kubernetes) == set()


async def test_move_that_nobody_would_carry_out_is_refused_and_says_why(tmp_path: Path) -> None:
    async with site(tmp_path) as (kubernetes, typed):

        async def refused(why: str) -> None:
            code, _, err = await typed.run("move", "2", "orders-0", "-n", "shop")
            assert (code, why in err) == (1, True), err
            assert writes(kubernetes) == set()

        cluster = ("coordinatorclusters", "orders")
        declare(kubernetes, *cluster, failover={"rebalanceAfter": "0s"})
        await refused("rebalanceAfter of orders is 0s")
        declare(kubernetes, *cluster, failover=None, suspend=True)
        await refused("spec.suspend of orders is set")
        declare(kubernetes, *cluster, suspend=None)
        show(kubernetes, *PARTITION, replicas=[{"pod": "orders-2", "logId": "log"}])
        await refused("orders-0 has no replica of orders-2; these have one: orders-2")
        say(kubernetes, "orders-2", "Leaderless", "NoMajority", "1 of 3 replicas can be counted")
        await refused("orders-2 is Leaderless: 1 of 3 replicas can be counted")
        kubernetes.objects.remove(("leases", "shop", "muster-operator"))
        lease = {"metadata": {"name": "muster-operator"}, "spec": {"holderIdentity": ""}}
        kubernetes.create("/apis/coordination.k8s.io/v1/namespaces/shop/leases", lease)
        await refused("no operator acts for orders")
