"""Nodes of the pods, as far as the operator may read them."""

from __future__ import annotations

from typing import Any, cast

import structlog
from tests.unit.kube.test_manifests import pod

from muster_operator.kube.client import KubeClient, KubeError
from muster_operator.kube.workload import KubeWorkload
from muster_operator.store.port import ClusterKey, NotFoundError
from muster_operator.store.workload import PodInfo

KEY = ClusterKey("ns", "a")


class Nodes:
    """An API server with one node, that refuses with `error`."""

    def __init__(self) -> None:
        self.ready = "True"
        self.error: Exception | None = None
        self.asked: list[str] = []

    async def get(self, path: str) -> dict[str, Any]:
        self.asked.append(path)
        if self.error is not None:
            raise self.error
        return {"metadata": {}, "status": {"conditions": [{"type": "Ready", "status": self.ready}]}}


class Subject:
    def __init__(self) -> None:
        self.nodes = Nodes()
        self.workload = KubeWorkload(cast(KubeClient, self.nodes), "muster:1")
        self.told: list[ClusterKey] = []
        self.workload.watch(self.told.append)
        raw = pod()
        raw["spec"]["nodeName"] = "n-1"
        raw["metadata"]["resourceVersion"] = "1"
        self.workload.deliver_pod("ADDED", raw)
        self.told.clear()

    async def look(self) -> PodInfo:
        """What is known of the pod after the nodes were read again."""
        await self.workload._learn_nodes()
        (info,) = await self.workload.pods(KEY)
        return info


async def test_cluster_is_told_when_nothing_is_heard_of_a_node_any_more_and_when_it_is_back() -> None:
    subject = Subject()
    assert not (await subject.look()).node_lost
    assert subject.told == []
    subject.nodes.ready = "Unknown"
    assert (await subject.look()).node_lost
    assert (await subject.look()).node_lost
    assert subject.told == [KEY]
    subject.nodes.ready = "True"
    assert not (await subject.look()).node_lost
    assert subject.told == [KEY, KEY]


async def test_node_that_is_gone_is_lost() -> None:
    subject = Subject()
    await subject.look()
    subject.nodes.error = NotFoundError("nodes n-1")
    assert (await subject.look()).node_lost


async def test_without_the_right_to_read_nodes_nothing_is_known_of_them_and_that_is_said_once() -> None:
    subject = Subject()
    subject.nodes.error = KubeError(403, "nodes is forbidden")
    with structlog.testing.capture_logs() as logs:
        for _ in range(3):
            info = await subject.look()
    assert (info.node, info.zone, info.node_lost, info.cordoned) == ("n-1", "", False, False)
    assert [each["event"] for each in logs] == ["node_not_known"]
    assert subject.told == []
