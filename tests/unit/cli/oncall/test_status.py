"""`muster status`: what is read of recorded objects, what needs a person, and what is printed."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from rich.console import Console
from tests.support.recorded_clusters import CLUSTER, NAMESPACE, RecordedServer, recorded

from muster_cli.oncall.kubernetes import KubernetesReader, pod_seen
from muster_cli.oncall.screen import ago, screen, short
from muster_cli.oncall.seen import OperatorSeen, Seen, Unreachable
from muster_cli.oncall.status import ClusterReport, StatusReport, build_status
from muster_operator.api.crds import definitions
from muster_operator.api.durations import format_time
from muster_operator.kube.client import Json
from muster_operator.kube.manifests import CLUSTER_LABEL

HOUR_S = 3600.0


async def seen(objects: Json, **refused: tuple[str, ...]) -> Seen:
    (only,) = await KubernetesReader(RecordedServer(objects, **refused).client, NAMESPACE).look()
    return only


async def report(objects: Json, later_s: float = 0.0) -> ClusterReport:
    """As it is told `later_s` seconds after the objects were recorded, with an operator that acts."""
    now = objects["now"] + later_s
    for lease in objects["leases"]:
        lease["spec"]["renewTime"] = format_time(now)
    (only,) = build_status([await seen(objects)], now).clusters
    return only


def default_status(plural: str) -> Json:
    """The status that the API server gives to a new object."""
    (spec,) = (each["spec"] for _, each in definitions() if each["spec"]["names"]["plural"] == plural)
    default: Json = spec["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["default"]
    return default


def condition(kind: str, status: str, reason: str, now: float, message: str = "why") -> Json:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": format_time(now),
        "observedGeneration": 1,
    }


def add_condition(objects: Json, plural: str, kind: str, status: str, reason: str) -> None:
    """In the place of the one of its kind."""
    conditions = objects[plural][0]["status"]["conditions"]
    kept = [each for each in conditions if each["type"] != kind]
    objects[plural][0]["status"]["conditions"] = [*kept, condition(kind, status, reason, objects["now"])]


async def test_healthy_cluster_has_nothing_to_say() -> None:
    told = await report(recorded("healthy"))
    assert (told.verdict, told.led, told.behind) == ("healthy", 4, 0)
    assert (told.needs_person, told.under_way, told.notes) == ((), (), ())
    assert [(pod.name, pod.leads, pod.holds) for pod in told.pods] == [
        *(("orders-0", 2, 4), ("orders-1", 1, 4), ("orders-2", 1, 4))
    ]
    assert told.partitions[0].replicas == ("orders-0", "orders-1", "orders-2")


async def test_lost_pod_is_under_way_and_after_a_while_needs_a_person() -> None:
    at_once = await report(recorded("pod_lost"))
    assert (at_once.verdict, at_once.led, at_once.behind) == ("under way", 4, 4)
    assert [each.reason for each in at_once.under_way] == ["PodsNotReady", "UnderReplicated"]
    assert [(each.partition, each.leader, each.duration_ms) for each in at_once.failovers] == [
        *(("orders-3", "orders-2", 28), ("orders-0", "orders-1", 28))
    ]
    later = await report(recorded("pod_lost"), HOUR_S)
    assert later.verdict == "needs a person"
    assert [each.reason for each in later.needs_person] == ["PodsNotReady", "UnderReplicated"]


async def test_partition_without_a_leader_needs_a_person_after_a_minute_with_its_own_cause() -> None:
    assert (await report(recorded("majority_lost"))).needs_person == ()
    told = await report(recorded("majority_lost"), 61)
    assert [(each.about, each.reason) for each in told.needs_person] == [
        *(("OffsetsPartition orders-0", "NoMajority"), ("OffsetsPartition orders-1", "NoMajority"))
    ]
    assert "pod orders-0 is down" in told.needs_person[0].message
    assert [(each.leader, each.behind, each.reason) for each in told.partitions[:2]] == [(None, 0, "NoMajority")] * 2


async def test_partitions_of_one_cause_are_one_note() -> None:
    objects = recorded("majority_lost")
    template = objects["offsetspartitions"][0]
    objects["offsetspartitions"] = [
        {**template, "metadata": {**template["metadata"], "name": f"orders-{index}"}, "spec": spec}
        for index in range(6)
        for spec in [{**template["spec"], "index": index}]
    ]
    told = await report(objects, 61)
    assert [each.about for each in told.needs_person] == [
        "OffsetsPartition orders-0, orders-1, orders-2 and 3 more",
    ]


@pytest.mark.parametrize("kind", ["Stalled", "Damaged", "CertificatesDue", "CrdOutdated"])
async def test_what_only_a_person_can_mend_needs_one_at_once(kind: str) -> None:
    objects = recorded("healthy")
    add_condition(objects, "coordinatorclusters", kind, "True", "LogDamaged")
    told = await report(objects)
    assert [(each.about, each.reason) for each in told.needs_person] == [("CoordinatorCluster orders", "LogDamaged")]


async def test_what_somebody_has_asked_for_is_under_way_for_as_long_as_it_takes() -> None:
    objects = recorded("healthy")
    add_condition(objects, "coordinatorclusters", "Ready", "False", "RolloutPaused")
    told = await report(objects, 100 * HOUR_S)
    assert (told.verdict, told.under_way[0].reason) == ("under way", "RolloutPaused")


async def test_partitions_of_a_hibernated_cluster_need_nobody() -> None:
    objects = recorded("majority_lost")
    objects["coordinatorclusters"][0]["spec"]["hibernate"] = True
    objects["coordinatorclusters"][0]["status"]["conditions"] = []
    objects["offsetstopics"][0]["status"]["conditions"] = []
    for plural in ("coordinatorclusters", "offsetstopics"):
        add_condition(objects, plural, "Ready", "False", "Hibernated")
    told = await report(objects, 100 * HOUR_S)
    assert (told.verdict, told.needs_person) == ("under way", ())


async def test_upgrade_that_is_there_is_good_to_know_and_healthy() -> None:
    objects = recorded("healthy")
    add_condition(objects, "coordinatorclusters", "UpgradeAvailable", "True", "UpgradeAvailable")
    told = await report(objects)
    assert (told.verdict, [each.reason for each in told.notes]) == ("healthy", ["UpgradeAvailable"])


async def test_object_that_no_operator_has_looked_at_needs_a_person() -> None:
    objects = recorded("healthy")
    del objects["coordinatorclusters"][0]["status"]
    assert [each.reason for each in (await report(objects)).needs_person] == ["NotSeen"]


@pytest.mark.parametrize(("after_s", "verdict"), [(30.0, "under way"), (120.0, "needs a person")])
async def test_cluster_that_was_applied_without_an_operator_says_so(after_s: float, verdict: str) -> None:
    """The operator's image cannot be pulled: there is no Lease, and the status is the one that the definition gives."""
    objects, created = recorded("healthy"), 1_900_000_000.0
    cluster = objects["coordinatorclusters"][0]
    cluster["metadata"]["creationTimestamp"] = format_time(created)
    cluster["status"] = default_status("coordinatorclusters")
    for plural in ("leases", "offsetstopics", "offsetspartitions", "pods", "musterusers"):
        objects[plural] = []
    told = build_status([await seen(objects)], created + after_s).clusters[0]
    assert told.verdict == verdict
    notes = (*told.needs_person, *told.under_way)
    assert [(each.reason, each.since) for each in notes] == [
        ("NoOperator", format_time(created)),
        ("NotSeen", format_time(created)),
    ]
    assert "kubectl get pods" in notes[0].message


