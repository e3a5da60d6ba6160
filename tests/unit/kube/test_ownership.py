"""What is not of the cluster is never touched and never counted, and what is stays as it is under a newer operator."""

from __future__ import annotations

from typing import Any, cast

import pytest
from msgspec.structs import replace
from tests.unit.kube.test_manifests import Applying, cluster, pod

from muster_operator.api.crds import SCHEMA, definitions
from muster_operator.api.models import PodTemplate
from muster_operator.kube.applying import APPLIED, stamped
from muster_operator.kube.client import KubeClient, KubeError
from muster_operator.kube.definitions import DEFINITIONS
from muster_operator.kube.manifests import DECLARED, own_labels, stateful_set
from muster_operator.kube.pod_info import pod_info
from muster_operator.kube.workload import KubeWorkload
from muster_operator.store.port import ClusterKey

KEY = ClusterKey("ns", "a")
BOOTSTRAP = "/api/v1/namespaces/ns/services/a-bootstrap"
STATEFUL_SET = "/apis/apps/v1/namespaces/ns/statefulsets/a"
OURS = {"kind": "CoordinatorCluster", "name": "a", "uid": "u-1", "controller": True}


def working() -> tuple[KubeWorkload, Applying]:
    server = Applying()
    return KubeWorkload(cast(KubeClient, server), "muster:1"), server


STRANGERS: dict[str, dict[str, Any]] = {
    "nobody's": {},
    "somebody else's": {"ownerReferences": [{**OURS, "uid": "u-0"}]},
    "a cluster's with another name": {"labels": {**own_labels(cluster()), "muster.dev/cluster": "b"}},
    "owned and not controlled": {"ownerReferences": [{**OURS, "controller": False}]},
}


@pytest.mark.parametrize("meta", STRANGERS.values(), ids=STRANGERS)
async def test_object_of_our_name_that_is_not_ours_is_named_and_nothing_is_applied(meta: dict[str, Any]) -> None:
    workload, server = working()
    told: list[ClusterKey] = []
    workload.watch(told.append)
    server.objects[BOOTSTRAP] = {"metadata": {"name": "a-bootstrap", **meta}}
    await workload.ensure_pods(cluster())
    assert server.applied == []
    conflict = workload.state(cluster()).conflict
    assert "Service a-bootstrap exists and is not of this CoordinatorCluster" in conflict
    assert "kubectl -n ns delete service a-bootstrap" in conflict
    await workload.ensure_pods(cluster())
    assert told == [KEY], "once, or the cluster is looked at without end"
    del server.objects[BOOTSTRAP]
    assert (await workload.ensure_pods(cluster())).startswith("applied")
    assert workload.state(cluster()).conflict == ""


@pytest.mark.parametrize(
    "meta", [{"ownerReferences": [OURS]}, {"labels": own_labels(cluster())}], ids=["ours", "orphan"]
)
async def test_our_objects_and_those_that_were_orphaned_are_applied(meta: dict[str, Any]) -> None:
    workload, server = working()
    server.objects[BOOTSTRAP] = {"metadata": {"name": "a-bootstrap", **meta}}
    assert (await workload.ensure_pods(cluster())).startswith("applied")


async def test_pod_with_our_name_and_label_that_another_made_is_no_coordinator() -> None:
    workload, _ = working()
    workload.deliver_stateful_set("ADDED", live(cluster(), "muster:1"))
    workload.deliver_pod("ADDED", pod("a-0"))
    forged = {"kind": "StatefulSet", "name": "a", "uid": "another", "controller": True}
    workload.deliver_pod("ADDED", pod("a-1", metadata={"ownerReferences": [forged]}))
    workload.deliver_pod("ADDED", pod("a-2", metadata={"ownerReferences": []}))
    assert [each.name for each in await workload.pods(KEY)] == ["a-0"]


def live(subject: Any, image: str, *, observed: int = 1, extra: str = "", version: int = 5) -> dict[str, Any]:
    """The StatefulSet as the API server has it. `extra`: what another version of the operator put into the template."""
    manifest = stamped(stateful_set(subject, image))
    template = {**manifest["spec"]["template"], **({"made-by": extra} if extra else {})}
    return {
        "metadata": {**manifest["metadata"], "uid": "set", "generation": 1, "resourceVersion": str(version)},
        "spec": {**manifest["spec"], "template": template},
        "status": {"observedGeneration": observed, "updateRevision": "one"},
    }


