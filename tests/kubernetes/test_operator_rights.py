"""The operator's rights (config/rbac.yaml) suffice for everything that it does, and for little else."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml
from msgspec.structs import replace as replaced
from tests.support.kube import REPOSITORY, custom_resources, kubectl, namespace

from muster_operator.api.conditions import Condition
from muster_operator.api.crds import SCHEMA
from muster_operator.api.models import (
    Backups,
    BackupStore,
    CoordinatorCluster,
    CoordinatorClusterStatus,
    Layout,
    LeadershipRecord,
    ObjectMeta,
    OffsetsPartitionStatus,
    OffsetsTopicStatus,
    RestoreFrom,
    RestorePlan,
    Security,
)
from muster_operator.kube.certificates import Certificates
from muster_operator.kube.client import Json, KubeClient, KubeError, connect
from muster_operator.kube.definitions import DEFINITIONS
from muster_operator.kube.elector import Elector
from muster_operator.kube.events import EventRecorder
from muster_operator.kube.run import sources
from muster_operator.kube.store import KubeStore
from muster_operator.kube.workload import KubeWorkload
from muster_operator.plan.actions import MakeClaim, MarkClaims
from muster_operator.plan.restore_facts import Made
from muster_operator.store.port import ClusterKey, NotFoundError
from muster_operator.watch.watcher import Watcher

__all__ = ["custom_resources", "namespace"]

pytestmark = pytest.mark.kubernetes


def declared(namespace: str) -> list[dict[str, object]]:
    """A cluster with a gateway, and its topic."""
    spec = {"pods": 1, "upstream": {"bootstrapServers": "kafka:9092"}, "gateway": {"replicas": 0}}
    cluster = {"kind": "CoordinatorCluster", "metadata": {"name": "a", "namespace": namespace}, "spec": spec}
    topic = {
        "kind": "OffsetsTopic",
        "metadata": {"name": "t", "namespace": namespace},
        "spec": {"clusterRef": {"name": "a"}, "partitions": 2},
    }
    return [{"apiVersion": "muster.dev/v1alpha1", **each} for each in (cluster, topic)]


@pytest.fixture
def operator_namespace(namespace: str) -> Iterator[str]:
    """A namespace with the operator's service account, roles and bindings, as config/rbac.yaml has them."""
    rendered = (REPOSITORY / "config/rbac.yaml").read_text(encoding="utf-8").replace("muster-system", namespace)
    with installed(namespace, list(yaml.safe_load_all(rendered))):
        yield namespace


@contextmanager
def installed(namespace: str, rights: list[dict[str, Any]]) -> Iterator[None]:
    """These objects, and a cluster and its topic."""

    def own(name: str) -> str:
        return f"{name}-{namespace}"

    for each in rights:
        if each["kind"].startswith(("Cluster", "Validating")):  # so that an installed operator keeps its own
            each["metadata"]["name"] = own(each["metadata"]["name"])
            if each.get("roleRef", {}).get("kind") == "ClusterRole":
                each["roleRef"]["name"] = own(each["roleRef"]["name"])
            if "policyName" in each.get("spec", {}):
                each["spec"]["policyName"] = own(each["spec"]["policyName"])
    kubectl("apply", "-n", namespace, "-f", "-", stdin=yaml.safe_dump_all([*rights, *declared(namespace)]))
    try:
        yield
    finally:
        for each in rights:
            if each["kind"].startswith(("Cluster", "Validating")):
                kubectl("delete", each["kind"], each["metadata"]["name"])


@pytest_asyncio.fixture
async def operator_client(
    operator_namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[KubeClient]:
    """A client with the service account's token and nothing else."""
    token = kubectl("create", "token", "muster-operator", "-n", operator_namespace).stdout.strip()
    view = yaml.safe_load(kubectl("config", "view", "--minify", "--raw", "-o", "yaml").stdout)
    view["users"][0]["user"] = {"token": token}
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(view), encoding="utf-8")
    monkeypatch.setenv("KUBECONFIG", str(file))
    client = await connect()
    yield client
    await client.close()


