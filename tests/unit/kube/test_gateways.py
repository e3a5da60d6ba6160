"""The gateway in front of a cluster's upstream: what is applied, what is told of it, and how it goes again."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from tests.unit.kube.test_manifests import cluster
from tests.unit.operator.storm_kube import GROUPS, NAMESPACE, StormApi

from muster_gateway.settings import GatewaySettings, parse_assignments, parse_settings
from muster_operator.kube.client import KubeError
from muster_operator.kube.gateway_manifests import (
    BOOTSTRAP_PORT,
    BROKER_PORTS,
    POD_PORTS,
    READY_PORT,
    Moving,
    gateway_deployment,
    gateway_service,
    moving_of,
)
from muster_operator.kube.manifests import API_PORT, CLUSTER_LABEL, DECLARED, stateful_set
from muster_operator.kube.run import sources
from muster_operator.kube.store import KubeStore
from muster_operator.kube.workload import KubeWorkload
from muster_operator.store.port import ClusterKey
from muster_operator.store.workload import GatewayState, pod_settings, settings_trouble

KEY = ClusterKey("ns", "a")
UPSTREAM = {"bootstrapServers": "kafka-0:9092,kafka-1:9092", "servedGroups": ["billing-", "audit-"]}
OBJECTS = (("services", "a-gateway"), ("poddisruptionbudgets", "a-gateway"), ("deployments", "a-gateway"))
POD_IP = {"listeners": [{"name": "internal", "port": 9092, "advertise": "PodIP"}]}


def fronted(upstream: dict[str, Any] | None = None, gateway: dict[str, Any] | None = None, **spec: Any) -> Any:
    return cluster(upstream=upstream or UPSTREAM, gateway=gateway or {}, **spec)


def deployment(subject: Any, moving: Moving = Moving(), **addresses: str) -> dict[str, Any]:  # noqa: B008
    known = {name.replace("_", "-"): each for name, each in addresses.items()}
    return gateway_deployment(subject, "muster:1", known, moving)[1]


def settings(subject: Any, moving: Moving = Moving(), **addresses: str) -> GatewaySettings:  # noqa: B008
    """As the process understands them."""
    return settings_of(deployment(subject, moving, **addresses))


def settings_of(made: dict[str, Any]) -> GatewaySettings:
    (container,) = made["spec"]["template"]["spec"]["containers"]
    (variable,) = container["env"]
    assert variable["name"] == "MUSTER_GATEWAY_CONFIG"
    return parse_settings(parse_assignments(filter(None, variable["value"].splitlines())))


def service_ports(subject: Any) -> dict[str, int]:
    _, service = gateway_service(subject)
    assert all(each["port"] == each["targetPort"] for each in service["spec"]["ports"])
    return {each["name"]: each["port"] for each in service["spec"]["ports"]}


def test_pods_mirror_the_upstream_but_for_the_groups_that_the_gateway_gives_to_them() -> None:
    subject = fronted(settings={"muster.upstream.bootstrap": "another:9092", "group.max.size": "5"})
    found = pod_settings(subject)
    assert found["muster.upstream.bootstrap"] == "kafka-0:9092,kafka-1:9092"
    assert found["muster.upstream.served.groups"] == settings(subject).groups == "billing-,audit-"
    assert settings_trouble(subject) == ""
    assert "muster.upstream.bootstrap" not in pod_settings(cluster())


def test_gateway_knows_both_clusters_and_tells_clients_its_service() -> None:
    found = settings(fronted())
    assert found.upstream == "kafka-0:9092,kafka-1:9092"
    assert found.muster == "a-bootstrap.ns.svc:9092"
    assert found.advertised_host == "a-gateway.ns.svc"
    assert found.transactions == 1, "the pods mirror the cluster"
    assert settings(fronted(gateway={"advertisedHost": "kafka.example.com"})).advertised_host == "kafka.example.com"


def test_gateway_without_groups_of_muster_asks_no_pod() -> None:
    found = settings(fronted({"bootstrapServers": "kafka-0:9092"}))
    assert (found.muster, found.groups) == ("", "")


SECURED = {
    **UPSTREAM,
    "tls": {"caSecret": "kafka-ca", "certificateSecret": "kafka-client"},
    "sasl": {"mechanism": "SCRAM-SHA-512", "secret": "kafka-account"},
}
FRONT = {
    "tls": {"secret": "front-tls"},
    "authentication": {"mechanisms": ["SCRAM-SHA-512", "PLAIN"]},
    "muster": {
        "tls": {"caSecret": "pods-ca", "verifyHost": False},
        "sasl": {"mechanism": "PLAIN", "secret": "pods-account"},
        "actForClients": True,
    },
}


def mounted(template: dict[str, Any]) -> dict[str, str]:
    """Directory -> Secret. Each volume is mounted once, to be read only."""
    secrets = {each["name"]: each["secret"]["secretName"] for each in template["spec"]["volumes"]}
    (container,) = template["spec"]["containers"]
    mounts = [each for each in container["volumeMounts"] if each["name"] in secrets]
    assert all(each["readOnly"] for each in mounts)
    assert sorted(each["name"] for each in mounts) == sorted(secrets)
    return {each["mountPath"]: secrets[each["name"]] for each in mounts}


def test_pods_and_gateway_have_the_secrets_that_their_settings_name() -> None:
    subject = fronted(SECURED, FRONT, access={"usersSecret": "users"})
    found = settings(subject)
    assert settings_trouble(subject) == ""
    assert (found.upstream_security_protocol, found.muster_security_protocol) == ("SASL_SSL", "SASL_SSL")
    assert (found.upstream_endpoint_check, found.muster_endpoint_check) == ("https", "")
    assert (found.sasl_enabled_mechanisms, found.muster_act_for_clients) == ("SCRAM-SHA-512,PLAIN", 1)
    gateway = mounted(deployment(subject)["spec"]["template"])
    assert gateway == {
        found.upstream_truststore.removesuffix("/ca.crt"): "kafka-ca",
        found.upstream_tls_dir: "kafka-client",
        found.upstream_sasl_dir: "kafka-account",
        found.muster_truststore.removesuffix("/ca.crt"): "pods-ca",
        found.muster_sasl_dir: "pods-account",
        found.listener_tls_dir: "front-tls",
        found.users_file.removesuffix("/users.json"): "users",
    }
    pods, said = mounted(stateful_set(subject, "muster:1")["spec"]["template"]), pod_settings(subject)
    assert said["muster.upstream.security.protocol"] == "SASL_SSL"
    assert pods[said["muster.upstream.sasl.dir"]] == "kafka-account"
    assert pods[said["muster.upstream.tls.dir"]] == "kafka-client"
    assert pods[said["muster.upstream.ssl.truststore.location"].removesuffix("/ca.crt")] == "kafka-ca"
    assert "front-tls" not in pods.values()


@pytest.mark.parametrize(
    ("upstream", "gateway"),
    [
        ({**SECURED, "sasl": {**SECURED["sasl"], "secret": "another"}}, FRONT),  # type: ignore[dict-item]
        (SECURED, {**FRONT, "tls": {"secret": "another"}}),
    ],
)
def test_another_secret_is_another_template(upstream: dict[str, Any], gateway: dict[str, Any]) -> None:
    def declared(subject: Any) -> str:
        return str(deployment(subject)["metadata"]["annotations"][DECLARED])

    access = {"usersSecret": "users"}
    assert declared(fronted(SECURED, FRONT, access=access)) != declared(fronted(upstream, gateway, access=access))
    plain = deployment(fronted())["spec"]["template"]["spec"]
    assert "volumes" not in plain
    assert "volumeMounts" not in plain["containers"][0]


MOVABLE = {**UPSTREAM, "movableGroups": ["orders-", "jobs-"]}


def test_gateway_asks_the_apis_of_pods_about_groups_that_can_move() -> None:
    subject = fronted(MOVABLE)
    assert pod_settings(subject)["muster.upstream.movable.groups"] == "orders-,jobs-"
    assert settings_trouble(subject) == ""
    plain = settings(subject, Moving(("orders-",)))
    assert (plain.movable, plain.api, plain.api_port, plain.api_tls_dir) == ("orders-", "", API_PORT, "")
    moving = Moving(("orders-", "jobs-"), secured=True)
    found = settings(subject, moving)
    assert (found.movable, found.api_cluster) == ("orders-,jobs-", "ns/a")
    assert mounted(deployment(subject, moving)["spec"]["template"]) == {found.api_tls_dir: "a-reader-tls"}
    given = fronted(MOVABLE, security={"podSecret": "p", "operatorSecret": "o", "readerSecret": "r"})
    assert mounted(deployment(given, moving)["spec"]["template"]) == {found.api_tls_dir: "r"}


def test_gateway_that_only_moves_groups_knows_the_pods() -> None:
    only = {"bootstrapServers": "kafka-0:9092", "movableGroups": ["*"]}
    assert settings(fronted(only), Moving(("*",))).muster == "a-bootstrap.ns.svc:9092"


def pod_of(subject: Any, number: int, *, secured: bool = False) -> dict[str, Any]:
    """A pod of the template that this declaration makes."""
    template = stateful_set(subject, "muster:1", secured=secured)["spec"]["template"]
    return {"metadata": {"name": f"a-{number}"}, "spec": template["spec"]}


def test_gateway_gets_what_every_pod_has_and_keeps_what_it_has_had() -> None:
    before = fronted({**UPSTREAM, "movableGroups": ["orders-"]})
    subject = fronted(MOVABLE)

    def given(*pods: dict[str, Any], live: Any = None) -> tuple[str, ...]:
        return moving_of(subject, pods, live, new=True).prefixes

    assert given(pod_of(fronted(), 0), pod_of(subject, 1)) == ()
    assert given(pod_of(before, 0), pod_of(subject, 1)) == ("orders-",)
    assert given(pod_of(subject, 0), pod_of(subject, 1)) == ("orders-", "jobs-")
    assert given() == ("orders-", "jobs-"), "pods that are still to be made have them"
    live = deployment(subject, Moving(("orders-",)))
    assert given(pod_of(fronted(), 0), live=live) == ("orders-",), "groups may have moved"
    assert moving_of(before, (pod_of(before, 0),), deployment(subject, Moving(("jobs-",))), new=True).prefixes == (
        "orders-",
    )


def test_gateway_asks_pods_about_moved_groups_while_its_list_is_exchanged() -> None:
    before, after = (fronted({**UPSTREAM, "movableGroups": [each]}) for each in ("orders-", "jobs-"))
    live = deployment(before, Moving(("orders-",)))
    assert moving_of(after, [pod_of(before, 0), pod_of(after, 1)], live, new=True).prefixes == ("orders-",)
    assert moving_of(after, [pod_of(after, 0), pod_of(after, 1)], live, new=True).prefixes == ("jobs-",)
    assert moving_of(after, [pod_of(before, 0)], None, new=True).prefixes == ("jobs-",), "pods tell the others"
    shorter = moving_of(
        before, [pod_of(fronted(MOVABLE), 0)], deployment(before, Moving(("orders-", "jobs-"))), new=True
    )
    assert shorter.prefixes == ("orders-",), "pods that have more still tell it"


def test_gateway_uses_tls_where_pods_do() -> None:
    subject = fronted(MOVABLE)
    assert moving_of(subject, [pod_of(subject, 0, secured=True)], None, new=False).secured
    assert not moving_of(subject, [pod_of(subject, 0)], None, new=True).secured
    assert moving_of(subject, (), None, new=True).secured


async def test_gateway_waits_for_pods_that_have_no_movable_groups_yet() -> None:
    site = await Site().settled(fronted())
    site.run_pods(2)
    site.make_pod(fronted(), 0)
    subject = fronted(MOVABLE)
    await site.settled(subject)
    assert settings_of(site.found("deployments") or {}).movable == ""
    state = site.state(subject)
    assert state is not None
    assert state.waits == "the gateway gets spec.upstream.movableGroups when all pods have them"
    site.make_pod(subject, 0)
    assert KEY in site.told
    await site.settled(subject)
    assert settings_of(site.found("deployments") or {}).movable == "orders-,jobs-"
    site.run_pods(2)
    assert site.state(subject) == GatewayState(bootstrap="a-gateway.ns.svc:9092")


def test_clients_without_cluster_dns_are_told_addresses_of_services() -> None:
    found = settings(fronted(**POD_IP), a_gateway="10.96.0.7", a_bootstrap="10.96.0.8")
    assert (found.advertised_host, found.muster) == ("10.96.0.7", "10.96.0.8:9092")


def test_service_has_the_port_that_the_gateway_opens_for_each_broker_and_each_pod() -> None:
    subject = fronted(gateway={"firstBrokerId": 1001, "brokerIds": 3}, pods=2)
    assert service_ports(subject) == {
        "kafka": BOOTSTRAP_PORT,
        "broker-1001": BROKER_PORTS,
        "broker-1002": BROKER_PORTS + 1,
        "broker-1003": BROKER_PORTS + 2,
        "pod-0": POD_PORTS,
        "pod-1": POD_PORTS + 1,
    }
    found = settings(subject)
    assert (found.bootstrap_port, found.broker_port_base, found.pod_port_base) == (9092, BROKER_PORTS, POD_PORTS)
    assert (found.broker_first_id, found.broker_ids, found.ready_port) == (1001, 3, READY_PORT)


def test_most_brokers_and_pods_that_can_be_declared_have_ports_of_their_own() -> None:
    ports = service_ports(fronted(gateway={"brokerIds": 256}, pods=100))
    assert len(ports) == len({*ports.values()}) == 357
    assert READY_PORT not in ports.values()


def test_pod_of_the_gateway_is_no_pod_of_the_cluster_and_runs_without_rights() -> None:
    made = deployment(fronted(gateway={"podTemplate": {"labels": {"team": "x", "muster.dev/gateway": "no"}}}))
    template = made["spec"]["template"]
    selected = made["spec"]["selector"]["matchLabels"]
    assert selected.items() <= template["metadata"]["labels"].items()
    assert template["metadata"]["labels"]["team"] == "x"
    assert "muster.dev/cluster" not in template["metadata"]["labels"], "status.selector is of the cluster's pods"
    assert gateway_service(fronted())[1]["spec"]["selector"] == selected
    pod = template["spec"]
    (container,) = pod["containers"]
    assert (pod["automountServiceAccountToken"], pod["securityContext"]["runAsNonRoot"]) == (False, True)
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert container["readinessProbe"]["tcpSocket"] == {"port": "ready"}
    assert {"name": "ready", "containerPort": READY_PORT, "protocol": "TCP"} in container["ports"]


def test_pod_of_the_gateway_is_spread_and_mounts_what_its_template_says() -> None:
    rack = {"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"}
    volume = {"name": "ca", "source": {"configMap": {"name": "company"}}}
    template = {"topologySpreadConstraints": [rack], "volumes": [volume]}
    pod = deployment(fronted(gateway={"podTemplate": template}))["spec"]["template"]["spec"]
    assert pod["topologySpreadConstraints"] == [rack]
    assert {"name": "mounted-ca", "configMap": {"name": "company"}} in pod["volumes"]
    (container,) = pod["containers"]
    assert {"name": "mounted-ca", "mountPath": "/mnt/ca", "readOnly": True} in container["volumeMounts"]


def test_roll_never_has_fewer_pods_than_declared() -> None:
    spec = deployment(fronted(gateway={"replicas": 3}))["spec"]
    assert (spec["replicas"], spec["strategy"]["rollingUpdate"]) == (3, {"maxUnavailable": 0, "maxSurge": 1})


def test_gateway_that_is_declared_replaces_no_pod_of_the_cluster() -> None:
    def declared(subject: Any) -> str:
        return str(stateful_set(subject, "i")["metadata"]["annotations"][DECLARED])

    assert declared(fronted()) == declared(cluster(upstream=UPSTREAM)) != declared(cluster())


class RefusingApi(StormApi):
    """Refuses what is applied to this kind."""

    refused = ""

    async def apply(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        if self.refused and f"/{self.refused}/" in path:
            raise KubeError(422, "not like this")
        return await super().apply(path, body)


class Site:
    """A workload whose watches deliver each change when they are told to."""

    def __init__(self) -> None:
        self.api = RefusingApi()
        self.told: list[ClusterKey] = []
        self.now = 0.0
        self._seen = 0
        self.begin()

    def begin(self) -> None:
        """As an operator that starts."""
        self.workload = KubeWorkload(self.api.as_client(), "muster:1", clock=lambda: self.now)
        self.workload.watch(self.told.append)

    def deliver(self) -> None:
        takers = {each.plural: each.deliver for each in sources(KubeStore(self.api.as_client(), int), self.workload)}
        for change in self.api.objects.since(self._seen) or ():
            taker = takers.get(change.name[0])
            if taker is not None and CLUSTER_LABEL in change.raw["metadata"].get("labels", {}):
                taker(change.event, change.raw)
        self._seen = self.api.objects.revision

    def found(self, plural: str, name: str = "a-gateway") -> dict[str, Any] | None:
        return self.api.objects.get(plural, NAMESPACE, name)

    def put(self, plural: str, name: str = "a-gateway", **changes: Any) -> None:
        found = self.found(plural, name)
        assert found is not None
        path = f"{GROUPS[plural]}/namespaces/{NAMESPACE}/{plural}/{name}"
        self.api.objects.handle("PUT", path, {}, {**found, **changes})

    def give_addresses(self) -> None:
        """As the API server does when Services are made."""
        for number, name in enumerate(("a-gateway", "a-bootstrap")):
            found = self.found("services", name)
            if found is not None:
                self.put("services", name, spec={**found["spec"], "clusterIP": f"10.96.0.{number}"})

    async def settled(self, subject: Any) -> Site:
        for _ in range(3):
            await self.workload.ensure_pods(subject)
            self.give_addresses()
            self.deliver()
        assert await self.writes(subject) == 0
        self.told.clear()
        return self

    async def writes(self, subject: Any) -> int:
        before = self.api.objects.revision
        await self.workload.ensure_pods(subject)
        return self.api.objects.revision - before

    def state(self, subject: Any) -> GatewayState | None:
        return self.workload.state(subject).gateway

    def make_pod(self, subject: Any, number: int) -> None:
        """In place of the one with this number."""
        name = f"a-{number}"
        if self.found("pods", name) is not None:
            self.api.objects.remove(("pods", NAMESPACE, name))
        pod = pod_of(subject, number)
        owner = [{"kind": "StatefulSet", "name": "a", "uid": "s", "controller": True}]
        body = {**pod, "metadata": {"name": name, "labels": {CLUSTER_LABEL: "a"}, "ownerReferences": owner}}
        self.api.objects.handle("POST", f"{GROUPS['pods']}/namespaces/{NAMESPACE}/pods", {}, body)
        self.deliver()

    def run_pods(self, ready: int, *, updated: int | None = None, old: int = 0) -> None:
        found = self.found("deployments")
        assert found is not None
        status = {
            "observedGeneration": found["metadata"]["generation"],
            "readyReplicas": ready,
            "updatedReplicas": ready if updated is None else updated,
            "replicas": (ready if updated is None else updated) + old,
        }
        self.put("deployments", status=status)
        self.deliver()


async def test_cluster_without_a_gateway_has_nothing_of_it() -> None:
    site = await Site().settled(cluster())
    assert [site.found(*each) for each in OBJECTS] == [None] * 3
    assert site.state(cluster()) is None


async def test_gateway_is_told_until_all_its_pods_of_the_declared_template_are_ready() -> None:
    subject = fronted()
    site = await Site().settled(subject)
    state = site.state(subject)
    assert state is not None
    assert (state.waits, state.bootstrap) == ("0 of 2 gateway pods are ready", "a-gateway.ns.svc:9092")
    site.run_pods(1)
    assert KEY in site.told
    assert site.state(subject) == GatewayState("1 of 2 gateway pods are ready", bootstrap="a-gateway.ns.svc:9092")
    site.run_pods(2, old=1)
    waiting = site.state(subject)
    assert waiting is not None
    assert waiting.waits == "1 gateway pods of an older template are still there"
    site.run_pods(2)
    assert site.state(subject) == GatewayState(bootstrap="a-gateway.ns.svc:9092")
    another = fronted({**UPSTREAM, "servedGroups": ["billing-"]})
    waits = site.state(another)
    assert waits is not None
    assert waits.waits == "the gateway's Deployment is not as declared yet"
    await site.settled(another)
    assert site.state(another) == GatewayState("0 of 2 gateway pods are ready", bootstrap="a-gateway.ns.svc:9092")
    site.run_pods(2, updated=1)
    assert site.state(another) == GatewayState("1 of 2 gateway pods are ready", bootstrap="a-gateway.ns.svc:9092")


async def test_deployment_waits_for_the_addresses_of_services() -> None:
    subject = fronted(**POD_IP)
    site = Site()
    await site.workload.ensure_pods(subject)
    assert site.found("services") is not None
    assert site.found("deployments") is None
    waits = site.state(subject)
    assert waits is not None
    assert waits.waits
    await site.settled(subject)
    made = site.found("deployments")
    assert made is not None
    assert "advertised.host=10.96.0.0" in str(made["spec"]["template"])


@pytest.mark.parametrize(("plural", "name"), OBJECTS)
async def test_object_of_the_gateway_that_is_deleted_or_changed_is_as_declared_again(plural: str, name: str) -> None:
    subject = fronted()
    site = await Site().settled(subject)
    site.api.objects.remove((plural, NAMESPACE, name))
    site.deliver()
    assert KEY in site.told
    assert await site.writes(subject) >= 1
    await site.settled(subject)
    wanted = site.found(plural, name)
    assert wanted is not None
    for changes in (
        {"spec": {**wanted["spec"], "selector": {"app": "mine"}}},
        {"metadata": {**wanted["metadata"], "labels": {**wanted["metadata"]["labels"], "app.kubernetes.io/name": "x"}}},
    ):
        now = site.found(plural, name)
        assert now is not None
        changes.get("metadata", {})["resourceVersion"] = now["metadata"]["resourceVersion"]
        site.put(plural, name, **changes)
        site.deliver()
        assert KEY in site.told
        assert await site.writes(subject) >= 1
        found = site.found(plural, name)
        assert found is not None
        assert found["spec"]["selector"] == wanted["spec"]["selector"]
        assert found["metadata"]["labels"] == wanted["metadata"]["labels"]
        await site.settled(subject)


@pytest.mark.parametrize(("plural", "name"), OBJECTS)
async def test_object_of_somebody_else_is_named_and_left_alone(plural: str, name: str) -> None:
    subject = fronted()
    site = Site()
    path = f"{GROUPS[plural]}/namespaces/{NAMESPACE}/{plural}"
    body = {"metadata": {"name": name, "labels": {"app": "other"}}, "spec": {"of": "somebody else"}}
    site.api.objects.handle("POST", path, {}, body)
    for _ in range(2):
        await site.workload.ensure_pods(subject)
        site.deliver()
    state = site.state(subject)
    assert state is not None
    assert f"{name} exists and is not of this CoordinatorCluster" in state.trouble
    found = site.found(plural, name)
    assert found is not None
    assert found["spec"] == {"of": "somebody else"}
    assert site.found("statefulsets", "a") is not None, "the pods serve on"
    others = [each for each in OBJECTS if each != (plural, name)]
    assert [site.found(*each) for each in others] == [None, None]
    await site.workload.ensure_pods(cluster())
    assert site.found(plural, name) == found, "and is not deleted either"


async def test_gateway_that_is_not_declared_any_more_is_deleted_and_the_cluster_stays() -> None:
    site = await Site().settled(fronted())
    without = cluster(upstream=UPSTREAM)
    await site.workload.ensure_pods(without)
    site.deliver()
    assert [site.found(*each) for each in OBJECTS] == [None] * 3
    assert site.found("statefulsets", "a") is not None
    assert site.found("services", "a-bootstrap") is not None
    assert site.state(without) is None
    assert await site.writes(without) == 0


async def test_gateway_of_a_cluster_of_that_name_is_not_deleted_for_another_cluster() -> None:
    site = await Site().settled(fronted())
    another = replace(cluster(), metadata=replace(cluster().metadata, uid="u-2"))
    await site.workload.gateways.ensure(another, (), (), secured=False)
    assert all(site.found(*each) is not None for each in OBJECTS)


async def test_number_of_gateway_pods_and_another_version_of_the_operator_make_no_new_template() -> None:
    subject = fronted(image="muster:1")
    site = await Site().settled(subject)
    made = site.found("deployments")
    assert made is not None
    template = {**made["spec"]["template"], "made-by": "an older operator"}
    site.put("deployments", spec={**made["spec"], "template": template})
    site.begin()
    site.deliver()
    more = fronted(gateway={"replicas": 5}, image="muster:1")
    await site.settled(more)
    after = site.found("deployments")
    assert after is not None
    assert (after["spec"]["replicas"], after["spec"]["template"]["made-by"]) == (5, "an older operator")
    other = fronted(gateway={"replicas": 5}, image="muster:2")
    await site.settled(other)
    newest = site.found("deployments")
    assert newest is not None
    assert "made-by" not in newest["spec"]["template"]


async def test_gateway_that_the_api_server_refuses_is_told_and_the_pods_serve_on() -> None:
    subject = fronted()
    site = Site()
    site.api.refused = "deployments"
    await site.workload.ensure_pods(subject)
    state = site.state(subject)
    assert state is not None
    assert state.trouble.startswith("the API server refuses the gateway")
    assert site.found("statefulsets", "a") is not None
    site.api.refused = ""
    site.now += 400
    await site.settled(subject)
    after = site.state(subject)
    assert after is not None
    assert after.trouble == ""
