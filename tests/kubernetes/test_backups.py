"""Backups on Kubernetes: a Job on schedule and one for a MusterBackup, into a volume."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml
from confluent_kafka import Consumer, TopicPartition
from tests.support.kube import custom_resources, kubectl
from tests.support.muster_cluster import MusterCluster, wait_until

__all__ = ["custom_resources"]

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(1800)]

NAMESPACE = "muster-backups"
JOB_S = 600
TOPIC, PARTITIONS = "orders", 6
GROUPS = ("billing-1", "billing-2", "shipping")
CLAIM = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "backups"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}
BACKUP = {"store": {"claim": "backups"}, "schedule": "* * * * *", "keep": 3}


def declared(name: str, **spec: Any) -> list[dict[str, Any]]:
    """A cluster with both topics, whose pods advertise their addresses."""

    def resource(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
        return {"apiVersion": "muster.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}

    cluster = {
        "pods": 3,
        "listeners": [{"name": "internal", "advertise": "PodIP"}],
        "storage": {"size": "1Gi"},
        "topics": [{"name": TOPIC, "partitions": PARTITIONS}],
        "deletionPolicy": "Delete",
        **spec,
    }
    groups = {"clusterRef": {"name": name}, "partitions": 6, "replicationFactor": 3}
    transactions = {**groups, "partitions": 3, "topic": "__transaction_state"}
    return [
        resource("CoordinatorCluster", name, cluster),
        resource("OffsetsTopic", f"{name}-offsets", groups),
        resource("OffsetsTopic", f"{name}-transactions", transactions),
    ]


def apply(*objects: dict[str, Any]) -> None:
    kubectl("-n", NAMESPACE, "apply", "-f", "-", stdin=yaml.safe_dump_all(objects))


def get(kind: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(kubectl("-n", NAMESPACE, "get", kind, name, "-o", "json").stdout)
    return found


def consumer(cluster: MusterCluster, group: str) -> Consumer:
    return Consumer({"bootstrap.servers": cluster.bootstrap(), "group.id": group, "enable.auto.commit": False})


def commit(cluster: MusterCluster, position: int) -> dict[str, list[int]]:
    """Commits for all groups; what each has then."""
    for group in GROUPS:
        client = consumer(cluster, group)
        offsets = [TopicPartition(TOPIC, index, position + index) for index in range(PARTITIONS)]
        client.commit(offsets=offsets, asynchronous=False)
        client.close()
    return {group: [position + index for index in range(PARTITIONS)] for group in GROUPS}


def committed(cluster: MusterCluster) -> dict[str, list[int]]:
    found = {}
    for group in GROUPS:
        client = consumer(cluster, group)
        answer = client.committed([TopicPartition(TOPIC, index) for index in range(PARTITIONS)], timeout=30)
        client.close()
        found[group] = [each.offset for each in answer]
    return found


def backed_up(name: str) -> dict[str, Any]:
    """Ask for a backup of cluster `old`, and wait for it. Its status."""
    spec = {"clusterRef": {"name": "old"}, "verify": True}
    apply({"apiVersion": "muster.dev/v1alpha1", "kind": "MusterBackup", "metadata": {"name": name}, "spec": spec})

    def ended() -> bool:
        return get("musterbackup", name).get("status", {}).get("phase") in ("Completed", "Failed")

    wait_until(ended, f"MusterBackup {name} ends", JOB_S)
    status: dict[str, Any] = get("musterbackup", name)["status"]
    assert status["phase"] == "Completed", status
    return status


def backups_of(name: str) -> dict[str, Any]:
    found: dict[str, Any] = get("coordinatorcluster", name).get("status", {}).get("backups", {})
    return found


@pytest.fixture(scope="module")
def namespace(operator: None) -> Iterator[str]:
    """Admits restricted pods only: the Jobs are such."""
    kubectl("create", "namespace", NAMESPACE)
    kubectl("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=restricted")
    try:
        apply(CLAIM)
        yield NAMESPACE
    finally:
        print(kubectl("-n", NAMESPACE, "get", "coordinatorclusters,musterbackups", "-o", "yaml", check=False).stdout)
        print(kubectl("-n", NAMESPACE, "get", "jobs,pods,pvc,events", "-o", "wide", check=False).stdout)
        print(kubectl("-n", NAMESPACE, "logs", "-l", "app.kubernetes.io/name=muster-backup", check=False).stdout)
        kubectl("delete", "namespace", NAMESPACE, "--wait=false")


def test_backups_on_schedule_and_on_demand_are_shown_with_what_they_have(namespace: str) -> None:
    cluster = MusterCluster(namespace, "old")
    apply(*declared("old", backup=BACKUP))
    cluster.wait_ready(240)
    commit(cluster, 1_000)
    wait_until(lambda: "lastBackup" in backups_of("old"), "a backup on schedule", JOB_S)
    scheduled = backups_of("old")
    assert scheduled["lastTaken"] > scheduled["lastScheduled"]
    assert scheduled["lastVerified"]
    assert not scheduled.keys() & {"lastError", "verifyProblem"}

    now = backed_up("now")
    assert now["verified"] is True
    assert now["bytes"] > 0
    assert now["taken"] >= scheduled["lastTaken"]
    row = kubectl("-n", namespace, "get", "musterbackup", "now", "--no-headers").stdout.split()
    assert row[:4] == ["now", "Completed", "old", now["backup"]]
    events = json.loads(kubectl("-n", namespace, "get", "events", "-o", "json").stdout)["items"]
    assert ("MusterBackup", "now", "BackedUp") in {
        (each["involvedObject"]["kind"], each["involvedObject"]["name"], each["reason"]) for each in events
    }
    second = scheduled["lastScheduled"]
    wait_until(lambda: backups_of("old")["lastScheduled"] > second, "the next time of the schedule", JOB_S)


def test_backup_that_fails_is_a_condition_until_one_is_made(namespace: str) -> None:
    def conditions() -> set[str]:
        return {each["type"] for each in get("coordinatorcluster", "old")["status"]["conditions"]}

    def schedule(**store: Any) -> None:
        patch = json.dumps({"spec": {"backup": {"store": store}}})
        kubectl("-n", namespace, "patch", "coordinatorcluster", "old", "--type=merge", "-p", patch)

    nowhere = {"bucket": "nowhere", "endpoint": "http://127.0.0.1:9"}
    schedule(claim=None, s3=nowhere)
    wait_until(lambda: "BackupFailed" in conditions(), "the failure is a condition", JOB_S)
    message = next(
        each["message"]
        for each in get("coordinatorcluster", "old")["status"]["conditions"]
        if each["type"] == "BackupFailed"
    )
    assert "s3://nowhere/muster-backups/old" in message
    schedule(claim="backups", s3=None)
    wait_until(lambda: "BackupFailed" not in conditions(), "a backup is made again", JOB_S)


def restored(name: str) -> dict[str, Any]:
    """The condition Restored; {} if there is none."""
    conditions = get("coordinatorcluster", name).get("status", {}).get("conditions", [])
    return next((each for each in conditions if each["type"] == "Restored"), {})


def delete_clusters(*, volumes_left: int) -> None:
    """Without the volume of the backups."""
    kubectl("-n", NAMESPACE, "delete", "offsetstopics,coordinatorclusters", "--all", "--wait")

    def are_gone() -> bool:
        pods = kubectl("-n", NAMESPACE, "get", "pods", "-l", "muster.dev/cluster", "-o", "name").stdout.split()
        claims = kubectl("-n", NAMESPACE, "get", "pvc", "-l", "muster.dev/cluster", "-o", "name").stdout.split()
        return not pods and len(claims) == volumes_left

    wait_until(are_gone, f"pods go, and {volumes_left} volumes are left", JOB_S)


def restoring(**source: str) -> list[dict[str, Any]]:
    """The cluster with another number of pods, and fewer replicas. `source`: backup or at."""
    source = {"store": {"claim": "backups"}, **source}
    found = declared("old", pods=2, restoreFrom=source, deletionPolicy="Retain")
    for each in found[1:]:
        each["spec"]["replicationFactor"] = 1
    return found


def test_lost_cluster_begins_from_a_moment_between_backups_with_other_pods_and_never_empty(namespace: str) -> None:
    """All its objects and volumes are deleted. A backup that is not there makes no cluster. A moment that is there is
    restored once: created again with the same spec, the cluster goes on from its volumes."""
    cluster = MusterCluster(namespace, "old")
    commit(cluster, 2_000)
    backed_up("before")
    then = commit(cluster, 3_000)
    at = datetime.now(UTC).isoformat(timespec="milliseconds")
    commit(cluster, 3_500)
    backed_up("after")
    was = get("coordinatorcluster", "old")["status"]["clusterId"]
    epochs = {index: each.epoch for index, each in cluster.partitions().items()}
    delete_clusters(volumes_left=0)

    apply(*restoring(backup="20000101T000000Z-000000"))
    wait_until(lambda: restored("old").get("reason") == "RestoreFailed", "the failure is a condition", JOB_S)
    assert "20000101T000000Z-000000" in restored("old")["message"]
    assert kubectl("-n", namespace, "get", "statefulsets,pvc", "-l", "muster.dev/cluster", "-o", "name").stdout == ""
    delete_clusters(volumes_left=0)

    apply(*restoring(at=at))
    cluster.wait_ready(JOB_S)
    status = get("coordinatorcluster", "old")["status"]
    assert status["clusterId"] == was
    assert (restored("old")["status"], restored("old")["reason"]) == ("True", "Restored")
    shown = status["restore"]
    assert (shown["phase"], shown["taken"], shown["volumes"]) == ("Completed", f"{at[:19]}Z", 2)
    assert committed(cluster) == then
    led = cluster.partitions()
    assert led.keys() == epochs.keys()
    assert all(led[index].epoch > epochs[index] for index in epochs)

    later = commit(cluster, 4_000)
    delete_clusters(volumes_left=2)
    apply(*restoring(at=at))
    cluster.wait_ready(JOB_S)
    assert committed(cluster) == later