async def test_another_version_of_the_operator_leaves_the_template_as_it_is_until_something_else_is_declared() -> None:
    """The planted fault: a template that is made anew restarts every pod of every cluster."""
    workload, server = working()
    declared = cluster(image="muster:1")
    server.objects[STATEFUL_SET] = live(declared, "muster:1", extra="an older operator")
    await workload.ensure_pods(replace(declared, spec=replace(declared.spec, pods=5)))
    applied = server.bodies["StatefulSet"]
    assert (applied["spec"]["replicas"], applied["spec"]["template"]["made-by"]) == (5, "an older operator")
    for other in (cluster(image="muster:2"), cluster(image="muster:1", settings={"group.max.size": "5"})):
        await workload.ensure_pods(other)
        assert "made-by" not in server.bodies["StatefulSet"]["spec"]["template"]


def test_field_that_a_later_version_adds_with_a_default_is_no_other_declaration() -> None:
    """The planted fault: all pods of all clusters restart because PodTemplate has one more field."""

    class Later(PodTemplate, frozen=True, rename="camel"):
        added_later: tuple[str, ...] = ()
        and_later: str = "default"

    def declared(template: PodTemplate) -> str:
        subject = cluster(image="muster:1")
        subject = replace(subject, spec=replace(subject.spec, pod_template=template))
        return str(stateful_set(subject, "")["metadata"]["annotations"][DECLARED])

    assert declared(Later()) == declared(PodTemplate())
    assert declared(Later(labels={"a": "b"})) == declared(PodTemplate(labels={"a": "b"})) != declared(PodTemplate())
    assert declared(Later(and_later="other")) != declared(Later())


async def test_template_that_is_kept_stays_whatever_is_declared() -> None:
    workload, server = working()
    declared = cluster(image="muster:1")
    before = live(declared, "muster:1")
    server.objects[STATEFUL_SET] = before
    wrong = cluster(image="muster:1", settings={"group.max.sise": "5"})
    await workload.ensure_pods(replace(wrong, spec=replace(wrong.spec, pods=4)), keep_template=True)
    applied = server.bodies["StatefulSet"]
    assert applied["spec"]["replicas"] == 4
    assert applied["spec"]["template"] == before["spec"]["template"]
    assert applied["metadata"]["annotations"][DECLARED] == before["metadata"]["annotations"][DECLARED]
    assert not workload.state(wrong).applied


async def test_new_cluster_with_settings_that_a_pod_would_refuse_gets_no_pods() -> None:
    workload, server = working()
    await workload.ensure_pods(cluster(settings={"group.max.sise": "5"}), keep_template=True)
    assert server.applied == []


async def test_spec_is_applied_when_the_controller_has_seen_it_and_a_change_of_it_is_not() -> None:
    workload, _ = working()
    declared = cluster()
    pinned = replace(declared, spec=replace(declared.spec, image="muster:0", pods=5))
    assert not workload.state(declared).applied
    await workload.ensure_pods(pinned)
    assert not workload.state(declared).applied, "nothing is known of the StatefulSet"
    workload.deliver_stateful_set("MODIFIED", live(pinned, "", observed=0))
    assert not workload.state(declared).applied, "its revision is the one before"
    told: list[ClusterKey] = []
    workload.watch(told.append)
    workload.deliver_stateful_set("MODIFIED", live(pinned, "", version=6))
    assert told == [KEY]
    assert workload.state(declared).applied, "number and image are what the operator decided"
    for other in (cluster(image="muster:2"), cluster(settings={"group.max.size": "5"})):
        assert not workload.state(other).applied


