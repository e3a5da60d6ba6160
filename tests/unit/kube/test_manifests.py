"""What a CoordinatorCluster becomes, and what is read back from its pods."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest
from msgspec.structs import replace

from muster_coordinator.process.options import parse_options
from muster_operator.api.models import CoordinatorCluster, CoordinatorClusterStatus
from muster_operator.kube.client import KubeClient
from muster_operator.kube.manifests import manifests
from muster_operator.kube.pod_info import node_of, pod_info
from muster_operator.kube.workload import KubeWorkload
from muster_operator.store.port import ClusterKey, NotFoundError
from muster_operator.store.workload import PodInfo, PodPhase


def cluster(**spec: Any) -> CoordinatorCluster:
    return msgspec.convert(
        {"metadata": {"name": "a", "namespace": "ns", "uid": "u-1"}, "spec": spec}, CoordinatorCluster
    )


def built(kind: str, subject: CoordinatorCluster) -> list[dict[str, Any]]:
    return [each for _, each in manifests(subject, "muster:default") if each["kind"] == kind]


def container(subject: CoordinatorCluster) -> dict[str, Any]:
    (stateful_set,) = built("StatefulSet", subject)
    (only,) = stateful_set["spec"]["template"]["spec"]["containers"]
    return dict(only)


def environment(subject: CoordinatorCluster) -> dict[str, str]:
    return {each["name"]: each.get("value", "<field>") for each in container(subject)["env"]}


def test_every_object_is_owned_labelled_and_in_the_clusters_namespace() -> None:
    for path, each in manifests(cluster(), "muster:default"):
        assert "/namespaces/ns/" in path
        assert each["metadata"]["namespace"] == "ns"
        assert each["metadata"]["ownerReferences"][0]["uid"] == "u-1"
        assert each["metadata"]["labels"]["muster.dev/cluster"] == "a"


def test_selectors_match_the_pods_labels() -> None:
    subject = cluster(podTemplate={"labels": {"team": "x", "muster.dev/cluster": "somebody else's"}})
    (stateful_set,) = built("StatefulSet", subject)
    labels = stateful_set["spec"]["template"]["metadata"]["labels"]
    selectors = [
        stateful_set["spec"]["selector"]["matchLabels"],
        *(service["spec"]["selector"] for service in built("Service", subject)),
        *(budget["spec"]["selector"]["matchLabels"] for budget in built("PodDisruptionBudget", subject)),
    ]
    assert len(selectors) == 4
    assert all(selector.items() <= labels.items() for selector in selectors)
    assert labels["team"] == "x"


def test_image_is_the_clusters_or_else_the_default() -> None:
    assert container(cluster())["image"] == "muster:default"
    assert container(cluster(image="muster:other", imagePullPolicy="Never"))["image"] == "muster:other"


def test_settings_go_to_the_pod_one_per_line() -> None:
    settings = {"group.max.size": "5", "a.b": "x=y"}
    assert environment(cluster(settings=settings))["MUSTER_CONFIG"].splitlines() == [
        *("a.b=x=y", "group.max.size=5", "muster.self.nomination.after.ms=10000")
    ]


@pytest.mark.parametrize(
    ("advertise", "expected"), [("PodDNS", "$(MUSTER_POD).a-pods.ns.svc:9999"), ("PodIP", "$(POD_IP):9999")]
)
def test_advertised_address_follows_the_listener_and_refers_to_earlier_variables(advertise: str, expected: str) -> None:
    subject = cluster(listeners=[{"name": "internal", "port": 9999, "advertise": advertise}])
    names = list(environment(subject))
    assert environment(subject)["MUSTER_ADVERTISE"] == expected
    assert max(names.index("MUSTER_POD"), names.index("POD_IP")) < names.index("MUSTER_ADVERTISE")


def test_pod_runs_without_root_with_a_read_only_root_and_its_own_volume_only() -> None:
    (stateful_set,) = built("StatefulSet", cluster(storage={"size": "2Gi", "storageClassName": "fast"}))
    pod = stateful_set["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["fsGroup"] == pod["securityContext"]["runAsUser"]
    assert not pod["automountServiceAccountToken"]
    assert container(cluster())["securityContext"]["readOnlyRootFilesystem"]
    (claim,) = stateful_set["spec"]["volumeClaimTemplates"]
    assert claim["spec"]["storageClassName"] == "fast"
    assert claim["spec"]["resources"]["requests"] == {"storage": "2Gi"}
    (mount,) = container(cluster())["volumeMounts"]
    assert environment(cluster())["MUSTER_DATA_DIR"].startswith(mount["mountPath"])


def test_no_storage_class_means_the_default_class_not_an_empty_one() -> None:
    (stateful_set,) = built("StatefulSet", cluster())
    assert "storageClassName" not in stateful_set["spec"]["volumeClaimTemplates"][0]["spec"]


def pod(name: str = "a-1", **changes: Any) -> dict[str, Any]:
    env = [
        {"name": "POD_IP", "valueFrom": {}},
        {"name": "MUSTER_ADVERTISE", "value": changes.pop("advertise", "$(POD_IP):9092")},
    ]
    owner = {"kind": "StatefulSet", "name": "a", "uid": "set", "controller": True}
    meta = {
        "name": name,
        "namespace": "ns",
        "uid": "u",
        "resourceVersion": "5",
        "labels": {"muster.dev/cluster": "a"},
        "ownerReferences": [owner],
    }
    return {
        "metadata": {**meta, **changes.pop("metadata", {})},
        "spec": {"containers": [{"env": env}]},
        "status": {"phase": "Running", "podIP": "10.0.0.7", **changes},
    }


def test_pod_has_addresses_and_node_id() -> None:
    expected = PodInfo("a-1", 1, "u", "10.0.0.7:9640", "10.0.0.7:9092", PodPhase.RUNNING)
    assert pod_info(pod()) == expected


def test_pod_without_an_address_has_none() -> None:
    info = pod_info(pod(podIP="", phase="Pending"))
    assert (info.api_address, info.kafka_address, info.phase) == ("", "", PodPhase.PENDING)


def test_pod_advertised_by_dns_is_known_by_dns_and_ipv6_is_in_brackets() -> None:
    info = pod_info(pod(advertise="$(MUSTER_POD).a-pods.ns.svc:9092", podIP="fd00::7"))
    assert (info.api_address, info.kafka_address) == ("[fd00::7]:9640", "a-1.a-pods.ns.svc:9092")


def test_pod_being_deleted_is_terminating_and_an_unheard_phase_is_unknown() -> None:
    assert pod_info(pod(metadata={"deletionTimestamp": "now"})).phase is PodPhase.TERMINATING
    assert pod_info(pod(phase="Succeeded")).phase is PodPhase.UNKNOWN


async def test_pods_come_in_order_and_strangers_with_our_label_are_left_out() -> None:
    workload = KubeWorkload(None, "image")  # type: ignore[arg-type]  # answers from memory
    told: list[ClusterKey] = []
    workload.watch(told.append)
    for name in ("a-10", "a-2", "a-debug", "stranger"):
        workload.deliver_pod("ADDED", pod(name))
    key = ClusterKey("ns", "a")
    assert [each.name for each in await workload.pods(key)] == ["a-2", "a-10"]
    workload.deliver_pod("DELETED", pod("a-2", metadata={"resourceVersion": "9"}))
    assert [each.name for each in await workload.pods(key)] == ["a-10"]
    assert set(told) == {key}


async def test_pods_are_as_the_last_events_say_however_often_they_were_asked_for() -> None:
    workload, key = KubeWorkload(None, "image"), ClusterKey("ns", "a")  # type: ignore[arg-type]  # answers from memory
    labels = {"muster.dev/cluster": "a", "controller-revision-hash": "old"}
    workload.deliver_pod("ADDED", pod(metadata={"labels": labels}))
    (first,) = await workload.pods(key)
    assert (first.phase, first.outdated) == (PodPhase.RUNNING, False)
    assert await workload.pods(key) is await workload.pods(key)
    stateful_set = {"metadata": {**pod()["metadata"], "name": "a", "uid": "set", "generation": 1}}
    workload.deliver_stateful_set(None, {**stateful_set, "status": {"observedGeneration": 1, "updateRevision": "new"}})
    assert [each.outdated for each in await workload.pods(key)] == [True]
    later = {"labels": labels, "resourceVersion": "6", "deletionTimestamp": "now"}
    workload.deliver_pod("MODIFIED", pod(metadata=later))
    assert [each.phase for each in await workload.pods(key)] == [PodPhase.TERMINATING]


class Applying:
    """An API server that takes everything, and has `objects` by path."""

    def __init__(self) -> None:
        self.applied: list[str] = []
        self.bodies: dict[str, dict[str, Any]] = {}
        self.objects: dict[str, dict[str, Any]] = {}
        self.refuses: Exception | None = None

    async def apply(self, path: str, manifest: dict[str, Any]) -> dict[str, Any]:
        if self.refuses is not None:
            raise self.refuses
        self.applied.append(path)
        self.bodies[manifest["kind"]] = manifest
        return {**manifest, "metadata": {**manifest["metadata"], "generation": 1, "resourceVersion": "6"}}

    async def list_all(self, path: str, *, label_selector: str = "") -> dict[str, Any]:
        return {"items": [], "metadata": {"resourceVersion": "1"}}

    async def get(self, path: str) -> dict[str, Any]:
        if path not in self.objects:
            raise NotFoundError(path)
        return self.objects[path]


async def test_manifests_are_applied_again_when_the_spec_or_the_object_is_another_one() -> None:
    server = Applying()
    workload = KubeWorkload(cast(KubeClient, server), "image")
    declared = cluster()
    told = replace(declared, status=CoordinatorClusterStatus(led=1))
    assert (await workload.ensure_pods(declared)).startswith("applied")
    assert "as declared" in await workload.ensure_pods(told)
    assert len(server.applied) == 4
    another = replace(declared, metadata=replace(declared.metadata, uid="another"))
    for other in (another, replace(another, spec=cluster(pods=5).spec)):
        assert (await workload.ensure_pods(other)).startswith("applied")
    assert len(server.applied) == 12


@pytest.mark.parametrize(
    ("spec", "restarts"),
    [
        ({"topics": [{"name": "orders", "partitions": 3}]}, False),
        ({"anyTopic": True}, False),
        ({"failover": {"suspectAfter": "2s", "rebalanceAfter": "1m", "replaceAfter": "1h"}}, False),
        ({"failover": {"nominateAfter": "30s"}}, True),
        ({"rebalance": "Auto"}, False),
        ({"rollout": {"paused": True, "window": {"start": "01:00", "end": "02:00"}}}, False),
        ({"rollout": {"restart": {"small-0": "uid"}}}, False),
        ({"maintenance": {"small-0": "Fenced"}}, False),
        ({"storage": {"size": "20Gi", "giveUpAfter": "1h"}}, False),
        ({"deletionPolicy": "Delete", "deletionProtection": True}, False),
        ({"suspend": True}, False),
        ({"settings": {"group.max.size": "5"}}, True),
        ({"site": {"name": "east", "store": {"claim": "shared"}}}, True),
        ({"listeners": [{"name": "internal", "port": 9999}]}, True),
    ],
)
def test_change_replaces_pods_or_is_live_as_the_page_of_settings_says(spec: dict[str, Any], restarts: bool) -> None:
    (before,) = built("StatefulSet", cluster())
    (after,) = built("StatefulSet", cluster(**spec))
    assert (before["spec"]["template"] != after["spec"]["template"]) is restarts


def test_times_of_failover_that_pods_keep_reach_them_unless_a_setting_says_otherwise() -> None:
    assert (
        "muster.self.nomination.after.ms=2500"
        in environment(cluster(failover={"nominateAfter": "2.5s"}))["MUSTER_CONFIG"]
    )
    declared = cluster(settings={"muster.self.nomination.after.ms": "7"})
    assert environment(declared)["MUSTER_CONFIG"] == "muster.self.nomination.after.ms=7"


def test_archive_is_a_second_volume_that_the_pod_is_told_of() -> None:
    """Whatever spec.settings say: the volume is what people pay for."""
    archive = {"size": "100Gi", "storageClassName": "slow"}
    declared = cluster(storage={"archive": archive}, settings={"muster.archive.dir": "/tmp/elsewhere"})
    assert "muster.archive.dir=/var/lib/muster-archive" in environment(declared)["MUSTER_CONFIG"].splitlines()
    mounts = {each["name"]: each["mountPath"] for each in container(declared)["volumeMounts"]}
    assert mounts == {"data": "/var/lib/muster", "archive": "/var/lib/muster-archive"}
    (made,) = built("StatefulSet", declared)
    data, second = made["spec"]["volumeClaimTemplates"]
    assert data["metadata"]["name"] == "data"
    assert second == {
        "metadata": {"name": "archive"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "100Gi"}},
            "storageClassName": "slow",
        },
    }
    assert "muster.archive.dir" not in environment(cluster())["MUSTER_CONFIG"]


def test_pods_of_a_site_read_the_claims_in_the_volume_that_is_declared() -> None:
    declared = cluster(site={"name": "east", "store": {"claim": "shared"}}, settings={"muster.site": "west@/tmp"})
    assert "muster.site=east@/backups/a" in environment(declared)["MUSTER_CONFIG"].splitlines()
    assert {"name": "backups", "mountPath": "/backups", "readOnly": True} in container(declared)["volumeMounts"]
    (made,) = built("StatefulSet", declared)
    claim = {"claimName": "shared", "readOnly": True}
    assert made["spec"]["template"]["spec"]["volumes"] == [{"name": "backups", "persistentVolumeClaim": claim}]


def test_pods_of_a_site_may_use_the_bucket_that_is_declared() -> None:
    bucket = {"bucket": "all", "prefix": "shop", "endpoint": "http://store:7070", "credentialsSecret": "keys"}
    declared = cluster(site={"name": "east", "store": {"s3": bucket}})
    found = environment(declared)
    assert "muster.site=east@s3://all/shop" in found["MUSTER_CONFIG"].splitlines()
    assert found["AWS_ENDPOINT_URL"] == "http://store:7070"
    for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        secret = {"name": key, "valueFrom": {"secretKeyRef": {"name": "keys", "key": key}}}
        assert secret in container(declared)["env"]


def test_replicas_reach_one_another_at_the_pods_address() -> None:
    assert environment(cluster())["MUSTER_PEER_ADVERTISE"] == "$(POD_IP):9641"
    assert {"name": "peer", "containerPort": 9641, "protocol": "TCP"} in container(cluster())["ports"]
    headless = next(each for each in built("Service", cluster()) if each["spec"]["clusterIP"] == "None")
    assert headless["spec"]["publishNotReadyAddresses"]
    assert {"name": "peer", "port": 9641, "targetPort": "peer"} in headless["spec"]["ports"]


def test_probes_and_metrics_have_ports_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the pod understands the environment in which it is started."""
    for name, value in environment(cluster()).items():
        monkeypatch.setenv(name, value.replace("$(POD_IP)", "10.0.0.1").replace("<field>", "a-1"))
    options = parse_options([])
    assert (options.probe_listen, options.metrics_listen) == (("0.0.0.0", 9642), ("0.0.0.0", 9643))
    made = container(cluster())
    numbers = {each["name"]: each["containerPort"] for each in made["ports"]}
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert numbers[made[probe]["httpGet"]["port"]] == 9642, probe
    assert numbers["metrics"] == 9643


