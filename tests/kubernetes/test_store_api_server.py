"""The store over a real API server: compare-and-swap, ownership, caches and kopf's watch."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
import pytest_asyncio
import yaml
from tests.support.kube import api_server, custom_resources, kubectl, namespace
from tests.support.muster_cluster import wait_until

from muster_operator.api.conditions import Condition, find_condition
from muster_operator.api.models import (
    CoordinatorClusterStatus,
    LeadershipRecord,
    OffsetsPartitionStatus,
    OffsetsTopicStatus,
    PartitionState,
    Replica,
)
from muster_operator.kube.claims import LOOK_EVERY_S
from muster_operator.kube.client import KubeClient
from muster_operator.kube.run import sources
from muster_operator.kube.store import KubeStore
from muster_operator.kube.users import KubeUsers
from muster_operator.kube.workload import KubeWorkload
from muster_operator.store.port import ClusterKey, ConflictError, NotFoundError
from muster_operator.watch.watcher import Watcher

__all__ = ["api_server", "custom_resources", "namespace"]

pytestmark = pytest.mark.kubernetes


def apply(kind: str, namespace: str, name: str, spec: dict[str, object]) -> None:
    metadata = {"name": name, "namespace": namespace}
    body = {"apiVersion": "muster.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}
    kubectl("apply", "-f", "-", stdin=yaml.safe_dump(body))


@dataclass
class Keys:
    """Collects notified keys, and lets a test wait for a state that a notification brings."""

    told: list[ClusterKey] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def __call__(self, key: ClusterKey) -> None:
        self.told.append(key)
        self.changed.set()

    async def until(self, done: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not done():
                self.changed.clear()
                await self.changed.wait()


@pytest_asyncio.fixture
async def store(api_server: KubeClient, namespace: str) -> KubeStore:
    """A loaded store over one cluster `a` with a topic `t` of 3 partitions."""
    apply("CoordinatorCluster", namespace, "a", {"pods": 1})
    apply("OffsetsTopic", namespace, "t", {"clusterRef": {"name": "a"}, "partitions": 3})
    store = KubeStore(api_server, lambda _: 1, namespace)
    await store.load()
    return store


async def test_created_partitions_are_owned_by_the_topic_and_created_once(store: KubeStore, namespace: str) -> None:
    key = ClusterKey(namespace, "a")
    (topic,) = (await store.observe(key)).topics
    await store.create_partitions(topic, [0, 1, 2])
    await store.create_partitions(topic, [0, 1, 2])
    records = await store.observe(key)
    assert [partition.metadata.name for partition in records.partitions] == ["t-0", "t-1", "t-2"]
    raw = json.loads(kubectl("get", "offsetspartition/t-1", "-n", namespace, "-o", "json").stdout)
    assert raw["metadata"]["ownerReferences"][0]["uid"] == topic.metadata.uid


async def test_record_of_a_stale_topic_conflicts_writes_nothing_and_is_read_anew(
    api_server: KubeClient, store: KubeStore, namespace: str
) -> None:
    key = ClusterKey(namespace, "a")
    (seen,) = (await store.observe(key)).topics
    first = {"0": LeadershipRecord("a-0", 1, replicas=(Replica("a-0", "log-1"),), uid="one").line}
    other = KubeStore(api_server, lambda _: 2, namespace)
    await other.load()
    written = await other.record_leadership(seen, first)
    assert written.status.leaderships == first
    with pytest.raises(ConflictError):
        await store.record_leadership(seen, {"0": LeadershipRecord("a-1", 1).line})
    shown = kubectl("get", "offsetstopic/t", "-n", namespace, "-o", "json", "--show-managed-fields").stdout
    raw = json.loads(shown)
    assert raw["status"]["leaderships"] == {"0": "epoch=1 led=-1 leader=a-0 replicas=a-0/log-1 uid=one"}
    (present,) = (await store.observe(key)).topics
    assert present.status == written.status
    # The whole record is replaced: what the new one does not have is gone.
    again = await store.record_leadership(present, {"1": LeadershipRecord("a-0", 2).line})
    assert again.status.leaderships == {"1": LeadershipRecord("a-0", 2).line}
    fields = next(each for each in raw["metadata"]["managedFields"] if each.get("subresource") == "status")
    assert fields["fieldsV1"]["f:status"]["f:leaderships"] == {}, "the record is one field"


async def test_status_of_a_stale_partition_conflicts_and_writes_nothing(store: KubeStore, namespace: str) -> None:
    key = ClusterKey(namespace, "a")
    (topic,) = (await store.observe(key)).topics
    await store.create_partitions(topic, [0])
    (seen,) = (await store.observe(key)).partitions
    first = OffsetsPartitionStatus(leader="a-0", epoch=1, state=PartitionState.ELECTING)
    await store.write_partition_status(seen, first)
    (shown,) = (await store.observe(key)).partitions
    assert shown.status == first
    with pytest.raises(ConflictError):
        await store.write_partition_status(seen, OffsetsPartitionStatus(leader="a-1", epoch=2))
    raw = json.loads(kubectl("get", "offsetspartition/t-0", "-n", namespace, "-o", "json").stdout)
    assert raw["status"]["leader"] == "a-0"
    # The whole status is replaced: what the new one does not have is gone.
    await store.write_partition_status(shown, msgspec.structs.replace(first, leader=None, epoch=2))
    (again,) = (await store.observe(key)).partitions
    assert (again.status.leader, again.status.epoch) == (None, 2)


async def test_write_to_an_object_that_is_gone_is_not_found_and_leaves_the_cache(
    store: KubeStore, namespace: str
) -> None:
    key = ClusterKey(namespace, "a")
    (topic,) = (await store.observe(key)).topics
    cluster = (await store.observe(key)).cluster
    assert cluster is not None
    await store.create_partitions(topic, [0])
    (partition,) = (await store.observe(key)).partitions
    for name in ("offsetspartition/t-0", "offsetstopic/t", "coordinatorcluster/a"):
        kubectl("delete", name, "-n", namespace)
    with pytest.raises(NotFoundError):
        await store.write_partition_status(partition, OffsetsPartitionStatus(epoch=1))
    with pytest.raises(NotFoundError):
        await store.write_topic_status(topic, OffsetsTopicStatus())
    with pytest.raises(NotFoundError):
        await store.write_cluster_status(cluster, CoordinatorClusterStatus())
    assert await store.clusters() == ()


async def test_cluster_status_is_applied_over_the_default_condition(store: KubeStore, namespace: str) -> None:
    key = ClusterKey(namespace, "a")
    cluster = (await store.observe(key)).cluster
    assert cluster is not None
    ready = Condition("Ready", "True", "AllPartitionsLed", "", "2026-01-01T00:00:00Z", 1)
    stalled = Condition("Stalled", "True", "LogLost", "", "2026-01-01T00:00:00Z", 1)
    await store.write_cluster_status(cluster, CoordinatorClusterStatus(1, (ready, stalled), led=3, bootstrap="x:1"))
    await store.write_cluster_status(cluster, CoordinatorClusterStatus(1, (ready,), led=2))
    after = (await store.observe(key)).cluster
    assert after is not None
    assert after.status == CoordinatorClusterStatus(1, (ready,), led=2)
    kubectl("wait", "--for=condition=Ready", "--timeout=5s", "-n", namespace, "coordinatorcluster/a")


@pytest_asyncio.fixture
async def watched(store: KubeStore, api_server: KubeClient, namespace: str) -> AsyncIterator[Keys]:
    """The store with a running watch; the keys that it tells."""
    workload = KubeWorkload(api_server, "image", namespace)
    watcher = Watcher(sources(store, workload), namespace, lambda: None)
    keys = Keys()
    store.watch(keys)
    watcher.start()
    yield keys
    await watcher.close()


async def test_watch_brings_changes_of_others_and_writes_nothing_on_objects(
    store: KubeStore, watched: Keys, namespace: str
) -> None:
    key = ClusterKey(namespace, "b")
    apply("CoordinatorCluster", namespace, "b", {"pods": 2})
    await watched.until(lambda: key in watched.told)
    cluster = (await store.observe(key)).cluster
    assert cluster is not None
    assert cluster.spec.pods == 2
    raw = json.loads(kubectl("get", "coordinatorcluster/b", "-n", namespace, "-o", "json").stdout)
    assert set(raw["metadata"].get("annotations", {})) <= {"kubectl.kubernetes.io/last-applied-configuration"}
    assert "finalizers" not in raw["metadata"]
    watched.told.clear()
    kubectl("delete", "coordinatorcluster/b", "-n", namespace)
    await watched.until(lambda: key in watched.told)
    assert (await store.observe(key)).cluster is None


async def test_partition_without_topic_is_under_the_empty_key(store: KubeStore, watched: Keys, namespace: str) -> None:
    orphans = ClusterKey(namespace, "")
    apply("OffsetsPartition", namespace, "lost-0", {"topicRef": {"name": "lost"}, "index": 0})
    await watched.until(lambda: orphans in watched.told)
    assert [each.metadata.name for each in (await store.observe(orphans)).partitions] == ["lost-0"]


async def test_load_repairs_what_no_watch_told(store: KubeStore, namespace: str) -> None:
    kubectl("delete", "offsetstopic/t", "-n", namespace)
    apply("CoordinatorCluster", namespace, "a", {"pods": 5})
    await store.load()
    records = await store.observe(ClusterKey(namespace, "a"))
    assert records.topics == ()
    assert records.cluster is not None
    assert records.cluster.spec.pods == 5
    assert find_condition(records.cluster.status.conditions, "Ready") is not None


# -- passwords of MusterUsers -----------------------------------------------------------------------------------------


async def test_retained_password_outlives_its_user(store: KubeStore, api_server: KubeClient, namespace: str) -> None:
    """The API server takes the owner of the Secret away when the operator leaves it out, and its collector deletes a
    Secret whose owner is gone."""
    key = ClusterKey(namespace, "a")
    (cluster,) = [each for each in [(await store.observe(key)).cluster] if each is not None]
    clock = 0.0
    users = KubeUsers(api_server, lambda: clock)

    async def declare(name: str, policy: str) -> None:
        """Declared, and its password kept."""
        nonlocal clock
        apply("MusterUser", namespace, name, {"clusterRef": {"name": "a"}, "reclaimPolicy": policy})
        await store.load()
        clock += LOOK_EVERY_S
        await users.keep(cluster, (await store.observe(key)).users or ())

    def secret(name: str) -> dict[str, Any]:
        found = kubectl("get", "secret", f"{name}-muster-user", "-n", namespace, "-o", "json")
        return dict(json.loads(found.stdout))

    await declare("kept", "Delete")
    await declare("gone", "Delete")
    password = secret("kept")["data"]["password"]
    assert len(secret("kept")["metadata"]["ownerReferences"]) == 1
    await declare("kept", "Retain")
    assert "ownerReferences" not in secret("kept")["metadata"]
    kubectl("delete", "musteruser", "kept", "gone", "-n", namespace)
    wait_until(lambda: "gone-muster-user" not in _secrets(namespace), "the Secret that is not retained is deleted")
    assert secret("kept")["data"]["password"] == password
    await declare("kept", "Delete")
    assert secret("kept")["data"]["password"] == password
    assert len(secret("kept")["metadata"]["ownerReferences"]) == 1
    kubectl("delete", "musteruser", "kept", "-n", namespace)
    wait_until(lambda: "kept-muster-user" not in _secrets(namespace), "and now it is, too")


def _secrets(namespace: str) -> str:
    return kubectl("get", "secrets", "-n", namespace, "-o", "name").stdout