def test_pod_that_does_not_run_says_why() -> None:
    ended = {"exitCode": 2, "message": "muster-coordinator: group.max.sise: no such setting\n"}
    waiting = {"reason": "CrashLoopBackOff", "message": "back-off 10s"}
    crashed = pod(containerStatuses=[{"state": {"waiting": waiting}, "lastState": {"terminated": ended}}])
    assert pod_info(crashed).trouble == (
        "CrashLoopBackOff: exit code 2: muster-coordinator: group.max.sise: no such setting"
    )
    unpulled = pod(containerStatuses=[{"state": {"waiting": {"reason": "ErrImagePull", "message": "not found"}}}])
    assert pod_info(unpulled).trouble == "ErrImagePull: not found"
    running = pod(containerStatuses=[{"state": {"running": {}}, "lastState": {"terminated": ended}}])
    assert pod_info(running).trouble == ""
    pending = pod(conditions=[{"type": "PodScheduled", "reason": "Unschedulable", "message": "0/3 nodes fit"}])
    assert pod_info(pending).trouble == "0/3 nodes fit"


@pytest.mark.parametrize("status", [400, 403, 422])
async def test_refusal_of_the_api_server_is_told_and_the_rest_of_the_reconcile_goes_on(status: int) -> None:
    workload, server = working()
    told: list[ClusterKey] = []
    workload.watch(told.append)
    server.refuses = KubeError(status, "spec.tolerations[0].operator: Unsupported value")
    for _ in range(2):
        await workload.ensure_pods(cluster())
    assert "spec.tolerations[0].operator: Unsupported value" in workload.state(cluster()).refusal
    assert told == [KEY, KEY], "once of this, and once of its volumes"
    server.refuses = None
    assert (await workload.ensure_pods(cluster())).startswith("applied")
    assert workload.state(cluster()).refusal == ""


async def test_api_server_that_fails_is_no_refusal() -> None:
    workload, server = working()
    server.refuses = KubeError(500, "etcd is away")
    with pytest.raises(KubeError):
        await workload.ensure_pods(cluster())
    assert workload.state(cluster()).refusal == ""


@pytest.mark.parametrize(
    ("annotations", "outdated"),
    [(None, False), ({}, True), ({SCHEMA: "0123456789abcdef"}, True), ("the same", False)],
    ids=["not readable", "older than the annotation", "another version", "the same"],
)
async def test_definitions_of_another_version_are_named(annotations: Any, outdated: bool) -> None:
    workload, server = working()
    for _, definition in definitions() if annotations is not None else ():
        meta = definition["metadata"]
        given = meta["annotations"] if annotations == "the same" else annotations
        server.objects[f"{DEFINITIONS}/{meta['name']}"] = {"metadata": {**meta, "annotations": given}}
    await workload.load()
    told = workload.state(cluster()).outdated_definitions
    assert ("CustomResourceDefinition offsetstopics.muster.dev" in told) is outdated
    assert bool(told) is outdated


class Keeping(Applying):
    """An API server that keeps what is applied, with a default in it."""

    async def apply(self, path: str, manifest: dict[str, Any]) -> dict[str, Any]:
        await super().apply(path, manifest)
        meta = {**manifest["metadata"], "uid": "set", "generation": 1, "resourceVersion": "5"}
        spec = {**manifest["spec"], "sessionAffinity": "None"}
        self.objects[path] = {**manifest, "metadata": meta, "spec": spec, "status": {}}
        return self.objects[path]


async def test_operator_that_starts_anew_writes_nothing_where_nothing_has_changed() -> None:
    server = Keeping()
    await KubeWorkload(cast(KubeClient, server), "muster:1").ensure_pods(cluster())
    assert len(server.applied) == 4
    assert "as declared" in await KubeWorkload(cast(KubeClient, server), "muster:1").ensure_pods(cluster())
    assert len(server.applied) == 4


@pytest.mark.parametrize("change", ["port", "label", "taken out"])
async def test_object_that_somebody_has_changed_is_applied_again(change: str) -> None:
    server = Keeping()
    await KubeWorkload(cast(KubeClient, server), "muster:1").ensure_pods(cluster())
    live = server.objects[BOOTSTRAP]
    match change:
        case "port":
            live["spec"] = {**live["spec"], "ports": [{**live["spec"]["ports"][0], "port": 1}]}
        case "label":
            live["metadata"]["labels"] = {}
        case "taken out":  # what another version of the operator has applied, and this one does not
            live["metadata"] = {**live["metadata"], "annotations": {APPLIED: "0123456789abcdef"}}
    server.applied.clear()
    live["metadata"]["ownerReferences"] = [OURS]
    await KubeWorkload(cast(KubeClient, server), "muster:1").ensure_pods(cluster())
    assert server.applied == [BOOTSTRAP]