async def test_operator_does_all_its_work_with_its_own_rights(
    operator_namespace: str, operator_client: KubeClient, tmp_path: Path
) -> None:
    recorder = EventRecorder(operator_client, "me")
    store = KubeStore(operator_client, lambda _: 1, events=recorder)
    certificates = Certificates(operator_client, tmp_path / "keys")
    workload = KubeWorkload(operator_client, "muster:1", certificates=certificates)
    await store.load()
    await workload.load()
    records = await store.observe(ClusterKey(operator_namespace, "a"))
    assert records.cluster is not None
    assert (await workload.ensure_pods(records.cluster)).startswith("applied")
    key = ClusterKey(operator_namespace, "a")
    assert certificates.trouble(key) == ""
    assert certificates.tls(key) is not None
    again = Certificates(operator_client, tmp_path / "other")
    await again.keep(records.cluster)
    assert (again.trouble(key), again.end(key)) == ("", certificates.end(key)), "the next operator adopts them"
    renewed = replaced(records.cluster, spec=replaced(records.cluster.spec, security=Security(ca_round=1)))
    await again.keep(renewed)
    assert again.trouble(key) == "", "it may change what it has made"
    assert await outdated_definitions(operator_client) == "", "as read with its own rights"
    await store.create_partitions(records.topics[0], [0, 1])
    records = await store.observe(ClusterKey(operator_namespace, "a"))
    assert records.cluster is not None
    recorded = await store.record_leadership(records.topics[0], {"0": LeadershipRecord("a-0", 1).line})
    for partition in records.partitions:
        await store.write_partition_status(partition, OffsetsPartitionStatus(epoch=1, leader="a-0"))
    await store.write_topic_status(recorded, OffsetsTopicStatus(1))
    ready = (Condition("Ready", "True", "AllPartitionsLed", "all led", "2026-01-01T00:00:00Z", 1),)
    await store.write_cluster_status(records.cluster, CoordinatorClusterStatus(1, ready))
    await posted_event(recorder, operator_namespace)

    leading = asyncio.Event()

    async def lead() -> None:
        leading.set()

    await Elector(operator_client, operator_namespace, "muster-operator", "me").run(lead)
    assert leading.is_set()
    for one in (
        declared_user(operator_namespace),
        declared_group(operator_namespace),
        declared_backup(operator_namespace),
    ):
        kubectl("--kubeconfig", os.environ["MUSTER_TEST_KUBECONFIG"], "apply", "-f", "-", stdin=yaml.safe_dump(one))
    await store.load()
    await begun_backup(store, workload, ClusterKey(operator_namespace, "a"))
    await begun_restore(store, workload, ClusterKey(operator_namespace, "a"))
    await told_by_watch(store, workload)


def declared_backup(namespace: str) -> dict[str, object]:
    meta = {"name": "b", "namespace": namespace}
    spec = {"clusterRef": {"name": "a"}}
    return {"apiVersion": "muster.dev/v1alpha1", "kind": "MusterBackup", "metadata": meta, "spec": spec}


async def begun_backup(store: KubeStore, workload: KubeWorkload, key: ClusterKey) -> None:
    """A Job is made for the MusterBackup that there is."""
    records = await store.observe(key)
    assert records.cluster is not None
    backups = Backups(BackupStore(claim="backups"))
    cluster = replaced(records.cluster, spec=replaced(records.cluster.spec, backup=backups))
    await workload.backups.start(cluster, (), records.backups[0], "", verify=False)


