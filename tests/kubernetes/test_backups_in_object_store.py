"""Backups on Kubernetes in an object store: a namespace is lost with all that is in it, and its cluster restored; and
what is said when the store refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from tests.kubernetes.test_backups import JOB_S, commit, committed, declared
from tests.support.kube import custom_resources, kubectl
from tests.support.kube_s3 import BUCKET, S3Pod, s3_pod
from tests.support.muster_cluster import MusterCluster, wait_until
from tests.support.s3_server import WHY_NONE, compiled

__all__ = ["custom_resources"]

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(1800)]

NAMESPACE, STORES = "muster-s3-backups", "muster-s3"
KEYS, WRONG = "keys", "wrong-keys"
CLUSTER = "shop"


@pytest.fixture(scope="module")
def s3(operator: None) -> Iterator[S3Pod]:
    program = compiled()
    if program is None:
        pytest.skip(WHY_NONE)
    with s3_pod(STORES, program) as server:
        yield server


@pytest.fixture(scope="module")
def namespace(s3: S3Pod) -> Iterator[str]:
    """Admits restricted pods only, and has the Secrets."""
    begin(s3)
    try:
        yield NAMESPACE
    finally:
        print(kubectl("-n", NAMESPACE, "get", "coordinatorclusters,musterbackups", "-o", "yaml", check=False).stdout)
        print(kubectl("-n", NAMESPACE, "get", "jobs,pods,pvc,events", "-o", "wide", check=False).stdout)
        kubectl("delete", "namespace", NAMESPACE, "--wait=false")


def begin(s3: S3Pod) -> None:
    kubectl("create", "namespace", NAMESPACE)
    kubectl("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=restricted")
    secret(KEYS, s3.keys)
    secret(WRONG, {**s3.keys, "AWS_SECRET_ACCESS_KEY": "wrong"})


def secret(name: str, keys: dict[str, str]) -> None:
    apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": keys})


def apply(*objects: dict[str, Any]) -> None:
    kubectl("-n", NAMESPACE, "apply", "-f", "-", stdin=yaml.safe_dump_all(objects))


def status(kind: str, name: str) -> dict[str, Any]:
    found = json.loads(kubectl("-n", NAMESPACE, "get", kind, name, "-o", "json").stdout)
    shown: dict[str, Any] = found.get("status", {})
    return shown


def condition(kind: str, name: str, wanted: str) -> dict[str, Any]:
    """The condition of that type; {} if there is none."""
    return next((each for each in status(kind, name).get("conditions", []) if each["type"] == wanted), {})


def store(s3: S3Pod, bucket: str = BUCKET, secret_name: str = KEYS) -> dict[str, Any]:
    return {"s3": {"bucket": bucket, "endpoint": s3.endpoint, "credentialsSecret": secret_name}}


def keeps(s3: S3Pod, bucket: str = BUCKET, secret_name: str = KEYS) -> None:
    """Where the cluster's backups are from now on."""
    patch = json.dumps({"spec": {"backup": {"store": store(s3, bucket, secret_name)}}})
    kubectl("-n", NAMESPACE, "patch", "coordinatorcluster", CLUSTER, "--type=merge", "-p", patch)


def ask(name: str) -> None:
    spec = {"clusterRef": {"name": CLUSTER}, "verify": True}
    apply({"apiVersion": "muster.dev/v1alpha1", "kind": "MusterBackup", "metadata": {"name": name}, "spec": spec})


def ended(name: str) -> dict[str, Any]:
    """The status of a MusterBackup when it is Completed or Failed."""
    wait_until(lambda: status("musterbackup", name).get("phase") in ("Completed", "Failed"), f"{name} ends", JOB_S)
    return status("musterbackup", name)


@pytest.fixture(scope="module")
def cluster(namespace: str, s3: S3Pod) -> MusterCluster:
    made = MusterCluster(namespace, CLUSTER)
    apply(*declared(CLUSTER, backup={"store": store(s3)}))
    made.wait_ready(240)
    return made