def test_pods_are_replaced_by_the_operator_alone_and_spread_over_zones_and_nodes() -> None:
    (stateful_set,) = built("StatefulSet", cluster())
    assert stateful_set["spec"]["updateStrategy"] == {"type": "OnDelete"}
    assert stateful_set["spec"]["podManagementPolicy"] == "Parallel"
    spread = stateful_set["spec"]["template"]["spec"]["topologySpreadConstraints"]
    assert [each["topologyKey"] for each in spread] == ["topology.kubernetes.io/zone", "kubernetes.io/hostname"]


def test_pod_of_an_older_template_is_outdated() -> None:
    labels = {"muster.dev/cluster": "a", "controller-revision-hash": "old"}
    assert pod_info(pod(metadata={"labels": labels}), "new").outdated
    assert not pod_info(pod(metadata={"labels": labels}), "old").outdated
    assert not pod_info(pod(metadata={"labels": labels})).outdated


def test_pod_knows_its_node_its_zone_and_that_it_is_cordoned() -> None:
    raw = pod()
    raw["spec"]["nodeName"] = "n-1"
    node = {"metadata": {"labels": {"topology.kubernetes.io/zone": "west"}}, "spec": {"unschedulable": True}}
    info = pod_info(raw, nodes={"n-1": node_of(node)})
    assert (info.node, info.zone, info.cordoned, info.node_lost) == ("n-1", "west", True, False)
    assert not pod_info(raw).cordoned