async def begun_restore(store: KubeStore, workload: KubeWorkload, key: ClusterKey) -> None:
    """A claim is made for a restore, and noted with how far it is."""
    records = await store.observe(key)
    assert records.cluster is not None
    source = RestoreFrom(BackupStore(claim="backups"))
    cluster = replaced(records.cluster, spec=replaced(records.cluster.spec, restore_from=source))
    plan = RestorePlan("20261128T091702Z-abcdef", 0, "id", 0, 10, Layout(0, 1))
    await workload.restores.carry_out(cluster, MakeClaim(9, plan))
    await workload.restores.look(cluster)
    facts = workload.restores.facts(cluster)
    assert facts is not None
    made = tuple(each for each in facts.claims if each.pod == 9)
    await workload.restores.carry_out(cluster, MarkClaims(made, Made.VOLUME))
    await workload.restores.look(cluster)
    facts = workload.restores.facts(cluster)
    assert facts is not None
    assert [each.made for each in facts.claims if each.pod == 9] == [Made.VOLUME]


def declared_user(namespace: str) -> dict[str, object]:
    meta = {"name": "u", "namespace": namespace}
    spec = {"clusterRef": {"name": "a"}}
    return {"apiVersion": "muster.dev/v1alpha1", "kind": "MusterUser", "metadata": meta, "spec": spec}


def declared_group(namespace: str) -> dict[str, object]:
    meta = {"name": "g", "namespace": namespace}
    spec = {"clusterRef": {"name": "a"}, "group": "g", "coordinator": "Kafka"}
    return {"apiVersion": "muster.dev/v1alpha1", "kind": "ConsumerGroup", "metadata": meta, "spec": spec}


async def outdated_definitions(client: KubeClient) -> str:
    name = "offsetstopics.muster.dev"
    assert SCHEMA in (await client.get(f"{DEFINITIONS}/{name}"))["metadata"]["annotations"]
    workload = KubeWorkload(client, "muster:1")
    await workload.load()
    return workload.state(CoordinatorCluster(ObjectMeta("a"))).outdated_definitions


async def posted_event(recorder: EventRecorder, namespace: str) -> None:
    """The event about the cluster reaches the API server."""
    admin = ("--kubeconfig", os.environ["MUSTER_TEST_KUBECONFIG"])  # the operator may not read events
    posting = asyncio.create_task(recorder.run())
    async with asyncio.timeout(20):
        while "AllPartitionsLed" not in kubectl(*admin, "get", "events", "-n", namespace).stdout:
            await asyncio.sleep(0.1)
    posting.cancel()


async def told_by_watch(
    store: KubeStore, workload: KubeWorkload, within: str | None = None, until: Callable[[], bool] = lambda: True
) -> None:
    """Every watch stream delivers at least what is listed. Goes on watching until `until` holds."""
    seen: set[str] = set()
    arrived = asyncio.Event()
    wanted = {source.plural for source in sources(store, workload)} - {"pods"}  # no kubelet: no pods

    def spy(plural: str) -> None:
        seen.add(plural)
        if seen >= wanted:
            arrived.set()

    spied = tuple(
        replace(source, deliver=lambda event, raw, plural=source.plural: spy(plural))
        for source in sources(store, workload)
    )
    watcher = Watcher(spied, within, lambda: None)
    watcher.start()
    try:
        async with asyncio.timeout(60):
            await arrived.wait()
            while not await asyncio.to_thread(until):
                await asyncio.sleep(0.2)
    finally:
        await watcher.close()


@pytest.mark.parametrize(
    "question",
    [
        ("get", "secrets"),
        ("list", "secrets"),
        ("watch", "secrets"),
        ("delete", "secrets"),
        ("get", "secrets/a-pod-tls"),
        ("get", "secrets/first-muster-user"),
        ("update", "musterusers.muster.dev"),
        ("delete", "musterusers.muster.dev"),
        ("update", "consumergroups.muster.dev"),
        ("delete", "consumergroups.muster.dev"),
        ("get", "persistentvolumeclaims"),
        ("deletecollection", "persistentvolumeclaims"),
        ("delete", "persistentvolumes"),
        ("list", "persistentvolumes"),
        ("watch", "nodes"),
        ("get", "configmaps"),
        ("create", "pods"),
        ("update", "coordinatorclusters.muster.dev"),
        ("delete", "offsetspartitions.muster.dev"),
        ("list", "namespaces"),
        ("list", "customresourcedefinitions.apiextensions.k8s.io"),
    ],
    ids=" ".join,
)
def test_operator_may_not(operator_namespace: str, question: tuple[str, str]) -> None:
    account = f"system:serviceaccount:{operator_namespace}:muster-operator"
    answer = kubectl("auth", "can-i", *question, "--as", account, "-n", operator_namespace, check=False)
    assert answer.stdout.strip() == "no"