@pytest.mark.parametrize(
    ("name", "bucket", "secret_name", "said"),
    [
        ("with-a-wrong-secret", BUCKET, WRONG, ("SignatureDoesNotMatch", "credentialsSecret")),
        ("into-no-bucket", "nowhere", KEYS, ("NoSuchBucket", "s3://nowhere/", "create the bucket")),
    ],
)
def test_refusal_of_the_store_is_in_the_conditions_until_a_backup_is_made(
    name: str, bucket: str, secret_name: str, said: tuple[str, ...], cluster: MusterCluster, s3: S3Pod
) -> None:
    keeps(s3, bucket, secret_name)
    ask(name)
    assert ended(name)["phase"] == "Failed"
    wait_until(lambda: bool(condition("coordinatorcluster", CLUSTER, "BackupFailed")), "the cluster says so", JOB_S)
    for kind, of, wanted in (("musterbackup", name, "Ready"), ("coordinatorcluster", CLUSTER, "BackupFailed")):
        found = condition(kind, of, wanted)
        assert found["reason"] == "BackupFailed"
        assert [part for part in said if part not in found["message"]] == []
    keeps(s3)
    ask(f"{name}-again")
    made = ended(f"{name}-again")
    assert (made["phase"], made["verified"]) == ("Completed", True), made
    wait_until(lambda: not condition("coordinatorcluster", CLUSTER, "BackupFailed"), "the condition goes", JOB_S)


def test_secret_that_is_not_there_is_told_and_waited_for(cluster: MusterCluster, s3: S3Pod) -> None:
    keeps(s3, secret_name="later")
    ask("before-its-secret")

    def says_so() -> bool:
        return 'secret "later" not found' in condition("musterbackup", "before-its-secret", "Ready").get("message", "")

    wait_until(says_so, "the MusterBackup says which Secret it waits for", JOB_S)
    secret("later", s3.keys)
    assert ended("before-its-secret")["phase"] == "Completed"
    keeps(s3)


def test_lost_namespace_is_restored_from_the_object_store(cluster: MusterCluster, s3: S3Pod) -> None:
    """All objects, Secrets and volumes of it go; nothing but the store is left. A restore with a wrong secret, and one
    from a bucket that is not there, make no volume."""
    cut = commit(cluster, 2_000)
    ask("last")
    backup = ended("last")
    assert (backup["phase"], backup["verified"]) == ("Completed", True), backup
    assert f"{NAMESPACE}/{CLUSTER}/backups/{backup['backup']}.json" in s3.objects()
    commit(cluster, 3_000)
    was = status("coordinatorcluster", CLUSTER)["clusterId"]
    kubectl("delete", "namespace", NAMESPACE, "--wait=false")
    wait_until(lambda: kubectl("get", "namespace", NAMESPACE, check=False).returncode != 0, "the namespace goes", JOB_S)

    begin(s3)
    for bucket, secret_name, said in ((BUCKET, WRONG, "SignatureDoesNotMatch"), ("nowhere", KEYS, "NoSuchBucket")):
        apply(*declared(CLUSTER, restoreFrom={"store": store(s3, bucket, secret_name)}))
        wait_until(
            lambda: condition("coordinatorcluster", CLUSTER, "Restored").get("reason") == "RestoreFailed",
            "the failure is a condition",
            JOB_S,
        )
        assert said in condition("coordinatorcluster", CLUSTER, "Restored")["message"]
        assert cluster.kubectl("get", "statefulsets,pvc", "-l", "muster.dev/cluster", "-o", "name") == ""
        kubectl("-n", NAMESPACE, "delete", "offsetstopics,coordinatorclusters", "--all", "--wait")

    apply(*declared(CLUSTER, restoreFrom={"store": store(s3), "backup": backup["backup"]}))
    cluster.wait_ready(JOB_S)
    found = condition("coordinatorcluster", CLUSTER, "Restored")
    assert (found["status"], found["reason"]) == ("True", "Restored")
    assert status("coordinatorcluster", CLUSTER)["clusterId"] == was
    assert committed(cluster) == cut
