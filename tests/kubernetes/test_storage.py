"""Volumes grow while clients commit, a full disk is grown out of, and a wish that nobody can fulfil is taken back."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hack import kubernetes_machine as machine
from tests.support.kube import install_operator, kubectl, node_is_gone
from tests.support.muster_cluster import process_of, wait_until
from tests.support.platform_team import READY_S, Cared, Load, cared_for

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(400)]

NAMESPACE, NAME = "muster-storage", "store"
RIGID = "muster-test-rigid"
"""A StorageClass whose volumes cannot grow."""


@pytest.fixture(scope="module")
def cluster(custom_resources: None) -> Iterator[Cared]:
    if machine.has_kind():
        pytest.skip("kind's StorageClass cannot grow volumes; hack/localkube's can")
    install_operator()
    limited = {"size": "64Mi", "storageClassName": "limited"}
    with cared_for(NAMESPACE, NAME, pods=3, storage={**limited, "archive": limited}) as made:
        yield made


def sizes(cluster: Cared, kind: str = "data") -> set[str]:
    """Of the volumes of the pods, or of their archives."""
    claims = (each for each in cluster.objects("persistentvolumeclaims") if each["metadata"]["name"].startswith(kind))
    return {each["status"]["capacity"]["storage"] for each in claims}


def fill(directory: Path) -> None:
    """Write until nothing more fits."""
    for piece in (1 << 16, 512):
        with (directory / "filler").open("ab", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(piece))
            except OSError:
                pass


def test_volumes_grow_online_under_load_and_no_pod_restarts(cluster: Cared) -> None:
    before = cluster.runs()
    load = Load.begin(cluster, "grown")
    cluster.patch(storage={"size": "96Mi"})
    wait_until(lambda: sizes(cluster) == {"96Mi"}, "every volume has grown", READY_S)
    cluster.wait_whole()
    load.goes_on()
    load.end_with_nothing_lost()
    assert (cluster.runs(), cluster.status()["volumeSize"]) == (before, "96Mi")


def test_archives_are_volumes_of_their_own_and_grow_online(cluster: Cared) -> None:
    before = cluster.runs()
    cluster.patch(storage={"archive": {"size": "80Mi"}})
    wait_until(lambda: sizes(cluster, "archive") == {"80Mi"}, "every archive has grown", READY_S)
    cluster.wait_whole()
    for pod in cluster.pods():
        seen_by_pod = Path(f"/proc/{process_of(pod.uid)}/root/var/lib")
        data, archive = (os.statvfs(seen_by_pod / name) for name in ("muster", "muster-archive"))
        assert (data.f_blocks * data.f_frsize, archive.f_blocks * archive.f_frsize) == (96 << 20, 80 << 20)
    assert (cluster.runs(), cluster.status()["archiveSize"], sizes(cluster)) == (before, "80Mi", {"96Mi"})


def test_full_disks_are_grown_out_of(cluster: Cared) -> None:
    """All of them, so that nobody can lead: the way out is the spec."""
    load = Load.begin(cluster, "full")
    before = cluster.runs()
    for pod in cluster.pods():
        fill(Path(f"/proc/{process_of(pod.uid)}/root/var/lib/muster"))
    wait_until(
        lambda: (
            cluster.condition("Stalled").get("reason") == "PartitionsLeaderless"
            or any(each.state != "Led" for each in cluster.partitions().values())
        ),
        "partitions are not led",
        READY_S,
    )
    cluster.patch(storage={"size": "160Mi"})
    cluster.wait_whole()
    load.goes_on()
    load.end_with_nothing_lost()
    assert cluster.runs() == before


def test_smaller_size_is_refused(cluster: Cared) -> None:
    said = cluster.patch(check=False, storage={"size": "32Mi"})
    assert "spec.storage.size must not fall below status.volumeSize: a volume never shrinks" in said


def test_pod_that_comes_later_has_a_volume_of_the_declared_size(cluster: Cared) -> None:
    cluster.patch(pods=4)
    cluster.wait_whole()
    assert [len(cluster.pods()), sizes(cluster)] == [4, {"160Mi"}]


def claims(cluster: Cared) -> dict[str, str]:
    """Uids of those that are bound, by name."""
    bound = (each for each in cluster.objects("persistentvolumeclaims") if each["status"]["phase"] == "Bound")
    return {each["metadata"]["name"]: each["metadata"]["uid"] for each in bound}


def lose_node_of(cluster: Cared, pod: str) -> None:
    """As the API server shows it when a node is deleted, and its pods are collected."""
    for kind in ("data", "archive"):
        node_is_gone(cluster.namespace, f"{kind}-{pod}")
    cluster.kubectl("delete", "pod", pod, "--grace-period=0", "--force")


def test_volume_on_a_node_that_is_gone_is_given_up_by_the_command_of_the_message(cluster: Cared) -> None:
    before, pod = claims(cluster), f"{NAME}-1"
    load = Load.begin(cluster, "told")
    lose_node_of(cluster, pod)
    cluster.wait_for_reason("Stalled", "VolumeStranded")
    wait_until(lambda: "kubectl" in cluster.condition("Stalled").get("message", ""), "nothing needs it", READY_S)
    said = cluster.condition("Stalled")["message"]
    assert "only node gone can use it, which does not exist any more" in said
    assert claims(cluster) == before
    kubectl(*said.split("give the volume up: kubectl ")[1].split(";")[0].split())
    cluster.wait_whole()
    load.goes_on()
    load.end_with_nothing_lost()
    assert {name for name, uid in claims(cluster).items() if before[name] != uid} == {f"data-{pod}", f"archive-{pod}"}


def test_volume_on_a_node_that_is_gone_is_given_up_after_the_declared_time_under_load(cluster: Cared) -> None:
    before, pod = claims(cluster), f"{NAME}-2"
    cluster.patch(storage={"giveUpAfter": "6s"})
    load = Load.begin(cluster, "given-up")
    lose_node_of(cluster, pod)
    wait_until(lambda: before != claims(cluster) and len(claims(cluster)) == len(before), "another claim", READY_S)
    cluster.wait_whole()
    load.goes_on()
    load.end_with_nothing_lost()
    assert {name for name, uid in claims(cluster).items() if before[name] != uid} == {f"data-{pod}", f"archive-{pod}"}
    places = [[one["pod"] for one in each["status"]["replicas"]] for each in cluster.objects("offsetspartitions")]
    assert any(pod in each for each in places), "it has its copies again"


@pytest.fixture
def rigid_class() -> Iterator[None]:
    (default,) = (
        each for each in Cared("default", "").objects("storageclasses") if each["metadata"]["name"] == "limited"
    )
    kubectl(
        *("apply", "-f", "-"),
        stdin=f'{{"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {{"name": "{RIGID}"}},'
        f' "provisioner": "{default["provisioner"]}"}}',
    )
    yield
    kubectl("delete", "storageclass", RIGID)


def test_growth_that_the_storage_class_refuses_is_told_and_taken_back(cluster: Cared, rigid_class: None) -> None:
    with cared_for(
        f"{NAMESPACE}-rigid", "rigid", pods=1, factor=1, storage={"size": "64Mi", "storageClassName": RIGID}
    ) as rigid:
        before = rigid.runs()
        rigid.patch(storage={"size": "128Mi"})
        assert "must support resize" in rigid.wait_for_reason("Stalled", "GrowthRefused")
        rigid.patch(storage={"size": "64Mi"})
        rigid.wait_whole()
        assert rigid.runs() == before
