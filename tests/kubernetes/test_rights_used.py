"""Least rights: what the operator does, by the audit log of the API server, is all that it may do, in both modes."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace
from tests.kubernetes.test_operator_rights import (
    begun_backup,
    begun_restore,
    declared,
    declared_backup,
    installed,
    operator_client,
    posted_event,
    told_by_watch,
)
from tests.support.kube import REPOSITORY, custom_resources, kubectl, namespace, node_is_gone
from tests.support.rights import Right, granted

from muster_operator.api.conditions import Condition
from muster_operator.api.listener_security import Access
from muster_operator.api.models import (
    ConsumerGroupStatus,
    CoordinatorCluster,
    CoordinatorClusterStatus,
    LeadershipRecord,
    Listener,
    MusterBackupStatus,
    MusterUserStatus,
    OffsetsPartitionStatus,
    OffsetsTopicStatus,
    Security,
    Storage,
)
from muster_operator.clock import SYSTEM_CLOCK
from muster_operator.kube.certificates import Certificates
from muster_operator.kube.client import Json, KubeClient
from muster_operator.kube.elector import Elector
from muster_operator.kube.events import EventRecorder
from muster_operator.kube.invalid import InvalidObjects
from muster_operator.kube.run import KubeOptions, own_image
from muster_operator.kube.store import KubeStore
from muster_operator.kube.workload import KubeWorkload
from muster_operator.store.port import ClusterKey, ConflictError

__all__ = ["custom_resources", "namespace", "operator_client"]

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(240)]

AUDIT = os.environ.get("MUSTER_TEST_AUDIT", "")
BUILT_HELM = REPOSITORY / ".cache" / "bin" / "helm"
HELM = str(BUILT_HELM) if BUILT_HELM.exists() else shutil.which("helm")
EVERYWHERE, ONE = "all namespaces", "one namespace"

if not AUDIT:
    pytest.skip("needs the audit log of an API server: hack/localkube, or MUSTER_TEST_AUDIT", allow_module_level=True)


@pytest.fixture(params=[EVERYWHERE, ONE])
def mode(request: pytest.FixtureRequest) -> str:
    if request.param == ONE and HELM is None:
        pytest.skip("needs helm: make helm")
    return str(request.param)


@pytest.fixture
def rights(mode: str, namespace: str) -> list[Json]:
    """The objects of the base, or of the chart for one namespace."""
    if mode == EVERYWHERE:
        rendered = (REPOSITORY / "config/rbac.yaml").read_text(encoding="utf-8").replace("muster-system", namespace)
    else:
        chosen = ["--show-only", "templates/rbac.yaml", "--set", f"operator.watchNamespace={namespace}"]
        command = [str(HELM), "template", "muster", str(REPOSITORY / "charts/muster"), "-n", namespace, *chosen]
        rendered = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    return [each for each in yaml.safe_load_all(rendered) if each]


@pytest.fixture
def operator_namespace(rights: list[Json], namespace: str) -> Iterator[str]:
    with installed(namespace, rights):
        yield namespace


def used(namespace: str) -> set[Right]:
    """What the account was let do, with and without names. An apply that made its object has created it as well."""
    account, found = f"system:serviceaccount:{namespace}:muster-operator", set[Right]()
    for line in Path(AUDIT).read_text(encoding="utf-8").splitlines():
        if account not in line:
            continue
        event = json.loads(line)
        about = event.get("objectRef")
        if event["user"]["username"] != account or not about:
            continue
        if event["annotations"].get("authorization.k8s.io/decision") != "allow":
            continue
        resource = "/".join(part for part in (about["resource"], about.get("subresource", "")) if part)
        verbs = [event["verb"]]
        if event["verb"] == "patch" and event.get("responseStatus", {}).get("code") == 201:
            verbs.append("create")
        for verb in verbs:
            found |= {(about.get("apiGroup", ""), resource, verb, name) for name in ("", about.get("name", ""))}
    return found


def unused(rights: list[Json], namespace: str) -> set[Right]:
    return granted(rights) - used(namespace)


def admin(*arguments: str, stdin: str | None = None) -> str:
    return kubectl("--kubeconfig", os.environ["MUSTER_TEST_KUBECONFIG"], *arguments, stdin=stdin).stdout


async def test_every_right_that_is_granted_is_used(
    mode: str, rights: list[Json], operator_namespace: str, operator_client: KubeClient, tmp_path: Path
) -> None:
    work = Work(operator_client, operator_namespace, operator_namespace if mode == ONE else None, tmp_path)
    await work.with_pods()
    await work.with_records()
    await work.with_users()
    await work.with_groups()
    await work.with_backups()
    await work.with_others()
    try:
        await told_by_watch(work.store, work.workload, work.within, lambda: not unused(rights, operator_namespace))
    except TimeoutError:
        assert unused(rights, operator_namespace) == set(), "granted, and nothing has used it"
        raise


class Work:
    """All that an operator does, by its own code; `within`: the only namespace that it watches."""

    def __init__(self, client: KubeClient, namespace: str, within: str | None, folder: Path) -> None:
        self.client = client
        self.within = within
        self.key = ClusterKey(namespace, "a")
        self.recorder = EventRecorder(client, "me")
        self.store = KubeStore(client, lambda _: 1, within, self.recorder)
        certificates = Certificates(client, folder)
        self.workload = KubeWorkload(client, "muster:1", within, certificates=certificates)

    async def cluster(self, **changes: Any) -> CoordinatorCluster:
        records = await self.store.observe(self.key)
        assert records.cluster is not None
        return replace(records.cluster, spec=replace(records.cluster.spec, **changes))

    async def with_pods(self) -> None:
        """Own image; objects of a cluster and its gateway made, changed, deleted; nodes, volumes, a pod restarted."""
        namespace = self.key.namespace
        container = {"name": "pod", "image": "docker.io/library/pause:local", "imagePullPolicy": "Never"}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "me"}, "spec": {"containers": [container]}}
        admin("apply", "-n", namespace, "-f", "-", stdin=json.dumps(pod))
        assert await own_image(self.client, KubeOptions("me", namespace)) == container["image"]
        await self.store.load()
        await self.workload.load()
        outside = Listener("outside", 9094, type="NodePort")
        with_outside = await self.cluster(listeners=(Listener("internal"), outside))
        await self.workload.ensure_pods(with_outside)
        await self.workload.ensure_pods(await self.cluster(gateway=None))
        await self._until(lambda: admin("get", "pvc", "-n", namespace, "-o", "jsonpath={..phase}") == "Bound")
        await self.workload.load()
        await self.workload.ensure_pods(await self.cluster(storage=Storage(size="20Gi")))
        (pod_info,) = await self.workload.pods(self.key)
        await self.workload.restart_pod(self.key, pod_info.name, pod_info.uid)
        if self.within is None:  # an operator of one namespace sees no nodes
            await self.with_lost_node(await self.cluster())

    async def with_lost_node(self, cluster: CoordinatorCluster) -> None:
        """The volume can be used by a node alone that does not exist."""
        node_is_gone(self.key.namespace, "data-a-0")
        admin("delete", "pod", "a-0", "-n", self.key.namespace)
        async with asyncio.timeout(60):
            while not (stranded := self.workload.state(cluster).stranded):
                await self.workload.load()
                await self.workload.ensure_pods(cluster)
                await asyncio.sleep(0.5)
        assert await self.workload.replace_volume(self.key, stranded[0])

    async def with_records(self) -> None:
        """Partitions, statuses, and what is read anew after a conflict."""
        records = await self.store.observe(self.key)
        await self.store.create_partitions(records.topics[0], [0])
        for kind in ("offsetstopics", "offsetspartitions"):  # changed by somebody, and no watch has told
            admin("annotate", kind, "--all", "-n", self.key.namespace, "by=somebody")
        records = await self.store.observe(self.key)
        line = {"0": LeadershipRecord("a-0", 1).line}
        with pytest.raises(ConflictError):
            await self.store.record_leadership(records.topics[0], line)
        with pytest.raises(ConflictError):
            await self.store.write_partition_status(records.partitions[0], OffsetsPartitionStatus(epoch=1))
        records = await self.store.observe(self.key)
        recorded = await self.store.record_leadership(records.topics[0], line)
        await self.store.write_partition_status(records.partitions[0], OffsetsPartitionStatus(epoch=1))
        await self.store.write_topic_status(recorded, OffsetsTopicStatus(1))
        ready = (Condition("Ready", "True", "AllPartitionsLed", "all led", "2026-01-01T00:00:00Z", 1),)
        await self.store.write_cluster_status(await self.cluster(), CoordinatorClusterStatus(1, ready))
        await posted_event(self.recorder, self.key.namespace)

    async def with_users(self) -> None:
        """MusterUsers, their passwords and statuses; one is changed by somebody, and no watch has told."""
        cluster = await self.cluster(access=Access(muster_users=True))
        for name in ("first", "second"):
            body = {"apiVersion": "muster.dev/v1alpha1", "kind": "MusterUser", "metadata": {"name": name}}
            body["spec"] = {"clusterRef": {"name": self.key.name}}
            admin("apply", "-n", self.key.namespace, "-f", "-", stdin=json.dumps(body))
            await self.store.load()
            await self.workload.keep_users(cluster, (await self.store.observe(self.key)).users or ())
        state = self.workload.access(cluster, (await self.store.observe(self.key)).users or ())
        assert state is not None
        assert (set(state.image.users), state.trouble) == ({"first", "second"}, {})
        assert "first-muster-user" in admin("get", "secrets", "-n", self.key.namespace, "-o", "name")
        admin("annotate", "musterusers", "--all", "-n", self.key.namespace, "by=somebody")
        first, _ = (await self.store.observe(self.key)).users or ()
        with pytest.raises(ConflictError):
            await self.store.write_user_status(first, MusterUserStatus(1))
        first, _ = (await self.store.observe(self.key)).users or ()
        await self.store.write_user_status(first, MusterUserStatus(1))

    async def with_groups(self) -> None:
        """A ConsumerGroup, which somebody changes, and no watch has told."""
        body = {"apiVersion": "muster.dev/v1alpha1", "kind": "ConsumerGroup", "metadata": {"name": "orders"}}
        body["spec"] = {"clusterRef": {"name": self.key.name}, "group": "orders", "coordinator": "Muster"}
        admin("apply", "-n", self.key.namespace, "-f", "-", stdin=json.dumps(body))
        await self.store.load()
        admin("annotate", "consumergroups", "--all", "-n", self.key.namespace, "by=somebody")
        (group,) = (await self.store.observe(self.key)).groups or ()
        with pytest.raises(ConflictError):
            await self.store.write_group_status(group, ConsumerGroupStatus(1))
        (group,) = (await self.store.observe(self.key)).groups or ()
        await self.store.write_group_status(group, ConsumerGroupStatus(1))

    async def with_backups(self) -> None:
        """A MusterBackup with its Job; it is changed by somebody, and no watch has told."""
        admin("apply", "-f", "-", stdin=json.dumps(declared_backup(self.key.namespace)))
        await self.store.load()
        await begun_backup(self.store, self.workload, self.key)
        await begun_restore(self.store, self.workload, self.key)
        admin("annotate", "musterbackups", "--all", "-n", self.key.namespace, "by=somebody")
        (backup,) = (await self.store.observe(self.key)).backups
        with pytest.raises(ConflictError):
            await self.store.write_backup_status(backup, MusterBackupStatus(1))
        (backup,) = (await self.store.observe(self.key)).backups
        await self.store.write_backup_status(backup, MusterBackupStatus(1))

    async def with_others(self) -> None:
        """Another CA, another cluster, an object that nobody understands, and the Lease."""
        await self.workload.ensure_pods(await self.cluster(security=Security(ca_round=1)))
        second = declared(self.key.namespace)[0]
        second["metadata"] = {"name": "b", "namespace": self.key.namespace}
        admin("apply", "-f", "-", stdin=json.dumps(second))
        await self.store.load()
        records = await self.store.observe(ClusterKey(self.key.namespace, "b"))
        assert records.cluster is not None
        await self.workload.ensure_pods(records.cluster)
        name = f"coordinatorclusters.muster.dev/{records.cluster.metadata.name}"
        raw = json.loads(admin("get", name, "-n", self.key.namespace, "-o", "json"))
        InvalidObjects(self.client, SYSTEM_CLOCK).report(CoordinatorCluster, raw, "by a test")
        await self._until(lambda: "InvalidSpec" in admin("get", name, "-n", self.key.namespace, "-o", "json"))
        led = asyncio.Event()

        async def lead() -> None:
            led.set()

        await Elector(self.client, self.key.namespace, "muster-operator", "me").run(lead)
        assert led.is_set()

    async def _until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not await asyncio.to_thread(holds):
                await asyncio.sleep(0.2)
