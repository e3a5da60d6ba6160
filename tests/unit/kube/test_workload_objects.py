"""Objects of a cluster that are deleted, changed or restored behind the operator's back are noticed at once."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.kube.test_manifests import cluster, pod
from tests.unit.operator.storm_kube import GROUPS, NAMESPACE, StormApi

from muster_operator.kube.run import sources
from muster_operator.kube.store import KubeStore
from muster_operator.kube.workload import KubeWorkload
from muster_operator.store.port import ClusterKey

KEY = ClusterKey("ns", "a")
OBJECTS = (("services", "a-bootstrap"), ("services", "a-pods"), ("poddisruptionbudgets", "a"), ("statefulsets", "a"))


class Watched:
    """A workload whose watches deliver each change at once, until they are `broken`."""

    def __init__(self) -> None:
        self.api = StormApi()
        self.listed_again = 0
        self.told: list[ClusterKey] = []
        self.workload = KubeWorkload(self.api.as_client(), "muster:1", clock=lambda: 0.0, list_again=self._list_again)
        self.workload.watch(self.told.append)
        self._seen = 0

    def _list_again(self) -> None:
        self.listed_again += 1

    def deliver(self) -> None:
        takers = {each.plural: each.deliver for each in sources(KubeStore(self.api.as_client(), int), self.workload)}
        for change in self.api.objects.since(self._seen) or ():
            if taker := takers.get(change.name[0]):
                taker(change.event, change.raw)
        self._seen = self.api.objects.revision

    async def settled(self) -> Watched:
        await self.workload.load()
        await self.workload.ensure_pods(cluster())
        self.deliver()
        await self.workload.ensure_pods(cluster())
        self.told.clear()
        assert await self.writes() == 0
        return self

    async def writes(self) -> int:
        before = self.api.objects.revision
        await self.workload.ensure_pods(cluster())
        return self.api.objects.revision - before


@pytest.mark.parametrize(("plural", "name"), OBJECTS)
async def test_object_that_is_deleted_is_back_at_once(plural: str, name: str) -> None:
    watched = await Watched().settled()
    watched.api.objects.remove((plural, NAMESPACE, name))
    watched.deliver()
    assert KEY in watched.told
    assert await watched.writes() == 1
    assert watched.api.objects.get(plural, NAMESPACE, name) is not None


@pytest.mark.parametrize(("plural", "name"), OBJECTS)
async def test_deletion_that_no_watch_has_told_is_found_by_the_next_list(plural: str, name: str) -> None:
    """The StatefulSet was taken to be there for five minutes more."""
    watched = await Watched().settled()
    watched.api.objects.remove((plural, NAMESPACE, name))
    await watched.workload.load()
    assert KEY in watched.told
    assert await watched.writes() == 1


@pytest.mark.parametrize(("plural", "name"), OBJECTS[:3])
async def test_object_that_somebody_has_changed_is_as_declared_at_once(plural: str, name: str) -> None:
    watched = await Watched().settled()
    found = watched.api.objects.get(plural, NAMESPACE, name)
    assert found is not None
    path = f"{GROUPS[plural]}/namespaces/{NAMESPACE}/{plural}/{name}"
    status = {"status": {"disruptionsAllowed": 1}}
    watched.api.objects.handle("PUT", path, {}, {**found, **status})
    watched.deliver()
    assert await watched.writes() == 0, "a status is nobody's business"
    found = watched.api.objects.get(plural, NAMESPACE, name)
    assert found is not None
    spec = {**found["spec"], "selector": {"app": "mine"}}
    watched.api.objects.handle("PUT", path, {}, {**found, "spec": spec})
    watched.deliver()
    assert KEY in watched.told
    assert await watched.writes() == 1


@pytest.mark.parametrize(("plural", "name"), OBJECTS)
async def test_object_of_which_somebody_has_changed_a_label_is_as_declared_at_once(plural: str, name: str) -> None:
    """A generation does not tell of it."""
    watched = await Watched().settled()
    found = watched.api.objects.get(plural, NAMESPACE, name)
    assert found is not None
    labels = {**found["metadata"]["labels"], "app.kubernetes.io/instance": "mine"}
    path = f"{GROUPS[plural]}/namespaces/{NAMESPACE}/{plural}/{name}"
    watched.api.objects.handle("PUT", path, {}, {**found, "metadata": {**found["metadata"], "labels": labels}})
    watched.deliver()
    assert KEY in watched.told
    assert await watched.writes() == 1
    found = watched.api.objects.get(plural, NAMESPACE, name)
    assert found is not None
    assert found["metadata"]["labels"]["app.kubernetes.io/instance"] == "a"


async def test_pod_template_that_somebody_has_edited_or_deleted_is_as_it_was_also_if_another_version_made_it() -> None:
    watched = await Watched().settled()
    found = watched.api.objects.get("statefulsets", NAMESPACE, "a")
    assert found is not None
    path = f"{GROUPS['statefulsets']}/namespaces/{NAMESPACE}/statefulsets/a"
    template = {**found["spec"]["template"], "made-by": "an older operator"}
    watched.api.objects.handle("PUT", path, {}, {**found, "spec": {**found["spec"], "template": template}})
    watched.workload = KubeWorkload(watched.api.as_client(), "muster:1", clock=lambda: 0.0)
    watched.workload.watch(watched.told.append)
    await watched.settled()
    for how in ("edited", "deleted"):
        found = watched.api.objects.get("statefulsets", NAMESPACE, "a")
        assert found is not None
        if how == "edited":
            mine = {**template, "spec": {**template["spec"], "terminationGracePeriodSeconds": 1}}
            watched.api.objects.handle("PUT", path, {}, {**found, "spec": {**found["spec"], "template": mine}})
        else:
            watched.api.objects.remove(("statefulsets", NAMESPACE, "a"))
        watched.deliver()
        assert KEY in watched.told
        assert await watched.writes() == 1
        found = watched.api.objects.get("statefulsets", NAMESPACE, "a")
        assert found is not None
        assert found["spec"]["template"] == template
        await watched.settled()


async def test_older_stateful_set_of_a_restored_store_counts_and_is_as_declared_again() -> None:
    """Its resourceVersion is lower than the known one, so it was ignored until the next list, and by that too."""
    watched = await Watched().settled()
    backup = watched.api.objects.backup()
    more = cluster(pods=5)
    await watched.workload.ensure_pods(more)
    watched.deliver()
    watched.api.objects.restore(backup, bump=True)
    raw = watched.api.objects.get("statefulsets", NAMESPACE, "a")
    assert raw is not None
    watched.workload.deliver_stateful_set(None, raw)
    assert watched.listed_again == 1
    await watched.workload.load()
    await watched.workload.ensure_pods(more)
    now = watched.api.objects.get("statefulsets", NAMESPACE, "a")
    assert now is not None
    assert now["spec"]["replicas"] == 5


async def test_pod_that_a_list_shows_older_than_it_is_known_is_listed_again() -> None:
    watched = await Watched().settled()
    newer: dict[str, Any] = pod("a-0", metadata={"resourceVersion": "90"})
    watched.workload.deliver_pod("ADDED", newer)
    watched.workload.deliver_pod(None, pod("a-0", metadata={"resourceVersion": "80"}))
    assert watched.listed_again == 1


def test_everything_that_is_applied_is_watched() -> None:
    api = StormApi().as_client()
    watched = {each.plural for each in sources(KubeStore(api, lambda _: 0), KubeWorkload(api, "muster:1"))}
    assert {plural for plural, _ in OBJECTS} <= watched