@pytest.mark.parametrize(("holder", "who"), [("muster-system/operator", "operator has not renewed"), ("", "nobody")])
async def test_operator_that_does_not_renew_its_lease_is_missed(holder: str, who: str) -> None:
    objects = recorded("healthy")
    objects["leases"][0]["spec"]["holderIdentity"] = holder
    told = build_status([await seen(objects)], objects["now"] + HOUR_S).clusters[0]
    assert [each.reason for each in told.needs_person] == ["NoOperator"]
    assert who in told.needs_person[0].message


async def test_lease_and_users_that_may_not_be_read_are_left_open() -> None:
    objects = recorded("healthy")
    found = await seen(objects, refused=("leases", "musterusers"))
    assert (found.operator, found.users) == (None, None)
    told = build_status([found], objects["now"]).clusters[0]
    assert (told.verdict, [each.reason for each in told.notes]) == ("healthy", ["NotAsked"])


async def test_clusters_of_other_names_and_namespaces_are_kept_apart() -> None:
    objects, other = recorded("healthy"), recorded("majority_lost")
    for plural, there in other.items():
        for each in there if plural != "now" else ():
            each["metadata"]["namespace"] = "other"
            objects[plural].append(each)
    every = await KubernetesReader(RecordedServer(objects).client, "").look()
    assert [(each.cluster.metadata.namespace, len(each.partitions), len(each.pods)) for each in every] == [
        *(("other", 4, 3), (NAMESPACE, 4, 3))
    ]
    told = build_status(every, objects["now"] + 61)
    assert [each.led for each in told.clusters] == [2, 4]
    assert not told.healthy
    (only,) = await KubernetesReader(RecordedServer(objects).client, NAMESPACE, CLUSTER).look()
    assert only.cluster.metadata.namespace == NAMESPACE


async def test_cluster_that_is_not_there_and_kinds_that_may_not_be_read_are_unreachable() -> None:
    with pytest.raises(Unreachable, match="no CoordinatorCluster nope"):
        await KubernetesReader(RecordedServer(recorded("healthy")).client, NAMESPACE, "nope").look()
    with pytest.raises(Unreachable, match="403"):
        await KubernetesReader(RecordedServer(recorded("healthy"), ("pods",)).client, NAMESPACE).look()
    assert Unreachable("").exit_code == 2


