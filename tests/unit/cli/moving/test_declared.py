"""`muster groups move`, `back` and `moves` on Kubernetes: ConsumerGroups are declared and followed to the end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.fake_kubernetes import FakeKubernetes
from tests.unit.cli.drive.site import API, declare, site, spec, writes

Json = dict[str, Any]
PLURAL = "consumergroups"
CLUSTER = ("coordinatorclusters", "orders")


def groups(kubernetes: FakeKubernetes) -> list[Json]:
    return kubernetes.objects.all(PLURAL, "shop")


def put(kubernetes: FakeKubernetes, name: str, group: str, coordinator: str, cluster: str = "orders") -> None:
    declared = {"clusterRef": {"name": cluster}, "group": group, "coordinator": coordinator}
    meta = {"name": name, "namespace": "shop"}
    kubernetes.create(f"{API}/{PLURAL}", {"metadata": meta, "spec": declared})


def is_told(raw: Json) -> bool:
    told: bool = raw.get("status", {}).get("observedGeneration", 0) == raw["metadata"].get("generation", 1)
    return told


def tell(kubernetes: FakeKubernetes, raw: Json, ready: str, reason: str, message: str, *, stalled: bool) -> None:
    meta = raw["metadata"]
    said = {"reason": reason, "message": message, "lastTransitionTime": ""}
    conditions = [{"type": "Ready", "status": ready, **said}]
    if stalled:
        conditions.append({"type": "Stalled", "status": "True", **said})
    last = {"to": "Muster", "done": True, "time": "2026-01-01T00:00:00Z", "fencedMs": 230}
    status: Json = {"observedGeneration": meta.get("generation", 1), "conditions": conditions}
    if ready == "True":
        conditions.append({**said, "type": "WrittenBack", "status": "False", "message": "it has members there"})
        status |= {"coordinator": raw["spec"]["coordinator"], "lastMove": last}
    body = {"metadata": {}, "status": status}
    assert kubernetes.objects.handle("PUT", f"{API}/{PLURAL}/{meta['name']}/status", {}, body).code == 200


@asynccontextmanager
async def operator(
    kubernetes: FakeKubernetes,
    ready: str = "True",
    reason: str = "AtMuster",
    message: str = "",
    *,
    stalled: bool = False,
) -> AsyncIterator[None]:
    """Tells the same of each ConsumerGroup."""

    async def look() -> None:
        while True:
            await kubernetes.until(lambda: any(not is_told(raw) for raw in groups(kubernetes)), "a declaration")
            for raw in groups(kubernetes):
                if not is_told(raw):
                    tell(kubernetes, raw, ready, reason, message, stalled=stalled)

    task = asyncio.create_task(look())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_groups_are_declared_and_followed_until_they_are_there(tmp_path: Path) -> None:
    async with site(tmp_path) as (kubernetes, typed), operator(kubernetes):
        put(kubernetes, "mine", "billing", "Kafka")
        code, out, err = await typed.run("groups", "move", "orders", "billing", "Odd Name/1", "-n", "shop", "--json")
        assert code == 0, err
        outcomes = json.loads(out)["groups"]
        assert [each["outcome"] for each in outcomes] == ["moved"] * 3
        assert outcomes[0]["fencedMs"] == 230
        assert spec(kubernetes, PLURAL, "mine")["coordinator"] == "Muster"
        declared = {raw["spec"]["group"]: raw["metadata"]["name"] for raw in groups(kubernetes)}
        assert declared.keys() == {"orders", "billing", "Odd Name/1"}
        assert declared["orders"] == "orders"
        assert declared["Odd Name/1"].startswith("odd-name-1-")
        assert writes(kubernetes) == {("POST", PLURAL), ("PATCH", PLURAL)}
        code, out, _ = await typed.run("groups", "move", "orders", "-n", "shop")
        assert (code, out.splitlines()) == (0, ["orders: already at Muster"])
        code, out, _ = await typed.run("groups", "moves", "-n", "shop", "--json")
        assert {each["group"]: each["now"] for each in json.loads(out)["groups"]} == dict.fromkeys(declared, "Muster")
        assert json.loads(out)["groups"][0]["writtenBack"] is False
        code, out, _ = await typed.run("groups", "moves", "-n", "shop")
        assert (code, "AtMuster" in out, "members" in out) == (0, True, True)


async def test_groups_go_back_by_their_declaration(tmp_path: Path) -> None:
    async with site(tmp_path) as (kubernetes, typed), operator(kubernetes, reason="AtKafka"):
        put(kubernetes, "mine", "billing", "Muster")
        code, out, err = await typed.run("groups", "back", "billing", "orders", "-n", "shop", "--json")
        assert code == 0, err
        assert [each["outcome"] for each in json.loads(out)["groups"]] == ["moved back to Kafka"] * 2
        assert {raw["spec"]["group"]: raw["spec"]["coordinator"] for raw in groups(kubernetes)} == {
            "billing": "Kafka",
            "orders": "Kafka",
        }
        code, out, _ = await typed.run("groups", "back", "billing", "-n", "shop")
        assert (code, out.splitlines()) == (0, ["billing: already at Kafka"])


async def test_group_that_cannot_go_back_is_told_at_once(tmp_path: Path) -> None:
    async with site(tmp_path) as (kubernetes, typed):
        async with operator(kubernetes, "False", "NoWayBack", "declare coordinator: Muster", stalled=True):
            code, out, _ = await typed.run("groups", "back", "m-1", "-n", "shop")
        assert (code, out.splitlines()) == (1, ["m-1: stays at Muster", "  NoWayBack: declare coordinator: Muster"])


async def test_name_that_another_clusters_group_has_is_not_taken(tmp_path: Path) -> None:
    async with site(tmp_path) as (kubernetes, typed), operator(kubernetes):
        put(kubernetes, "orders", "orders", "Kafka", cluster="another")
        code, _, err = await typed.run("groups", "move", "orders", "-n", "shop")
        assert code == 0, err
        assert spec(kubernetes, PLURAL, "orders")["coordinator"] == "Kafka"
        assert len(groups(kubernetes)) == 2


async def test_what_a_person_has_to_mend_is_said_at_once(tmp_path: Path) -> None:
    async with site(tmp_path) as (kubernetes, typed):
        async with operator(kubernetes, "False", "GroupNotMovable", "add its beginning", stalled=True):
            code, out, _ = await typed.run("groups", "move", "orders", "-n", "shop")
        assert (code, out.splitlines()) == (1, ["orders: stays at Kafka", "  GroupNotMovable: add its beginning"])


@pytest.mark.parametrize("looks", [True, False])
async def test_time_is_bounded_and_the_last_reason_is_said(tmp_path: Path, looks: bool) -> None:
    async with site(tmp_path) as (kubernetes, typed):
        command = ("groups", "move", "orders", "-n", "shop", "--timeout", "1")
        if not looks:
            code, out, _ = await typed.run(*command)
            assert (code, "the operator has not looked at it yet" in out) == (1, True)
            return
        async with operator(kubernetes, "False", "MoveRefused", "a transaction is open"):
            code, out, _ = await typed.run(*command)
        assert (code, "MoveRefused: a transaction is open" in out) == (1, True)


async def test_dry_run_says_whether_the_cluster_names_the_group_and_declares_nothing(tmp_path: Path) -> None:
    async with site(tmp_path) as (kubernetes, typed):
        upstream = {"bootstrapServers": "k:9092", "servedGroups": ["m-"], "movableGroups": ["k-"]}
        declare(kubernetes, *CLUSTER, upstream=upstream)
        code, out, _ = await typed.run("groups", "move", "k-1", "m-1", "x", "--dry-run", "-n", "shop", "--json")
        said = [each["outcome"] for each in json.loads(out)["groups"]]
        assert (code, said) == (1, ["nothing stands in the way", "already at Muster", "stays at Kafka"])
        code, out, _ = await typed.run("groups", "back", "k-1", "m-1", "x", "--dry-run", "-n", "shop", "--json")
        said = [each["outcome"] for each in json.loads(out)["groups"]]
        assert (code, said) == (1, ["nothing stands in the way", "stays at Muster", "already at Kafka"])
        assert groups(kubernetes) == []


async def test_all_namespaces_are_no_cluster(tmp_path: Path) -> None:
    async with site(tmp_path) as (_, typed):
        code, _, err = await typed.run("groups", "moves", "-A")
        assert (code, "--namespace" in err) == (2, True)
