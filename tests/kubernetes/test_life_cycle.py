"""What a platform team does to the objects of a cluster that serves: nothing of it loses an offset."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from tests.support.kube import kubectl
from tests.support.muster_cluster import MusterCluster, Partition, wait_until

from muster_cli.demo.consumers import committed_offsets
from muster_cli.demo.meter import Meter

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(400)]

NAMESPACE, NAME, TOPIC, PARTITIONS = "muster-life-cycle", "life", "orders", 8
READY_S = 150.0


def manifests(pods: int) -> str:
    meta = {"name": NAME}
    cluster = {
        "apiVersion": "muster.dev/v1alpha1",
        "kind": "CoordinatorCluster",
        "metadata": meta,
        "spec": {
            "pods": pods,
            "listeners": {"kafka": {"advertise": "PodIP"}},
            "storage": {"size": "1Gi"},
            "topics": [{"name": TOPIC, "partitions": 6}],
            "failover": {"rebalanceAfter": "2s"},
        },
    }
    topic = {
        "apiVersion": "muster.dev/v1alpha1",
        "kind": "OffsetsTopic",
        "metadata": meta,
        "spec": {"clusterRef": meta, "partitions": PARTITIONS, "replicationFactor": 3},
    }
    return "\n---\n".join(map(json.dumps, (cluster, topic)))


@dataclass
class Load:
    """Clients that commit rising offsets, each for a group of its own; the groups are in several partitions."""

    cluster: MusterCluster
    meters: list[Meter]

    @classmethod
    def begin(cls, cluster: MusterCluster, name: str) -> Load:
        meters = [Meter(cluster.bootstrap(), f"{name}-{number}", TOPIC) for number in range(6)]
        for meter in meters:
            meter.start()
        wait_until(lambda: all(meter.count > 20 for meter in meters), "clients commit")
        return cls(cluster, meters)

    def goes_on(self) -> None:
        now = time.monotonic()
        wait_until(lambda: all(meter.count_after(now) > 20 for meter in self.meters), "clients commit again")

    def end(self) -> dict[str, int]:
        for meter in self.meters:
            meter.stop()
        assert [meter.error for meter in self.meters] == [None] * len(self.meters)
        return {meter.group: meter.count for meter in self.meters}


def nothing_is_lost(cluster: MusterCluster, acknowledged: dict[str, int]) -> None:
    """Neither lost nor reverted nor invented: at most the one commit that had no answer is there as well."""
    for group, offset in acknowledged.items():
        found = committed_offsets(cluster.bootstrap(), group, TOPIC, 1, 20.0)
        assert found[0] in (offset, offset + 1), group


def status(cluster: MusterCluster) -> dict[str, Any]:
    (found,) = cluster.objects("coordinatorclusters")
    return dict(found.get("status", {}))


def condition(cluster: MusterCluster, kind: str) -> dict[str, str]:
    found = (each for each in status(cluster).get("conditions", ()) if each["type"] == kind)
    return dict(next(found, {}))


def wait_ready(cluster: MusterCluster) -> None:
    def ready() -> bool:
        topics = cluster.objects("offsetstopics")
        conditions = [each for topic in topics for each in topic.get("status", {}).get("conditions", ())]
        led = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
        return led and condition(cluster, "Ready").get("status") == "True"

    wait_until(ready, "cluster and topic are Ready", READY_S)


@pytest.fixture(scope="module")
def cluster(operator: None) -> Iterator[MusterCluster]:
    kubectl("create", "namespace", NAMESPACE)
    made = MusterCluster(NAMESPACE, NAME)
    try:
        kubectl("-n", NAMESPACE, "apply", "-f", "-", stdin=manifests(5))
        wait_ready(made)
        yield made
    finally:
        print(made.summary())
        kubectl("delete", "namespace", NAMESPACE, "--wait=false")


def epochs(partitions: dict[int, Partition]) -> dict[int, int]:
    return {index: each.epoch for index, each in partitions.items()}


def test_topic_and_partitions_pruned_and_applied_again_are_led_on(cluster: MusterCluster) -> None:
    before = cluster.partitions()
    load = Load.begin(cluster, "pruned")
    cluster.kubectl("delete", "offsetstopics", "--all", "--wait=true")
    wait_until(lambda: not cluster.partitions(), "the partitions are gone")
    kubectl("-n", NAMESPACE, "apply", "-f", "-", stdin=manifests(5))
    wait_ready(cluster)
    load.goes_on()
    nothing_is_lost(cluster, load.end())
    assert cluster.partitions() == before, "no election was needed"


def test_partition_that_is_deleted_alone_comes_back_as_it_was(cluster: MusterCluster) -> None:
    before = cluster.partitions()
    load = Load.begin(cluster, "one")
    cluster.kubectl("delete", "offsetspartition", f"{NAME}-3")
    wait_until(lambda: cluster.partitions() == before, "it is led again")
    wait_ready(cluster)
    nothing_is_lost(cluster, load.end())


def test_everything_deleted_and_applied_again_has_the_same_offsets_and_cluster_id(cluster: MusterCluster) -> None:
    before, cluster_id = cluster.partitions(), status(cluster)["clusterId"]
    (uid,) = (each["metadata"]["uid"] for each in cluster.objects("coordinatorclusters"))
    acknowledged = Load.begin(cluster, "all").end()
    cluster.kubectl("delete", "offsetstopics,coordinatorclusters", "--all", "--wait=true")
    wait_until(lambda: not cluster.objects("statefulsets"), "the StatefulSet is collected")
    kubectl("-n", NAMESPACE, "apply", "-f", "-", stdin=manifests(5))
    wait_ready(cluster)
    assert cluster.objects("coordinatorclusters")[0]["metadata"]["uid"] != uid
    assert status(cluster)["clusterId"] == cluster_id
    after = cluster.partitions()
    assert all(after[index].epoch > epoch for index, epoch in epochs(before).items())
    nothing_is_lost(cluster, acknowledged)


def test_fewer_pods_are_emptied_first_and_no_commit_is_lost(cluster: MusterCluster) -> None:
    load = Load.begin(cluster, "scaled")
    kubectl("-n", NAMESPACE, "scale", "coordinatorcluster", NAME, "--replicas=3")
    leaderless: set[str] = set()

    def scaled() -> bool:
        leaderless.update(each.state for each in cluster.partitions().values())
        return len(cluster.pods()) == 3

    wait_until(scaled, "two pods are gone", READY_S)
    wait_ready(cluster)
    assert leaderless <= {"Led", "Electing"}
    load.goes_on()
    nothing_is_lost(cluster, load.end())
    places = [one["pod"] for each in cluster.objects("offsetspartitions") for one in each["status"]["replicas"]]
    assert set(places) == {f"{NAME}-{number}" for number in range(3)}


def test_fewer_pods_than_copies_are_refused_with_the_way_out(cluster: MusterCluster) -> None:
    kubectl("-n", NAMESPACE, "scale", "coordinatorcluster", NAME, "--replicas=1")
    wait_until(lambda: condition(cluster, "Stalled").get("reason") == "ScaleDownBlocked", "it is said")
    command = condition(cluster, "Stalled")["message"].split("Keep the pods: ")[1].split("; or ")[0]
    assert len(cluster.pods()) == 3
    kubectl(*(word.strip("'") for word in command.split()[1:]))
    wait_ready(cluster)
    assert len(cluster.pods()) == 3


def test_settings_that_a_pod_would_refuse_restart_nobody(cluster: MusterCluster) -> None:
    before = {pod.name: (pod.uid, pod.restarts) for pod in cluster.pods()}

    def setting(value: object) -> None:
        patch = json.dumps({"spec": {"settings": {"group.max.sise": value}}})
        cluster.kubectl("patch", "coordinatorcluster", NAME, "--type=merge", "-p", patch)

    setting("5")
    wait_until(lambda: condition(cluster, "Stalled").get("reason") == "InvalidSettings", "it is said")
    assert "did you mean group.max.size?" in condition(cluster, "Stalled")["message"]
    setting(None)
    wait_ready(cluster)
    assert {pod.name: (pod.uid, pod.restarts) for pod in cluster.pods()} == before


def test_cluster_that_hibernates_goes_on_with_its_offsets(cluster: MusterCluster) -> None:
    acknowledged = Load.begin(cluster, "asleep").end()

    def asleep(value: bool) -> None:
        patch = json.dumps({"spec": {"hibernate": value}})
        cluster.kubectl("patch", "coordinatorcluster", NAME, "--type=merge", "-p", patch)

    asleep(True)
    wait_until(lambda: not cluster.pods(), "no pod runs", READY_S)
    wait_until(lambda: condition(cluster, "Ready").get("reason") == "Hibernated", "it is said")
    asleep(False)
    wait_ready(cluster)
    nothing_is_lost(cluster, acknowledged)
