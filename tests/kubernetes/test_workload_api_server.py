"""Server-side apply of a cluster's objects, and the elector's Lease, against a real API server."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime, timedelta

import msgspec
import pytest
import yaml
from tests.support.kube import api_server, custom_resources, kubectl, namespace

from muster_operator.api.models import CoordinatorCluster
from muster_operator.kube.client import Json, KubeClient
from muster_operator.kube.elector import Elector, ElectorSettings
from muster_operator.kube.manifests import manifests
from muster_operator.kube.workload import KubeWorkload

__all__ = ["api_server", "custom_resources", "namespace"]

pytestmark = pytest.mark.kubernetes

FAST = ElectorSettings(lease_duration=2, renew_deadline=1.0, retry_period=0.2)
PATIENT = ElectorSettings(lease_duration=15, renew_deadline=10.0, retry_period=0.2)
"""For a holder that must keep its Lease, though writes stall for seconds on a busy machine."""


def create_cluster(namespace: str, spec: dict[str, object]) -> CoordinatorCluster:
    metadata = {"name": "a", "namespace": namespace}
    body = {"apiVersion": "muster.dev/v1alpha1", "kind": "CoordinatorCluster", "metadata": metadata, "spec": spec}
    kubectl("apply", "-f", "-", stdin=yaml.safe_dump(body))
    stored = kubectl("get", "coordinatorcluster/a", "-n", namespace, "-o", "json").stdout
    return msgspec.json.decode(stored, type=CoordinatorCluster)


def as_applied(raw: Json) -> Json:
    """The object without what the controller writes, which sets its status at any time."""
    metadata = {name: value for name, value in raw["metadata"].items() if name != "resourceVersion"}
    return {"metadata": metadata, "spec": raw["spec"]}


async def test_apply_twice_changes_nothing_and_somebody_elses_change_is_taken_back(
    api_server: KubeClient, namespace: str
) -> None:
    cluster = create_cluster(namespace, {"pods": 2, "settings": {"group.max.size": "5"}})
    await KubeWorkload(api_server, "muster:1").ensure_pods(cluster)
    get = ("get", "statefulset/a", "-n", namespace, "-o", "json")
    first = json.loads(kubectl(*get).stdout)
    assert "as declared" in await KubeWorkload(api_server, "muster:1").ensure_pods(cluster)
    assert as_applied(json.loads(kubectl(*get).stdout)) == as_applied(first)
    kubectl("scale", "statefulset/a", "-n", namespace, "--replicas=7")
    await KubeWorkload(api_server, "muster:1").ensure_pods(cluster)
    assert json.loads(kubectl(*get).stdout)["spec"]["replicas"] == 2
    assert first["metadata"]["ownerReferences"][0]["uid"] == cluster.metadata.uid


async def test_template_of_the_api_server_applied_again_is_no_change(api_server: KubeClient, namespace: str) -> None:
    """A newer operator keeps the template as the API server has it, with all the defaults in it."""
    cluster = create_cluster(namespace, {"pods": 2, "image": "muster:1"})
    await KubeWorkload(api_server, "muster:1").ensure_pods(cluster)
    get = ("get", "statefulset/a", "-n", namespace, "-o", "json")
    first = json.loads(kubectl(*get).stdout)
    newer = KubeWorkload(api_server, "muster:2", namespace)
    await newer.load()
    assert "as declared" in await newer.ensure_pods(cluster)
    now = json.loads(kubectl(*get).stdout)
    assert (now["metadata"]["generation"], now["spec"]["template"]) == (
        first["metadata"]["generation"],
        first["spec"]["template"],
    )


async def test_object_of_somebody_else_is_left_as_it_is(api_server: KubeClient, namespace: str) -> None:
    kubectl("create", "service", "clusterip", "a-bootstrap", "-n", namespace, "--tcp=80:80")
    cluster = create_cluster(namespace, {"pods": 2})
    workload = KubeWorkload(api_server, "muster:1")
    assert "Service a-bootstrap exists" in await workload.ensure_pods(cluster)
    service = json.loads(kubectl("get", "service/a-bootstrap", "-n", namespace, "-o", "json").stdout)
    assert service["spec"]["ports"][0]["port"] == 80
    assert kubectl("get", "statefulsets", "-n", namespace, "-o", "name").stdout == ""


async def test_workload_skips_the_apply_until_the_spec_or_the_stateful_set_changed(
    api_server: KubeClient, namespace: str
) -> None:
    cluster = create_cluster(namespace, {"pods": 2})
    workload = KubeWorkload(api_server, "muster:1")
    assert (await workload.ensure_pods(cluster)).startswith("applied")
    assert "as declared" in await workload.ensure_pods(cluster)
    kubectl("scale", "statefulset/a", "-n", namespace, "--replicas=7")
    raw = json.loads(kubectl("get", "statefulset/a", "-n", namespace, "-o", "json").stdout)
    workload.deliver_stateful_set("MODIFIED", raw)
    assert (await workload.ensure_pods(cluster)).startswith("applied")


async def test_manifests_pass_the_restricted_pod_security_standard(api_server: KubeClient, namespace: str) -> None:
    kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
    cluster = create_cluster(namespace, {})
    template = manifests(cluster, "muster:1")[-1][1]["spec"]["template"]
    claim = {"name": "data", "emptyDir": {}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "probe", "namespace": namespace},
        "spec": {**template["spec"], "volumes": [claim]},
    }
    kubectl("apply", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump(pod))


async def renewed(api_server: KubeClient, namespace: str) -> timedelta:
    """How long after it was acquired the Lease was renewed last."""
    lease = await api_server.get(f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/operator")
    spec = lease["spec"]
    return datetime.fromisoformat(spec["renewTime"]) - datetime.fromisoformat(spec["acquireTime"])


async def test_lease_goes_to_one_elector_and_on_release_to_the_next_with_a_higher_token(
    api_server: KubeClient, namespace: str
) -> None:
    leading = [asyncio.Event(), asyncio.Event()]
    electors = [Elector(api_server, namespace, "operator", name, PATIENT) for name in ("one", "two")]

    async def lead(which: int) -> None:
        leading[which].set()
        await asyncio.Event().wait()

    first = asyncio.create_task(electors[0].run(lambda: lead(0)))
    await asyncio.wait_for(leading[0].wait(), 10)
    second = asyncio.create_task(electors[1].run(lambda: lead(1)))
    async with asyncio.timeout(60):
        # For longer than the lease duration: without renewals the other would take it.
        while await renewed(api_server, namespace) <= timedelta(seconds=PATIENT.lease_duration):
            await asyncio.sleep(PATIENT.retry_period)
    assert not leading[1].is_set()
    first.cancel()
    await asyncio.wait_for(leading[1].wait(), 10)  # sooner than the Lease would expire
    assert electors[1].token > electors[0].token > 0
    second.cancel()
    await asyncio.gather(first, second, return_exceptions=True)


async def test_lease_taken_by_force_cancels_the_work(api_server: KubeClient, namespace: str) -> None:
    leading, cancelled = asyncio.Event(), asyncio.Event()

    async def lead() -> None:
        leading.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    task = asyncio.create_task(Elector(api_server, namespace, "operator", "one", FAST).run(lead))
    await asyncio.wait_for(leading.wait(), 10)
    patch = json.dumps({"spec": {"holderIdentity": "somebody"}})
    kubectl("patch", "lease/operator", "-n", namespace, "--type=merge", "-p", patch)
    await asyncio.wait_for(cancelled.wait(), 10)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