async def test_operator_writes_no_secret_but_its_own(operator_namespace: str, operator_client: KubeClient) -> None:
    """A refused patch tells nothing of what is there: so the right to patch is no right to read."""
    path = f"/api/v1/namespaces/{operator_namespace}/secrets"

    def body(name: str, kind: str = "kubernetes.io/tls", **labels: str) -> dict[str, object]:
        metadata = {"name": name, "namespace": operator_namespace, "labels": labels}
        return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": kind}

    mine = ("create", "secret", "generic", "mine", "--from-literal=password=s3cret", "-n", operator_namespace)
    admin = ("--kubeconfig", os.environ["MUSTER_TEST_KUBECONFIG"])
    kubectl(*admin, *mine)
    foreign = yaml.safe_dump({**body("x-pod-tls"), "stringData": {"tls.crt": "", "tls.key": ""}})
    kubectl(*admin, "create", "-f", "-", stdin=foreign)
    ours = {"app.kubernetes.io/managed-by": "muster-operator"}
    kubectl(*admin, "create", "secret", "generic", "x-muster-user", "--from-literal=a=b", "-n", operator_namespace)
    tries = (
        *(body("mine", "Opaque"), body("mine", "Opaque", **ours), body("new", "Opaque")),
        *(body("x-pod-tls"), body("x-muster-user", "Opaque"), body("new-muster-user")),
    )
    for tried in tries:
        name = tried["metadata"]["name"]  # type: ignore[index]
        async with asyncio.timeout(20):
            while not (refusal := await refused(operator_client.apply(f"{path}/{name}", tried))):
                await asyncio.sleep(0.2)  # the API server reads policies every second or so
        assert "s3cret" not in refusal
    for name in ("mine", "x-pod-tls", "x-muster-user"):  # nor is it shown what is there
        for metadata_only in (False, True):
            refusal = await refused(operator_client.look(f"{path}/{name}", metadata_only=metadata_only))
            assert f"the operator of Muster writes no Secret {name}" in refusal or "was not made by" in refusal
    token = body("t-pod-tls", "kubernetes.io/service-account-token")
    assert await refused(operator_client.create(path, token))


async def test_operator_looks_at_a_secret_of_its_own_without_a_right_to_read_it(
    operator_namespace: str, operator_client: KubeClient
) -> None:
    """Also when somebody has taken its label; and nothing is written."""
    path = f"/api/v1/namespaces/{operator_namespace}/secrets/a-pod-tls"
    owner = kubectl("get", "coordinatorcluster", "a", "-n", operator_namespace, "-o", "jsonpath={.metadata.uid}").stdout
    named = {"apiVersion": "muster.dev/v1alpha1", "kind": "CoordinatorCluster", "name": "a", "uid": owner}
    ours = {"app.kubernetes.io/managed-by": "muster-operator"}
    body = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "a-pod-tls", "labels": ours, "ownerReferences": [{**named, "controller": True}]},
        "type": "kubernetes.io/tls",
        "data": {"tls.crt": "", "tls.key": ""},
    }
    made = await operator_client.apply(path, body)
    for taken in (False, True):
        if taken:
            admin = ("--kubeconfig", os.environ["MUSTER_TEST_KUBECONFIG"], "-n", operator_namespace)
            kubectl(*admin, "label", "secret", "a-pod-tls", "app.kubernetes.io/managed-by-")
        version = version_of_the_secret(operator_namespace)
        assert (await operator_client.look(path))["data"] == made["data"]
        looked = await operator_client.look(path, metadata_only=True)
        assert looked["metadata"]["resourceVersion"] == version == version_of_the_secret(operator_namespace)
        assert "data" not in looked
    with pytest.raises(NotFoundError):
        await operator_client.look(path.replace("a-pod-tls", "b-pod-tls"))


