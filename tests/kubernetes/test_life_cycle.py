"""What a platform team does to the objects of a cluster that serves: nothing of it loses an offset."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.kube import as_list, install_operator, kubectl
from tests.support.muster_cluster import Partition, wait_until
from tests.support.platform_team import READY_S, Cared, Load, cared_for, nothing_is_lost

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(400)]

NAMESPACE, NAME = "muster-life-cycle", "life"


@pytest.fixture(scope="module")
def cluster(custom_resources: None) -> Iterator[Cared]:
    install_operator()
    with cared_for(NAMESPACE, NAME, pods=5) as made:
        yield made


def epochs(partitions: dict[int, Partition]) -> dict[int, int]:
    return {index: each.epoch for index, each in partitions.items()}


def test_topic_and_partitions_pruned_and_applied_again_are_led_on(cluster: Cared) -> None:
    cluster.wait_at_home()
    before = cluster.partitions()
    load = Load.begin(cluster, "pruned")
    cluster.kubectl("delete", "offsetstopics", "--all", "--wait=true")
    wait_until(lambda: not cluster.partitions(), "the partitions are gone")
    cluster.apply(pods=5)
    cluster.wait_whole()
    load.goes_on()
    load.end_with_nothing_lost()
    assert cluster.partitions() == before, "no election was needed"


def test_partition_that_is_deleted_alone_comes_back_as_it_was(cluster: Cared) -> None:
    cluster.wait_at_home()
    before = cluster.partitions()
    load = Load.begin(cluster, "one")
    cluster.kubectl("delete", "offsetspartition", f"{NAME}-3")
    wait_until(lambda: cluster.partitions() == before, "it is led again")
    cluster.wait_whole()
    load.end_with_nothing_lost()


def test_everything_deleted_and_applied_again_has_the_same_offsets_and_cluster_id(cluster: Cared) -> None:
    before, cluster_id = cluster.partitions(), cluster.status()["clusterId"]
    (uid,) = (each["metadata"]["uid"] for each in cluster.objects("coordinatorclusters"))
    acknowledged = Load.begin(cluster, "all").end()
    cluster.kubectl("delete", "offsetstopics,coordinatorclusters", "--all", "--wait=true")
    wait_until(lambda: not cluster.objects("statefulsets"), "the StatefulSet is collected")
    cluster.apply(pods=5)
    cluster.wait_whole()
    assert cluster.objects("coordinatorclusters")[0]["metadata"]["uid"] != uid
    assert cluster.status()["clusterId"] == cluster_id
    after = cluster.partitions()
    assert all(after[index].epoch > epoch for index, epoch in epochs(before).items())
    nothing_is_lost(cluster, acknowledged)


KINDS = "coordinatorclusters,offsetstopics,offsetspartitions"
"""In the order in which to delete them: without a cluster the operator makes no partition again."""


def without_status(item: dict[str, Any]) -> dict[str, Any]:
    """As a backup is restored: what people declared, under another uid."""
    meta = {name: item["metadata"][name] for name in ("name", "namespace", "labels") if name in item["metadata"]}
    return {"apiVersion": item["apiVersion"], "kind": item["kind"], "metadata": meta, "spec": item["spec"]}


def test_everything_restored_without_statuses_goes_on_under_load_without_an_election(cluster: Cared) -> None:
    cluster.wait_at_home()
    before, runs, cluster_id = cluster.partitions(), cluster.runs(), cluster.status()["clusterId"]
    load = Load.begin(cluster, "restored")
    backup = [without_status(each) for each in reversed(cluster.objects(KINDS))]  # partitions before their topic
    cluster.kubectl("delete", KINDS, "--all", "--cascade=orphan", "--wait=true")
    restored = kubectl("create", "-f", "-", stdin=as_list(backup), check=False)
    assert restored.returncode == 0, restored.stderr
    cluster.wait_whole()
    load.goes_on()
    load.end_with_nothing_lost()
    assert (cluster.partitions(), cluster.runs(), cluster.status()["clusterId"]) == (before, runs, cluster_id)


def test_fewer_pods_are_emptied_first_and_no_commit_is_lost(cluster: Cared) -> None:
    load = Load.begin(cluster, "scaled")
    kubectl("-n", NAMESPACE, "scale", "coordinatorcluster", NAME, "--replicas=3")
    leaderless: set[str] = set()

    def scaled() -> bool:
        leaderless.update(each.state for each in cluster.partitions().values())
        return len(cluster.pods()) == 3

    wait_until(scaled, "two pods are gone", READY_S)
    cluster.wait_whole()
    assert leaderless <= {"Led", "Electing"}
    load.goes_on()
    load.end_with_nothing_lost()
    places = [one["pod"] for each in cluster.objects("offsetspartitions") for one in each["status"]["replicas"]]
    assert set(places) == {f"{NAME}-{number}" for number in range(3)}


def test_fewer_pods_than_copies_are_refused_with_the_way_out(cluster: Cared) -> None:
    kubectl("-n", NAMESPACE, "scale", "coordinatorcluster", NAME, "--replicas=1")
    command = cluster.wait_for_reason("Stalled", "ScaleDownBlocked").split("Keep the pods: ")[1].split("; or ")[0]
    assert len(cluster.pods()) == 3
    kubectl(*(word.strip("'") for word in command.split()[1:]))
    cluster.wait_whole()
    assert len(cluster.pods()) == 3


def test_settings_that_a_pod_would_refuse_restart_nobody(cluster: Cared) -> None:
    before = cluster.runs()
    cluster.patch(settings={"group.max.sise": "5"})
    assert "did you mean group.max.size?" in cluster.wait_for_reason("Stalled", "InvalidSettings")
    cluster.patch(settings={"group.max.sise": None})
    cluster.wait_whole()
    assert cluster.runs() == before


def test_cluster_that_hibernates_goes_on_with_its_offsets(cluster: Cared) -> None:
    acknowledged = Load.begin(cluster, "asleep").end()
    cluster.patch(hibernate=True)
    wait_until(lambda: not cluster.pods(), "no pod runs", READY_S)
    cluster.wait_for_reason("Ready", "Hibernated")
    cluster.patch(hibernate=False)
    cluster.wait_whole()
    nothing_is_lost(cluster, acknowledged)


def test_pods_that_are_wanted_again_are_used_again(cluster: Cared) -> None:
    load = Load.begin(cluster, "larger")
    kubectl("-n", NAMESPACE, "scale", "coordinatorcluster", NAME, "--replicas=5")
    wait_until(lambda: len(cluster.pods()) == 5, "five pods exist")
    cluster.wait_whole()
    load.goes_on()
    load.end_with_nothing_lost()
    assert cluster.status()["readyPods"] == 5


def test_copies_are_taken_away_and_added_again_under_load(cluster: Cared) -> None:
    load = Load.begin(cluster, "copies")
    for factor in (1, 3, 1, 3):
        cluster.patch("offsetstopic", replicationFactor=factor)
        cluster.wait_whole()
        assert {len(each["status"]["replicas"]) for each in cluster.objects("offsetspartitions")} == {factor}
        load.goes_on()
    load.end_with_nothing_lost()
