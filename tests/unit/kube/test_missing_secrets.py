"""A pod that waits for a Secret says for which one, though the operator may read neither Secrets nor Events."""

from __future__ import annotations

from typing import Any, cast

import pytest
from structlog.testing import capture_logs
from tests.unit.kube.test_claims import Time
from tests.unit.kube.test_manifests import Applying, cluster, pod

from muster_operator.kube.claims import LOOK_EVERY_S
from muster_operator.kube.client import Json, KubeClient, KubeError
from muster_operator.kube.workload import KubeWorkload
from muster_operator.store.port import ClusterKey, NotFoundError, StoreError

KEY = ClusterKey("ns", "a")
CREATING = {"state": {"waiting": {"reason": "ContainerCreating"}}}


def waiting(*secrets: Json, version: str = "5") -> Json:
    raw = pod("a-1", phase="Pending", podIP="", containerStatuses=[CREATING], metadata={"resourceVersion": version})
    volumes = [{"name": f"v{number}", "secret": each} for number, each in enumerate(secrets)]
    return {**raw, "spec": {**raw["spec"], "volumes": [*volumes, {"name": "keys", "configMap": {"name": "keys"}}]}}


class Server(Applying):
    """An API server that shows whether there is a Secret, and not what it has."""

    def __init__(self) -> None:
        super().__init__()
        self.there: dict[str, Exception | None] = {}
        self.asked: list[str] = []

    async def look(self, path: str, *, metadata_only: bool = False) -> Json:
        assert metadata_only
        name = path.removeprefix("/api/v1/namespaces/ns/secrets/")
        self.asked.append(name)
        if name not in self.there:
            raise NotFoundError(path)
        if (error := self.there[name]) is not None:
            raise error
        return {}


def working(raw: Json) -> tuple[KubeWorkload, Server, Time]:
    server, time = Server(), Time()
    workload = KubeWorkload(cast(KubeClient, server), "muster:1", clock=time)
    workload.deliver_pod("ADDED", raw)
    return workload, server, time


async def trouble(workload: KubeWorkload, time: Time, later: float = LOOK_EVERY_S) -> str:
    time.now += later
    await workload.ensure_pods(cluster())
    (info,) = await workload.pods(KEY)
    return info.trouble


async def test_secret_that_does_not_exist_is_named_after_some_seconds_until_it_is_there() -> None:
    workload, server, time = working(waiting({"secretName": "small-pod-tls"}))
    news: list[ClusterKey] = []
    workload.watch(news.append)
    assert await trouble(workload, time) == "ContainerCreating"
    assert server.asked == [], "a pod is given some time to start"
    assert await trouble(workload, time, LOOK_EVERY_S - 1) == "ContainerCreating"
    news.clear()
    assert await trouble(workload, time, 1) == "ContainerCreating: Secret small-pod-tls not found"
    assert news == [KEY]
    server.there["small-pod-tls"] = None
    assert await trouble(workload, time) == "ContainerCreating"
    workload.deliver_pod("MODIFIED", pod("a-1", metadata={"resourceVersion": "7"}))
    asked = len(server.asked)
    assert await trouble(workload, time) == ""
    assert len(server.asked) == asked


@pytest.mark.parametrize(
    ("there", "logged"),
    [(None, 0), (KubeError(403, "not yours"), 0), (KubeError(500, "etcd"), 1), (StoreError("no answer"), 1)],
)
async def test_only_what_is_known_to_be_missing_is_told(there: Exception | None, logged: int) -> None:
    workload, server, time = working(waiting({"secretName": "s"}, {"secretName": "may-lack", "optional": True}))
    server.there["s"] = there
    with capture_logs() as logs:
        await trouble(workload, time)
        assert await trouble(workload, time) == "ContainerCreating"
    assert server.asked == ["s"]
    assert [each["event"] for each in logs if each["event"] == "secret_not_known"] == ["secret_not_known"] * logged


async def test_all_that_are_missing_are_named() -> None:
    workload, _, time = working(waiting({"secretName": "one"}, {"secretName": "two"}))
    await trouble(workload, time)
    assert await trouble(workload, time) == "ContainerCreating: Secret one, two not found"


async def test_pod_that_waits_for_something_else_is_not_asked_about() -> None:
    other: dict[str, Any] = {"state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}}
    raw = waiting({"secretName": "s"})
    workload, server, time = working({**raw, "status": {**raw["status"], "containerStatuses": [other]}})
    await trouble(workload, time)
    assert await trouble(workload, time) == "ErrImagePull: no such image"
    assert server.asked == []