def version_of_the_secret(namespace: str) -> str:
    admin = ("--kubeconfig", os.environ["MUSTER_TEST_KUBECONFIG"])
    path = "jsonpath={.metadata.resourceVersion}"
    return kubectl(*admin, "-n", namespace, "get", "secret", "a-pod-tls", "-o", path).stdout


async def test_operator_makes_and_deletes_no_claim_but_those_of_its_pods(
    operator_namespace: str, operator_client: KubeClient
) -> None:
    """One that has the right name, one that has the label, and one of another cluster."""
    path = f"/api/v1/namespaces/{operator_namespace}/persistentvolumeclaims"
    admin = ("--kubeconfig", os.environ["MUSTER_TEST_KUBECONFIG"])

    def claim(name: str, **labels: str) -> str:
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
        metadata = {"name": name, "namespace": operator_namespace, "labels": labels}
        body = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}
        kubectl(*admin, "create", "-f", "-", stdin=yaml.safe_dump(body))
        return kubectl(*admin, "get", "pvc", name, "-n", operator_namespace, "-o", "jsonpath={.metadata.uid}").stdout

    async def tried(name: str, **labels: str) -> str:
        uid = claim(name, **labels)
        return await refused(operator_client.delete(f"{path}/{name}", uid))

    async with asyncio.timeout(20):
        number = 0
        while not await tried(f"no-policy-yet-{number}"):  # the API server reads policies every second or so
            number += 1
            await asyncio.sleep(0.2)
    assert "deletes no claim data-a-1" in await tried("data-a-1")
    assert "deletes no claim mine" in await tried("mine", **{"muster.dev/cluster": "a"})
    assert "deletes no claim data-b-0" in await tried("data-b-0", **{"muster.dev/cluster": "a"})
    assert await tried("data-a-0", **{"muster.dev/cluster": "a"}) == ""
    assert await tried("archive-a-0", **{"muster.dev/cluster": "a"}) == ""

    def made(name: str) -> Json:
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
        metadata = {"name": name, "namespace": operator_namespace, "labels": {"muster.dev/cluster": "a"}}
        return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}

    assert "makes no claim data-b-1" in await refused(operator_client.create(path, made("data-b-1")))
    assert (await operator_client.create(path, made("data-a-7")))["metadata"]["name"] == "data-a-7"


async def refused(request: Awaitable[object]) -> str:
    """What the API server says; "": it took the request."""
    try:
        await request
    except KubeError as error:
        return str(error) if error.status in (403, 422) else ""
    return ""


def test_kustomize_base_is_taken_by_the_api_server(custom_resources: None) -> None:
    rendered = subprocess.run(
        ["kubectl", "kustomize", str(REPOSITORY / "config")], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    kinds = [each["kind"] for each in yaml.safe_load_all(rendered)]
    assert sorted(set(kinds)) == [
        "ClusterRole",
        "ClusterRoleBinding",
        "Deployment",
        "Namespace",
        "NetworkPolicy",
        "Role",
        "RoleBinding",
        "ServiceAccount",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    ]
    kubectl("apply", "--dry-run=server", "-f", str(REPOSITORY / "config/rbac.yaml"), "-n", "default")
    kubectl("apply", "--dry-run=server", "-f", str(REPOSITORY / "config/deletion-protection.yaml"))
    kubectl("apply", "--dry-run=server", "-f", str(REPOSITORY / "config/operator.yaml"), "-n", "default")