@pytest.mark.parametrize(
    ("plural", "field", "value", "about"),
    [
        ("coordinatorclusters", "spec", {"pods": "many"}, "CoordinatorCluster orders"),
        ("coordinatorclusters", "status", {"pods": "many"}, "CoordinatorCluster orders"),
        ("offsetspartitions", "status", {"state": "Dreaming"}, "OffsetsPartition orders-0"),
        ("offsetspartitions", "spec", {}, "OffsetsPartition orders-0"),
        ("offsetstopics", "spec", {}, "OffsetsTopic orders"),
        ("musterusers", "spec", {}, "MusterUser alice"),
    ],
)
async def test_object_that_cannot_be_read_needs_a_person_and_hides_no_other(
    plural: str, field: str, value: Json, about: str
) -> None:
    objects = recorded("healthy")
    objects["musterusers"] = [{"metadata": {"name": "alice", "namespace": NAMESPACE}, "spec": {}}]
    if plural != "musterusers":
        objects["musterusers"] = []
        objects[plural][0][field] = value
    told = await report(objects)
    assert (about, "Unreadable") in [(each.about, each.reason) for each in told.needs_person]
    assert len(told.pods) == 3


async def test_pod_that_merely_has_the_label_is_none_of_the_cluster() -> None:
    objects = recorded("healthy")
    objects["pods"].append({"metadata": {"name": "debug", "namespace": NAMESPACE, "labels": {CLUSTER_LABEL: CLUSTER}}})
    assert [pod.name for pod in (await report(objects)).pods] == ["orders-0", "orders-1", "orders-2"]


def test_pod_that_is_not_ready_says_why() -> None:
    raw = recorded("healthy")["pods"][0]
    waiting = {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}, "restartCount": 3}
    raw["status"] |= {"containerStatuses": [waiting], "conditions": [{"type": "Ready", "status": "False"}]}
    found = pod_seen(raw)
    assert (found.ready, found.restarts, found.trouble) == (False, 3, "ImagePullBackOff: no such image")


def printed(told: StatusReport, now: float) -> str:
    to = Console(width=140)
    with to.capture() as captured:
        to.print(screen(told, now))
    return captured.get()


async def test_screen_tells_pods_leaders_with_epochs_and_failovers_in_few_lines() -> None:
    objects = recorded("pod_lost")
    told = StatusReport(True, (await report(objects),))
    text = printed(told, objects["now"])
    assert "shop/orders  under way" in text
    assert "4 of 4 partitions led, 4 replicas behind" in text
    assert "PodsNotReady for 5s: 2 of 3 pods are ready; not ready: orders-0" in text
    assert "0:1 1:0" in text, "orders-1 leads partition 0 in epoch 1 and partition 1 in epoch 0"
    assert "orders-0  orders-2  28 ms" in text
    assert len(text.splitlines()) < 25


async def test_screen_of_many_partitions_lists_few_and_text_of_objects_is_no_markup() -> None:
    objects = recorded("majority_lost")
    template = objects["offsetspartitions"][0]
    template["status"]["conditions"][0]["message"] = "[red]no[/red] such [file]"
    objects["offsetspartitions"] = [
        {**template, "metadata": {**template["metadata"], "name": f"orders-{index}"}, "spec": spec}
        for index in range(1000)
        for spec in [{**template["spec"], "index": index}]
    ]
    text = printed(StatusReport(False, (await report(objects, 61),)), objects["now"])
    assert "and 990 more" in text
    assert "[red]no[/red] such [file]" in text
    assert len(text.splitlines()) < 35


async def test_json_has_all_and_reads_back() -> None:
    told = StatusReport(False, (await report(recorded("majority_lost"), 61),))
    raw: Any = json.loads(msgspec.json.encode(told))
    (cluster,) = raw["clusters"]
    assert raw["healthy"] is False
    assert cluster["partitions"][2] == {
        "name": "orders-2",
        "partition": 2,
        "state": "Led",
        "leader": "orders-2",
        "epoch": 0,
        "behind": 2,
        "replicas": ["orders-2", "orders-0", "orders-1"],
        "reason": "",
        "message": "",
    }
    assert cluster["failovers"][0]["durationMs"] == 28
    assert msgspec.json.decode(msgspec.json.encode(told), type=StatusReport) == told


def test_times_and_numbers_are_short() -> None:
    told = [ago(format_time(1_000_000 - passed), 1_000_000) for passed in (0, 119, 120, 7200, 200_000)]
    assert told == ["0s", "119s", "2m", "2h", "2d"]
    assert ago("", 0) == ""
    assert (short(7), short(500_003)) == ("7", "t3")


def test_operator_acts_while_its_lease_is_young() -> None:
    acts: Callable[[float], bool] = OperatorSeen("one", 1000.0).acts
    assert (acts(1060.0), acts(1061.0), OperatorSeen("", 1000.0).acts(1000.0)) == (True, False, False)
