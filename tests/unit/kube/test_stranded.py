"""Volumes that no node can use: what proves it, and how one is replaced."""

from __future__ import annotations

from typing import Any, cast

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs
from tests.unit.kube.test_claims import PATH, Time, claim
from tests.unit.kube.test_manifests import Applying, cluster, pod

from muster_operator.kube.claims import LOOK_EVERY_S
from muster_operator.kube.client import Json, KubeClient
from muster_operator.kube.stranded import OUT_OF_SERVICE, places_of
from muster_operator.kube.workload import KubeWorkload
from muster_operator.store.port import ClusterKey, NotFoundError, StoreError

KEY = ClusterKey("ns", "a")
UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
HOSTNAME = "kubernetes.io/hostname"


def waiting(name: str = "a-1", **changes: Any) -> Json:
    raw = pod(name, phase="Pending", podIP="", conditions=[UNSCHEDULABLE], **changes)
    return {**raw, "metadata": {**raw["metadata"], "uid": f"uid-{name}"}}


def bound(name: str = "a-1", volume: str = "pv-1") -> Json:
    made = claim(f"data-{name}", "10Gi")
    return {**made, "spec": {**made["spec"], "volumeName": volume}}


def volume_of(*terms: Json) -> Json:
    affinity = {"required": {"nodeSelectorTerms": list(terms)}}
    return {"metadata": {"name": "pv-1"}, "spec": {"nodeAffinity": affinity} if terms else {}}


def term(key: str, *values: str, operator: str = "In") -> Json:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def node(name: str, taint: str = "", **labels: str) -> Json:
    taints = [{"key": taint, "effect": "NoExecute"}] if taint else []
    return {"metadata": {"name": name, "labels": labels}, "spec": {"taints": taints}}


