"""Of several clusters, the pods of one at a time are replaced."""

from __future__ import annotations

import asyncio
from dataclasses import replace as with_fields
from pathlib import Path

from msgspec.structs import replace
from tests.unit.operator.fakes import KEY, World, world
from tests.unit.podapi.fake_server import eventually

from muster_operator.api.conditions import find_condition
from muster_operator.store.port import ClusterKey
from muster_operator.turns import Turns

OTHER = ClusterKey("ns", "other")


def test_turn_is_that_of_one_cluster_until_it_is_done_or_takes_too_long() -> None:
    turns = Turns()
    assert turns.other(KEY, 0.0) is None
    turns.take(KEY, 0.0, 600.0)
    assert (turns.other(KEY, 1.0), turns.other(OTHER, 599.0)) == (None, KEY)
    turns.end(OTHER)
    assert turns.other(OTHER, 599.0) == KEY, "it was not its turn"
    assert turns.other(OTHER, 600.0) is None
    turns.take(KEY, 500.0, 600.0)
    assert turns.other(OTHER, 1_000.0) == KEY, "another pod is replaced"
    turns.end(KEY)
    assert turns.other(OTHER, 1_000.0) is None
    turns.take(KEY, 0.0, 0.0)
    assert turns.other(OTHER, 1e9) == KEY, "replaceAfter is 0s: a pod that is away is never given up"


async def says(made: World, reason: str, text: str) -> bool:
    cluster = (await made.records()).cluster
    ready = find_condition(cluster.status.conditions, "Ready") if cluster is not None else None
    return ready is not None and ready.reason == reason and text in ready.message


async def test_cluster_waits_while_another_one_replaces_pods_and_then_has_its_own_turn(tmp_path: Path) -> None:
    async with world(tmp_path) as made:
        declared = (await made.records()).cluster
        assert declared is not None
        failover = replace(declared.spec.failover, rebalance_after="10ms")
        await made.store.apply(replace(declared, spec=replace(declared.spec, failover=failover)))
        turns = Turns()
        async with made.operator(turns) as reconciler:
            await made.until_ready()
            turns.take(OTHER, 0.0, 0.0)
            made.workload.infos = {name: with_fields(one, outdated=True) for name, one in made.workload.infos.items()}
            reconciler.enqueue(KEY)
            async with asyncio.timeout(10):
                while not await says(made, "RolloutWaits", "the pods of cluster ns/other are being replaced"):
                    await asyncio.sleep(0.005)
            assert made.workload.restarted == []
            turns.end(OTHER)
            reconciler.enqueue(KEY)
            await eventually(lambda: made.workload.restarted == ["c-2"])
            assert turns.other(OTHER, 0.0) == KEY
        assert turns.other(OTHER, 0.0) is None, "an operator that ends has no turn"
