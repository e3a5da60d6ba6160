"""In which namespaces an operator acts: those that have objects, while it holds their Leases."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from tests.unit.kube.test_elector import FAST, FakeLease
from tests.unit.podapi.fake_server import eventually

from muster_operator.api.models import CoordinatorCluster
from muster_operator.clock import SYSTEM_CLOCK
from muster_operator.kube.elector import Elector
from muster_operator.kube.leading import Leading
from muster_operator.kube.objects_seen import ObjectsSeen


def cluster(namespace: str, version: int) -> dict[str, Any]:
    meta = {"name": "c", "namespace": namespace, "uid": namespace, "generation": 1, "resourceVersion": str(version)}
    return {"apiVersion": "muster.dev/v1alpha1", "kind": "CoordinatorCluster", "metadata": meta, "spec": {}}


class Operator:
    """`acts`: the namespaces in which it does now. A namespace in `fails` ends its work with an error."""

    def __init__(self) -> None:
        self.seen = ObjectsSeen(cast(Any, None), SYSTEM_CLOCK, lambda: None)
        self.leases: dict[str, FakeLease] = {}
        self.acts: set[str] = set()
        self.fails: set[str] = set()
        self.leading = Leading(self.seen, self._elector, self._lead)

    def _elector(self, namespace: str) -> Elector:
        lease = self.leases.setdefault(namespace, FakeLease())
        return Elector(cast(Any, lease), namespace, "muster-operator", "one", FAST)

    async def _lead(self, namespace: str) -> None:
        self.acts.add(namespace)
        try:
            if namespace in self.fails:
                raise RuntimeError("a bug")
            await asyncio.Event().wait()
        finally:
            self.acts.discard(namespace)

    def put(self, namespace: str, version: int) -> None:
        self.seen.deliver(CoordinatorCluster.plural, "ADDED", cluster(namespace, version))

    def delete(self, namespace: str, version: int) -> None:
        self.seen.deliver(CoordinatorCluster.plural, "DELETED", cluster(namespace, version))


@asynccontextmanager
async def running() -> AsyncIterator[Operator]:
    operator = Operator()
    task = asyncio.create_task(operator.leading.run())
    try:
        yield operator
    finally:
        task.cancel()
        await asyncio.wait({task})


async def test_operator_acts_in_each_namespace_with_objects_and_releases_what_has_none_any_more() -> None:
    async with running() as operator:
        operator.put("a", 1)
        operator.put("b", 2)
        await eventually(lambda: operator.acts == {"a", "b"})
        operator.delete("a", 3)
        await eventually(lambda: operator.acts == {"b"} and operator.leases["a"].holder == "")
        assert operator.leases["b"].holder == "one"
        operator.put("a", 4)
        await eventually(lambda: operator.acts == {"a", "b"})
        assert operator.leading.token("a") == 2, "it rises although the same operator acts again"
        assert operator.leading.token("nowhere") == 0
    assert [each.holder for each in operator.leases.values()] == ["", ""]


async def test_namespace_whose_lease_another_holds_is_left_to_it_and_the_others_are_looked_after() -> None:
    async with running() as operator:
        operator.leases["a"] = FakeLease()
        operator.leases["a"].taken_by("somebody")
        operator.put("a", 1)
        operator.put("b", 2)
        await eventually(lambda: operator.acts == {"b"})
        assert operator.leases["a"].holder == "somebody"


async def test_bug_in_one_namespace_ends_the_operator_and_releases_every_lease() -> None:
    operator = Operator()
    operator.fails.add("b")
    operator.put("a", 1)
    operator.put("b", 2)
    with pytest.raises(RuntimeError, match="a bug"):
        await asyncio.wait_for(operator.leading.run(), 10)
    assert operator.acts == set()
    assert [each.holder for each in operator.leases.values()] == ["", ""]
