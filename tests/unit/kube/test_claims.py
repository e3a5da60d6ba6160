"""Volumes grow with spec.storage.size: the claims are patched, the StatefulSet's claim template stays."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, cast

import pytest
from msgspec.structs import replace
from tests.unit.kube.test_manifests import Applying, cluster, pod
from tests.unit.kube.test_ownership import STATEFUL_SET, live

from muster_operator.api.quantities import parse_quantity
from muster_operator.kube.claims import LOOK_EVERY_S, RESYNC_S
from muster_operator.kube.client import KubeClient, KubeError
from muster_operator.kube.workload import KubeWorkload
from muster_operator.store.port import ClusterKey, StoreError

KEY = ClusterKey("ns", "a")
PATH = "/api/v1/namespaces/ns/persistentvolumeclaims"


def claim(name: str, asked: str, has: str = "", **status: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}"},
        "spec": {"storageClassName": "fast", "resources": {"requests": {"storage": asked}}},
        "status": {"phase": "Bound", "capacity": {"storage": has or asked}, **status},
    }


class Storage(Applying):
    """An API server with claims, which a storage system grows when the test says so."""

    def __init__(self, *claims: dict[str, Any]) -> None:
        super().__init__()
        self.claims = {each["metadata"]["name"]: each for each in claims}
        self.lists = 0
        self.away = False

    async def list_all(self, path: str, *, label_selector: str = "") -> dict[str, Any]:
        if self.away:
            raise StoreError("the API server does not answer")
        assert (path, label_selector) == (PATH, "muster.dev/cluster=a")
        self.lists += 1
        return {"items": [*self.claims.values()], "metadata": {"resourceVersion": "1"}}

    async def apply(self, path: str, manifest: dict[str, Any]) -> dict[str, Any]:
        answer = await super().apply(path, manifest)
        if manifest["kind"] == "PersistentVolumeClaim":
            found = self.claims[manifest["metadata"]["name"]]
            assert manifest["metadata"]["uid"] == found["metadata"]["uid"], "a claim that is gone is not created"
            found["spec"]["resources"] = manifest["spec"]["resources"]
        return answer

    def grow(self) -> None:
        for each in self.claims.values():
            each["status"]["capacity"] = dict(each["spec"]["resources"]["requests"])

    @property
    def patched(self) -> list[str]:
        return [path.rpartition("/")[2] for path in self.applied if path.startswith(PATH)]


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def working(*claims: dict[str, Any]) -> tuple[KubeWorkload, Storage, Time]:
    server, time = Storage(*claims), Time()
    return KubeWorkload(cast(KubeClient, server), "muster:1", clock=time), server, time


def three(asked: str) -> list[dict[str, Any]]:
    return [claim(f"data-a-{ordinal}", asked) for ordinal in range(3)]


async def test_claims_of_declared_pods_get_the_declared_size_and_the_template_keeps_its_own() -> None:
    """The planted fault: a StatefulSet that is applied with another claim template is refused as a whole."""
    workload, server, _ = working(*three("10Gi"), claim("data-a-3", "10Gi"), claim("data-a-1-x", "10Gi"))
    server.objects[STATEFUL_SET] = live(cluster(image="muster:1"), "muster:1")
    await workload.ensure_pods(cluster(storage={"size": "20Gi"}, settings={"group.max.size": "5"}))
    assert server.patched == ["data-a-0", "data-a-1", "data-a-2"]
    (template,) = server.bodies["StatefulSet"]["spec"]["volumeClaimTemplates"]
    assert template["spec"]["resources"]["requests"]["storage"] == "10Gi"


async def test_growth_is_told_until_every_volume_has_the_size_and_then_nothing_is_asked() -> None:
    waits = {"type": "FileSystemResizePending", "status": "True", "message": "waiting for the pod's node"}
    workload, server, time = working(*three("10Gi"))
    server.claims["data-a-0"]["status"]["conditions"] = [waits, {"type": "Resizing", "status": "False"}]
    told: list[ClusterKey] = []
    workload.watch(told.append)
    wanted = cluster(storage={"size": "20Gi"})
    await workload.ensure_pods(wanted)
    state = workload.state(wanted)
    assert state.growing == (
        "0 of 3 volumes have 20Gi; data-a-0 has 10Gi: FileSystemResizePending: waiting for the pod's node"
    )
    assert (state.volume_size, state.growth_refused, told) == ("10Gi", "", [KEY])
    server.grow()
    await workload.ensure_pods(wanted)
    assert server.lists == 1, "not in every reconcile"
    time.now += LOOK_EVERY_S
    await workload.ensure_pods(wanted)
    state = workload.state(wanted)
    assert (state.growing, state.volume_size, told) == ("", "20Gi", [KEY, KEY])
    time.now += RESYNC_S - 1
    await workload.ensure_pods(wanted)
    assert (server.lists, len(server.patched)) == (2, 3), "a converged cluster reads no claims"
    time.now += 1
    await workload.ensure_pods(wanted)
    assert server.lists == 3


async def test_claim_of_a_pod_that_is_new_is_raised_too() -> None:
    workload, server, time = working(*three("20Gi")[:2])
    wanted = cluster(storage={"size": "20Gi"})
    await workload.ensure_pods(wanted)
    server.claims["data-a-2"] = claim("data-a-2", "10Gi", phase="Pending")
    workload.deliver_pod("ADDED", pod("a-2"))
    await workload.ensure_pods(wanted)
    assert workload.state(wanted).growing == "2 of 3 volumes have 20Gi; data-a-2 has 10Gi: it has no volume yet"
    server.claims["data-a-2"]["status"]["phase"] = "Bound"
    time.now += LOOK_EVERY_S
    await workload.ensure_pods(wanted)
    assert server.patched == ["data-a-2"]


async def test_nothing_shrinks_and_what_is_not_bound_is_left_alone() -> None:
    workload, server, _ = working(*three("20Gi")[:2], claim("data-a-2", "5Gi", phase="Pending"))
    await workload.ensure_pods(cluster(storage={"size": "10Gi"}))
    assert server.patched == []


async def test_refusal_is_told_with_the_ways_out_and_pods_are_applied_all_the_same() -> None:
    class Refusing(Storage):
        async def apply(self, path: str, manifest: dict[str, Any]) -> dict[str, Any]:
            if path.startswith(PATH):
                raise KubeError(403, "the storageclass that provisions the pvc must support resize")
            return await super().apply(path, manifest)

    server = Refusing(*three("10Gi"))
    workload = KubeWorkload(cast(KubeClient, server), "muster:1")
    wanted = cluster(storage={"size": "20Gi"})
    assert (await workload.ensure_pods(wanted)).startswith("applied")
    state = workload.state(wanted)
    assert (
        "data-a-0 stays at 10Gi: the storageclass that provisions the pvc must support resize" in state.growth_refused
    )
    assert "kubectl patch storageclass fast -p '{\"allowVolumeExpansion\":true}'" in state.growth_refused
    assert (state.growing, state.volume_size) == ("", "10Gi")
    back = cluster(storage={"size": "10Gi"})
    await workload.ensure_pods(back)
    assert workload.state(back).growth_refused == ""


ARCHIVE = {"size": "10Gi", "archive": {"size": "100Gi"}}


async def test_archives_grow_like_the_volumes_and_each_has_its_own_size() -> None:
    archives = [claim(f"archive-a-{ordinal}", "50Gi") for ordinal in range(3)]
    workload, server, time = working(*three("10Gi"), *archives)
    wanted = cluster(storage=ARCHIVE)
    await workload.ensure_pods(wanted)
    assert server.patched == ["archive-a-0", "archive-a-1", "archive-a-2"]
    state = workload.state(wanted)
    assert state.growing.startswith("0 of 3 volumes have 100Gi; archive-a-0 has 50Gi")
    assert (state.volume_size, state.archive_size) == ("10Gi", "50Gi")
    server.grow()
    time.now += LOOK_EVERY_S
    await workload.ensure_pods(wanted)
    assert (workload.state(wanted).growing, workload.state(wanted).archive_size) == ("", "100Gi")


async def test_growth_of_an_archive_that_is_refused_is_told() -> None:
    class Refusing(Storage):
        async def apply(self, path: str, manifest: dict[str, Any]) -> dict[str, Any]:
            if path.endswith("archive-a-0"):
                raise KubeError(403, "exceeded quota")
            return await super().apply(path, manifest)

    server = Refusing(*three("10Gi"), *(claim(f"archive-a-{ordinal}", "50Gi") for ordinal in range(3)))
    workload = KubeWorkload(cast(KubeClient, server), "muster:1")
    await workload.ensure_pods(cluster(storage=ARCHIVE))
    assert "archive-a-0 stays at 50Gi: exceeded quota" in workload.state(cluster(storage=ARCHIVE)).growth_refused


async def test_templates_of_both_claims_keep_the_sizes_that_they_were_made_with() -> None:
    workload, server, _ = working()
    server.objects[STATEFUL_SET] = live(cluster(image="muster:1", storage=ARCHIVE), "muster:1")
    larger = {"size": "20Gi", "archive": {"size": "200Gi"}}
    await workload.ensure_pods(cluster(storage=larger, settings={"group.max.size": "5"}))
    templates = server.bodies["StatefulSet"]["spec"]["volumeClaimTemplates"]
    sizes = {each["metadata"]["name"]: each["spec"]["resources"]["requests"]["storage"] for each in templates}
    assert sizes == {"data": "10Gi", "archive": "100Gi"}


async def test_claims_that_cannot_be_read_hold_nothing_up() -> None:
    workload, server, time = working(*three("10Gi"))
    server.away = True
    wanted = cluster(storage={"size": "20Gi"})
    assert (await workload.ensure_pods(wanted)).startswith("applied")
    server.away = False
    time.now += LOOK_EVERY_S
    await workload.ensure_pods(wanted)
    assert len(server.patched) == 3


async def test_cluster_of_other_pods_is_looked_at_anew() -> None:
    workload, server, _ = working(*three("10Gi"))
    await workload.ensure_pods(cluster())
    await workload.ensure_pods(replace(cluster(), spec=cluster(pods=4).spec))
    assert server.lists == 2


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("10Gi", 10 * 2**30),
        ("1.5G", 1_500_000_000),
        ("500m", Decimal("0.5")),
        ("1e3", 1000),
        ("2E", 2 * 10**18),
        ("7", 7),
    ],
)
def test_quantities_are_read_as_kubernetes_reads_them(text: str, number: Decimal | int) -> None:
    assert parse_quantity(text) == number


@pytest.mark.parametrize("text", ["", "Gi", "-1", "1 Gi", "1KB"])
def test_other_texts_are_no_quantities(text: str) -> None:
    with pytest.raises(ValueError, match="not a quantity"):
        parse_quantity(text)