class Server(Applying):
    """An API server with a claim, its volume, and nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.claims = [bound()]
        self.volume: Json | None = volume_of(term(HOSTNAME, "n-1"))
        self.nodes = [node("n-2")]
        self.reads: list[str] = []
        self.deleted: list[tuple[str, str]] = []
        self.away = False

    async def list_all(self, path: str, *, label_selector: str = "") -> Json:
        self.reads.append(path)
        if self.away:
            raise StoreError("the API server does not answer")
        items = {PATH: self.claims, "/api/v1/nodes": self.nodes}.get(path, [])
        return {"items": items, "metadata": {"resourceVersion": "1"}}

    async def get(self, path: str) -> Json:
        self.reads.append(path)
        if path == "/api/v1/persistentvolumes/pv-1":
            if self.volume is None:
                raise NotFoundError(path)
            return self.volume
        return await super().get(path)

    async def delete(self, path: str, uid: str) -> None:
        self.deleted.append((path, uid))


def working(raw: Json | None = None) -> tuple[KubeWorkload, Server, Time]:
    server, time = Server(), Time()
    workload = KubeWorkload(cast(KubeClient, server), "muster:1", clock=time)
    workload.deliver_pod("ADDED", raw or waiting())
    return workload, server, time


async def found(server: Server, workload: KubeWorkload) -> str:
    """Why the volume is stranded; "" if it is not."""
    await workload.ensure_pods(cluster())
    return "".join(each.why for each in workload.state(cluster()).stranded)


async def test_volume_whose_node_is_gone_is_told_with_the_time_since_then() -> None:
    workload, server, time = working()
    news: list[ClusterKey] = []
    workload.watch(news.append)
    time.now = 100.0
    assert await found(server, workload) == "only node n-1 can use it, which does not exist any more"
    assert KEY in news
    time.now += 30
    (volume,) = workload.state(cluster()).stranded
    claims = (("data-a-1", "uid-data-a-1"),)
    assert (volume.pod, volume.uid, volume.claims, volume.for_s) == ("a-1", "uid-a-1", claims, 30.0)
    server.nodes.append(node("n-1"))
    assert await found(server, workload) == "", "the node is back"
    server.nodes.pop()
    time.now += LOOK_EVERY_S
    await found(server, workload)
    (volume,) = workload.state(cluster()).stranded
    assert volume.for_s == 0.0, "the time begins anew"


@pytest.mark.parametrize(
    "nodes",
    [
        [node("n-1")],
        [node("other", **{HOSTNAME: "n-1"})],
        [node("n-1", taint="node.kubernetes.io/unreachable")],
        [node("n-1", taint="node.kubernetes.io/unschedulable")],
    ],
    ids=["by its name", "by its label", "not ready", "cordoned"],
)
async def test_node_that_is_there_in_whatever_state_strands_no_volume(nodes: list[Json]) -> None:
    """The planted fault: a node that was off for an hour has cost a volume."""
    workload, server, _ = working()
    server.nodes = nodes
    assert await found(server, workload) == ""


async def test_node_that_is_tainted_as_out_of_service_strands_its_volumes() -> None:
    workload, server, _ = working()
    server.nodes = [node("n-1", taint=OUT_OF_SERVICE)]
    assert await found(server, workload) == "only node n-1 can use it, which is out of service"


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        ([term(HOSTNAME, "n-1")], {(HOSTNAME, "n-1")}),
        ([term("topology.topolvm.io/node", "n-1")], {("topology.topolvm.io/node", "n-1")}),
        ([term("openebs.io/nodename", "n-1")], {("openebs.io/nodename", "n-1")}),
        (
            [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n-1"]}]}],
            {("metadata.name", "n-1")},
        ),
        ([term(HOSTNAME, "n-1"), term(HOSTNAME, "n-2")], {(HOSTNAME, "n-1"), (HOSTNAME, "n-2")}),
        ([term("topology.kubernetes.io/zone", "z-1")], set()),
        ([term(HOSTNAME, "n-1"), term("topology.ebs.csi.aws.com/zone", "z-1")], set()),
        ([term(HOSTNAME, "n-1", operator="NotIn")], set()),
        ([], set()),
    ],
)
def test_volume_says_which_nodes_can_use_it(terms: list[Json], expected: set[tuple[str, str]]) -> None:
    places = places_of(volume_of(*terms))
    assert {(label, value) for label, values in places for value in values} == expected


async def test_volume_that_a_zone_can_use_is_not_stranded_although_its_zone_has_no_node() -> None:
    workload, server, _ = working()
    server.volume = volume_of(term("topology.kubernetes.io/zone", "z-1"))
    assert await found(server, workload) == ""


@pytest.mark.parametrize(
    "claims", [[], [bound(volume="")], [{**bound(), "metadata": {**bound()["metadata"], "deletionTimestamp": "now"}}]]
)
async def test_claim_without_a_volume_or_that_goes_already_is_not_stranded(claims: list[Json]) -> None:
    workload, server, _ = working()
    server.claims = claims
    assert await found(server, workload) == ""


async def test_volume_that_does_not_exist_is_not_stranded() -> None:
    workload, server, _ = working()
    server.volume = None
    assert await found(server, workload) == ""


@pytest.mark.parametrize(
    "raw",
    [
        pod("a-1"),
        {**waiting(), "spec": {**waiting()["spec"], "nodeName": "n-1"}},
        waiting(metadata={"ownerReferences": []}),
        waiting(metadata={"deletionTimestamp": "now"}),
    ],
    ids=["runs", "has a node", "somebody else's", "ends"],
)
async def test_where_no_pod_of_ours_waits_for_a_node_nothing_is_read(raw: Json) -> None:
    workload, server, _ = working(raw)
    assert await found(server, workload) == ""
    assert not [path for path in server.reads if "persistentvolumes" in path or path == "/api/v1/nodes"]


async def test_api_server_that_does_not_answer_changes_nothing_and_holds_nothing_up() -> None:
    workload, server, time = working()
    why = await found(server, workload)
    server.away = True
    with capture_logs() as logs:
        for pods in (4, 5):
            time.now += LOOK_EVERY_S
            done = await workload.ensure_pods(replace(cluster(), spec=cluster(pods=pods).spec))
            assert done.startswith("applied")
    assert [each["event"] for each in logs].count("stranded_volumes_not_known") == 1
    assert "".join(each.why for each in workload.state(cluster()).stranded) == why


async def test_claim_and_then_pod_are_deleted_by_their_uids() -> None:
    workload, server, _ = working()
    await found(server, workload)
    (volume,) = workload.state(cluster()).stranded
    assert await workload.replace_volume(KEY, volume)
    assert server.deleted == [(f"{PATH}/data-a-1", "uid-data-a-1"), ("/api/v1/namespaces/ns/pods/a-1", "uid-a-1")]
    assert workload.state(cluster()).stranded == ()


async def test_archive_on_the_same_node_is_replaced_with_the_data_and_one_elsewhere_stays() -> None:
    """The planted fault: the pod waits on for its archive."""
    workload, server, time = working()
    archive = {**claim("archive-a-1", "10Gi")}
    server.claims.append({**archive, "spec": {**archive["spec"], "volumeName": "pv-2"}})
    server.objects["/api/v1/persistentvolumes/pv-2"] = volume_of()
    await found(server, workload)
    (volume,) = workload.state(cluster()).stranded
    assert volume.names == "data-a-1"
    server.claims[1]["spec"]["volumeName"] = "pv-1"
    time.now += LOOK_EVERY_S
    await found(server, workload)
    (volume,) = workload.state(cluster()).stranded
    assert await workload.replace_volume(KEY, volume)
    deleted = [path.rpartition("/")[2] for path, _ in server.deleted]
    assert deleted == ["data-a-1", "archive-a-1", "a-1"]


@pytest.mark.parametrize("what", ["node", "claim", "pod"])
async def test_nothing_is_deleted_if_the_volume_is_not_stranded_at_that_moment(what: str) -> None:
    """The planted fault: a node that has just come back loses its volume by what was seen some seconds ago."""
    workload, server, _ = working()
    await found(server, workload)
    (volume,) = workload.state(cluster()).stranded
    if what == "node":
        server.nodes.append(node("n-1"))
    elif what == "claim":
        server.claims[0]["metadata"]["uid"] = "another"
    else:
        workload.deliver_pod("MODIFIED", {**pod("a-1"), "metadata": {**waiting()["metadata"], "resourceVersion": "6"}})
    assert not await workload.replace_volume(KEY, volume)
    assert server.deleted == []