@pytest.mark.parametrize(("ready", "lost"), [("True", False), ("Unknown", True), ("False", True), (None, False)])
def test_pod_knows_that_nothing_is_heard_of_its_node(ready: str | None, lost: bool) -> None:
    raw = pod()
    raw["spec"]["nodeName"] = "n-1"
    conditions = [{"type": "MemoryPressure", "status": "False"}]
    conditions += [{"type": "Ready", "status": ready}] if ready is not None else []
    node = node_of({"metadata": {}, "status": {"conditions": conditions}})
    assert pod_info(raw, nodes={"n-1": node}).node_lost is lost


def test_pod_whose_container_ended_does_not_run() -> None:
    ended = pod(containerStatuses=[{"state": {"terminated": {"exitCode": 137}}}])
    assert pod_info(ended).phase is PodPhase.PENDING
    assert pod_info(pod(containerStatuses=[{"state": {"running": {}}}])).phase is PodPhase.RUNNING


def test_disruption_budget_lets_pods_go_that_serve_nobody() -> None:
    (budget,) = built("PodDisruptionBudget", cluster())
    assert (budget["spec"]["maxUnavailable"], budget["spec"]["unhealthyPodEvictionPolicy"]) == (1, "AlwaysAllow")


@pytest.mark.parametrize(("policy", "when_deleted"), [({}, "Retain"), ({"deletionPolicy": "Delete"}, "Delete")])
def test_volumes_stay_when_the_cluster_is_deleted_unless_that_is_declared(
    policy: dict[str, str], when_deleted: str
) -> None:
    (stateful_set,) = built("StatefulSet", cluster(**policy))
    retention = stateful_set["spec"]["persistentVolumeClaimRetentionPolicy"]
    assert retention == {"whenDeleted": when_deleted, "whenScaled": "Retain"}


def test_pods_are_placed_as_core_v1_says_it_and_without_that_nothing_is_said() -> None:
    template = {
        "tolerations": [{"key": "dedicated", "operator": "Exists"}],
        "affinity": {"podAntiAffinity": {}},
        "priorityClassName": "high",
        "imagePullSecrets": [{"name": "registry"}],
    }
    (said,) = built("StatefulSet", cluster(podTemplate=template))
    (silent,) = built("StatefulSet", cluster())
    pods, others = said["spec"]["template"]["spec"], silent["spec"]["template"]["spec"]
    assert {name: pods[name] for name in template} == template
    assert not template.keys() & others.keys()


def test_pods_are_spread_as_a_person_says_it_or_else_over_zones_and_nodes_if_that_can_be() -> None:
    (silent,) = built("StatefulSet", cluster())
    wishes = silent["spec"]["template"]["spec"]["topologySpreadConstraints"]
    assert {each["whenUnsatisfiable"] for each in wishes} == {"ScheduleAnyway"}
    said = {
        "maxSkew": 1,
        "topologyKey": "rack",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"muster.dev/cluster": "a"}},
    }
    (strict,) = built("StatefulSet", cluster(podTemplate={"topologySpreadConstraints": [said]}))
    assert strict["spec"]["template"]["spec"]["topologySpreadConstraints"] == [said]


def test_volumes_of_others_are_mounted_beside_ours_to_be_read_only() -> None:
    declared = [
        {"name": "data", "source": {"configMap": {"name": "keys"}}},
        {"name": "ca", "source": {"secret": {"secretName": "company"}}},
    ]
    (found,) = built("StatefulSet", cluster(podTemplate={"volumes": declared}))
    (silent,) = built("StatefulSet", cluster())
    pod, before = found["spec"]["template"]["spec"], silent["spec"]["template"]["spec"]
    assert pod["volumes"] == [
        {"name": "mounted-data", "configMap": {"name": "keys"}},
        {"name": "mounted-ca", "secret": {"secretName": "company"}},
    ]
    assert [
        each for each in pod["containers"][0]["volumeMounts"] if each not in before["containers"][0]["volumeMounts"]
    ] == [
        {"name": "mounted-data", "mountPath": "/mnt/data", "readOnly": True},
        {"name": "mounted-ca", "mountPath": "/mnt/ca", "readOnly": True},
    ]


def test_resources_are_those_that_are_declared_and_some_requests_if_none_are() -> None:
    assert container(cluster())["resources"]["requests"] == {"cpu": "100m", "memory": "256Mi"}
    declared = {"requests": {"cpu": 1}, "limits": {"memory": "1Gi"}}
    assert container(cluster(resources=declared))["resources"] == declared
