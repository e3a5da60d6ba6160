"""The Helm chart and the Kustomize base describe the same thing; the samples decode."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from tests.support.definitions import problems

from muster_operator.api.crds import KINDS
from muster_operator.api.models import CoordinatorCluster, OffsetsTopic
from muster_operator.kube.gateway_manifests import READY_PORT, Moving, gateway_deployment, gateway_service
from muster_operator.kube.manifests import API_PORT, METRICS_PORT, PEER_PORT, stateful_set
from muster_operator.kube.run import KubeOptions

REPOSITORY = Path(__file__).parents[3]
CHART = REPOSITORY / "charts" / "muster"
BUILT_HELM = REPOSITORY / ".cache" / "bin" / "helm"
HELM = str(BUILT_HELM) if BUILT_HELM.exists() else shutil.which("helm")

NAME = "app.kubernetes.io/name"
needs_helm = pytest.mark.skipif(HELM is None, reason="needs helm: make helm")


def output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def objects(text: str) -> dict[tuple[str, str], dict[str, Any]]:
    return {(each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(text) if each}


def helm_template(*arguments: str) -> dict[tuple[str, str], dict[str, Any]]:
    assert HELM is not None
    return objects(output(HELM, "template", "muster", str(CHART), "-n", "muster-system", *arguments))


@needs_helm
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl, for kustomize")
def test_chart_and_kustomize_base_describe_the_same() -> None:
    kustomized = objects(output("kubectl", "kustomize", str(REPOSITORY / "config")))
    # Helm creates the namespace of a release itself.
    del kustomized["Namespace", "muster-system"]
    for (kind, _), each in kustomized.items():
        if kind.startswith("ValidatingAdmissionPolicy"):
            del each["metadata"]["namespace"]  # kustomize takes it for a kind with namespaces; the API server clears it
    assert helm_template() == kustomized


@pytest.mark.parametrize("file", ["config/kustomization.yaml", "charts/muster"])
def test_operator_is_installed_and_removed_without_the_definitions(file: str) -> None:
    """With them, all clusters of the fleet would be deleted with the operator."""
    path = REPOSITORY / file
    texts = [each.read_text() for each in path.rglob("*") if each.is_file()] if path.is_dir() else [path.read_text()]
    assert not any("kind: CustomResourceDefinition" in text or "../crds" in text for text in texts)
    assert not (CHART / "crds").exists()


def _ports(rule: dict[str, Any]) -> list[int]:
    return [each["port"] for each in rule["ports"]]


def test_policies_name_who_reaches_which_port() -> None:
    """The base; another test compares the chart with it."""
    policies = objects((REPOSITORY / "config/network-policies.yaml").read_text())
    spec = policies["NetworkPolicy", "muster-coordinators"]["spec"]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert spec["podSelector"]["matchLabels"] == {NAME: "muster-coordinator"}
    reached = {port: rule.get("from") for rule in spec["ingress"] for port in _ports(rule)}
    assert reached == {
        9092: None,
        API_PORT: [
            {"podSelector": {"matchLabels": {NAME: each}}}
            for each in ("muster-operator", "muster-gateway", "muster-backup")
        ],
        PEER_PORT: [{"podSelector": {"matchLabels": {NAME: "muster-coordinator"}}}],
    }
    assert [_ports(rule) for rule in spec["egress"]] == [[PEER_PORT, 9092]]
    assert all("to" in rule for rule in spec["egress"])
    assert policies["NetworkPolicy", "muster-operator"]["spec"]["ingress"] == []


def _lets_in(policy: dict[str, Any], port: int) -> bool:
    ports = [each for rule in policy["spec"]["ingress"] for each in rule["ports"]]
    return any(each["port"] <= port <= each.get("endPort", each["port"]) for each in ports)


def test_policy_of_gateways_lets_clients_in_at_every_port_that_a_service_can_have() -> None:
    policies = objects((REPOSITORY / "config/network-policies.yaml").read_text())
    policy = policies["NetworkPolicy", "muster-gateways"]
    declared = {"upstream": {"bootstrapServers": "k:1"}, "gateway": {"brokerIds": 256}, "pods": 100}
    subject = msgspec.convert({"metadata": {"name": "a"}, "spec": declared}, CoordinatorCluster)
    made = gateway_deployment(subject, "muster:1", {}, Moving())[1]
    assert policy["spec"]["podSelector"]["matchLabels"].items() <= made["spec"]["selector"]["matchLabels"].items()
    assert all(_lets_in(policy, each["port"]) for each in gateway_service(subject)[1]["spec"]["ports"])
    assert not _lets_in(policy, READY_PORT), "kubelets are let in anyway"


@needs_helm
def test_chart_writes_policies_for_other_namespaces_and_readers() -> None:
    rendered = helm_template(
        "--set-json",
        'networkPolicies.readers=[{"podSelector":{"matchLabels":{"app":"spark"}}}]',
        "--set-json",
        'networkPolicies.monitoring=[{"podSelector":{"matchLabels":{"app":"prometheus"}}}]',
        "--set",
        "networkPolicies.namespaces={teams}",
        "--set-json",
        'networkPolicies.clients=[{"podSelector":{"matchLabels":{"app":"consumer"}}}]',
    )
    policy = rendered["NetworkPolicy", "muster-coordinators"]
    assert policy["metadata"]["namespace"] == "teams"
    api = next(rule for rule in policy["spec"]["ingress"] if _ports(rule) == [API_PORT])
    operator, *own, reader = api["from"]
    assert operator["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "muster-system"}
    names = ("muster-gateway", "muster-backup")
    assert own == [{"podSelector": {"matchLabels": {NAME: each}}} for each in names]
    assert reader == {"podSelector": {"matchLabels": {"app": "spark"}}}
    gateways = rendered["NetworkPolicy", "muster-gateways"]
    assert gateways["metadata"]["namespace"] == "teams"
    assert gateways["spec"]["ingress"][0]["from"] == [{"podSelector": {"matchLabels": {"app": "consumer"}}}]
    fronts = [{"podSelector": {"matchLabels": {NAME: "muster-gateway"}}}]
    assert [_ports(rule) for rule in policy["spec"]["ingress"] if rule.get("from") == fronts] == [[9092]]
    among_pods = next(rule for rule in policy["spec"]["ingress"] if PEER_PORT in _ports(rule))
    assert _ports(among_pods) == [PEER_PORT, 9092], "markers of transactions, where clients are listed"
    scraping = [{"podSelector": {"matchLabels": {"app": "prometheus"}}}]
    assert [rule["from"] for rule in policy["spec"]["ingress"] if _ports(rule) == [METRICS_PORT]] == [scraping]
    assert rendered["NetworkPolicy", "muster-operator"]["spec"]["ingress"][0]["from"] == scraping
    assert not [kind for kind, _ in helm_template("--set", "networkPolicies.enabled=false") if kind == "NetworkPolicy"]


@needs_helm
def test_operator_is_told_of_a_collector() -> None:
    def environment(*arguments: str) -> dict[str, str]:
        (container,) = helm_template(*arguments)["Deployment", "muster-operator"]["spec"]["template"]["spec"][
            "containers"
        ]
        return {each["name"]: each.get("value", "") for each in container["env"]}

    name, url = "MUSTER_OPERATOR_TRACING_ENDPOINT", "http://collector:4318"
    assert name not in environment()
    assert environment("--set", f"operator.tracingEndpoint={url}")[name] == url
    assert KubeOptions.from_environment({name: url}).tracing_endpoint == url


@needs_helm
def test_one_namespace_is_a_role_in_it_and_no_rights_elsewhere() -> None:
    rendered = helm_template("--set", "operator.watchNamespace=teams,operator.secrets={company-operator}")
    people = {"muster-operator-view", "muster-operator-edit", "muster-view", "muster-operate"}
    assert {name for kind, name in rendered if kind == "ClusterRole"} == people
    assert not [name for kind, name in rendered if kind == "ClusterRoleBinding"]
    role, binding = rendered["Role", "muster-operator-clusters"], rendered["RoleBinding", "muster-operator-clusters"]
    assert role["metadata"]["namespace"] == binding["metadata"]["namespace"] == "teams"
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert binding["subjects"][0]["namespace"] == "muster-system"
    reached = {resource for rule in role["rules"] for resource in rule["resources"]}
    assert reached.isdisjoint({"nodes", "customresourcedefinitions", "configmaps", "namespaces"})
    readable = [rule for rule in role["rules"] if rule["resources"] == ["secrets"] and "get" in rule["verbs"]]
    names = [rule["resourceNames"] for rule in readable]
    assert sorted(names) == [["company-operator"], ["muster-operator-certificates", "muster-operator-users"]]


@needs_helm
def test_chart_has_the_alerts_of_the_kustomize_base_and_the_days_of_its_value() -> None:
    assert "PrometheusRule" not in {kind for kind, _ in helm_template()}
    base = yaml.safe_load((REPOSITORY / "config" / "monitoring" / "alerts.yaml").read_text())
    assert helm_template("--set", "alerts.enabled=true")["PrometheusRule", "muster-operator"]["spec"] == base["spec"]
    rendered = helm_template("--set", "alerts.enabled=true,alerts.certificateDays=30,alerts.labels.release=prometheus")
    rule = rendered["PrometheusRule", "muster-operator"]
    rules = {each["alert"]: each for group in rule["spec"]["groups"] for each in group["rules"]}
    assert rules["MusterCertificatesDue"]["expr"].endswith("< 30 * 86400")
    assert rule["metadata"]["labels"]["release"] == "prometheus"


@needs_helm
def test_chart_has_the_pod_monitors_of_the_kustomize_base() -> None:
    assert "PodMonitor" not in {kind for kind, _ in helm_template()}
    base = objects((REPOSITORY / "config" / "monitoring" / "pod-monitors.yaml").read_text())
    rendered = helm_template("--set", "podMonitors.enabled=true,podMonitors.labels.release=prometheus")
    for key, each in base.items():
        assert rendered[key]["spec"] == each["spec"]
        assert rendered[key]["metadata"]["labels"]["release"] == "prometheus"
    watched = helm_template("--set", "podMonitors.enabled=true,operator.watchNamespace=teams")["PodMonitor", "muster"]
    assert watched["spec"]["namespaceSelector"] == {"matchNames": ["teams"]}


def test_pod_monitors_select_pods_and_ports_that_there_are() -> None:
    monitors = objects((REPOSITORY / "config" / "monitoring" / "pod-monitors.yaml").read_text())
    selector = monitors["PodMonitor", "muster"]["spec"]["selector"]
    (names,) = selector["matchExpressions"]
    declared = {"upstream": {"bootstrapServers": "k:1"}, "gateway": {"brokerIds": 2}}
    cluster = msgspec.convert({"metadata": {"name": "a", "namespace": "ns"}, "spec": declared}, CoordinatorCluster)
    for manifest, container in (
        (gateway_deployment(cluster, "muster:1", {}, Moving())[1], "gateway"),
        (stateful_set(cluster, "muster:1"), "coordinator"),
    ):
        template = manifest["spec"]["template"]
        labels = template["metadata"]["labels"]
        assert labels[names["key"]] in names["values"]
        assert selector["matchLabels"].items() <= labels.items()
        (ports,) = [each["ports"] for each in template["spec"]["containers"] if each["name"] == container]
        assert "metrics" in {port["name"] for port in ports}


@needs_helm
def test_chart_has_the_pages_of_config_where_they_are_asked_for() -> None:
    """Its rights are those of a viewer, its door is the Secret, and it shows the clusters that the operator has."""
    assert not [name for _, name in helm_template() if name == "muster-ui"]
    base = objects((REPOSITORY / "config" / "ui" / "ui.yaml").read_text())
    rendered = helm_template("--set", "ui.enabled=true,ui.arguments={--lag-from=kafka:9092}")
    pod, asked = (each["Deployment", "muster-ui"]["spec"]["template"]["spec"] for each in (base, rendered))
    (container,), (asked_container,) = pod.pop("containers"), asked.pop("containers")
    assert asked == pod
    assert asked_container.pop("image") == "docker.io/library/muster:local"
    command, *arguments = asked_container.pop("args")
    assert {command, *arguments} == {*container.pop("args"), "--all-namespaces", "--lag-from=kafka:9092"}
    del container["image"]
    assert asked_container == container
    assert rendered["Service", "muster-ui"]["spec"] == base["Service", "muster-ui"]["spec"]
    assert rendered["ClusterRoleBinding", "muster-ui"]["roleRef"]["name"] == "muster-view"
    assert _ports(rendered["NetworkPolicy", "muster-ui"]["spec"]["ingress"][0]) == [9650]
    one = helm_template("--set", "ui.enabled=true,operator.watchNamespace=teams,ui.image=mine/muster-pipeline:1")
    assert one["RoleBinding", "muster-ui"]["metadata"]["namespace"] == "teams"
    assert ("ClusterRoleBinding", "muster-ui") not in one
    (container,) = one["Deployment", "muster-ui"]["spec"]["template"]["spec"]["containers"]
    assert "--namespace=teams" in container["args"]
    assert container["image"] == "mine/muster-pipeline:1"


@needs_helm
def test_image_is_pinned_by_its_digest() -> None:
    digest = "sha256:" + "0" * 64
    rendered = helm_template("--set", f"image.digest={digest},image.repository=registry/muster")
    (container,) = rendered["Deployment", "muster-operator"]["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"registry/muster@{digest}"


@needs_helm
def test_chart_of_the_definitions_renders_them() -> None:
    assert HELM is not None
    rendered = objects(output(HELM, "template", "crds", str(REPOSITORY / "charts" / "muster-crds")))
    assert {kind for kind, _ in rendered} == {"CustomResourceDefinition"}
    assert len(rendered) == len(KINDS)


@needs_helm
def test_chart_with_a_cluster_renders_resources_that_decode() -> None:
    rendered = helm_template("--set", "cluster.enabled=true,cluster.spec.pods=5,cluster.offsetsTopic.partitions=8")
    cluster = msgspec.convert(rendered["CoordinatorCluster", "muster"], CoordinatorCluster)
    topic = msgspec.convert(rendered["OffsetsTopic", "muster-offsets"], OffsetsTopic)
    assert (cluster.spec.pods, topic.spec.partitions) == (5, 8)
    assert topic.spec.cluster_ref.name == cluster.metadata.name
    assert cluster.metadata.namespace == topic.metadata.namespace


@needs_helm
def test_chart_adds_a_transaction_topic_where_it_is_asked_for() -> None:
    assert ("OffsetsTopic", "muster-transactions") not in helm_template("--set", "cluster.enabled=true")
    rendered = helm_template("--set", "cluster.enabled=true,cluster.transactionTopic.partitions=10")
    topic = msgspec.convert(rendered["OffsetsTopic", "muster-transactions"], OffsetsTopic)
    assert (topic.spec.topic, topic.layout.base, topic.layout.partitions) == ("__transaction_state", 500_000, 10)
    assert topic.spec.cluster_ref.name == "muster"


@needs_helm
@pytest.mark.parametrize(
    "value",
    [
        *("image.pullPolicy=Sometimes", "image.digest=latest", "operator.replicas=-1"),
        *("cluster.offsetsTopic.partitions=0", "imgae.tag=x"),
    ],
)
def test_wrong_value_is_refused_by_the_values_schema(value: str) -> None:
    with pytest.raises(subprocess.CalledProcessError) as refused:
        helm_template("--set", value)
    assert value.split("=")[0].split(".")[-1] in refused.value.stderr or "imgae" in refused.value.stderr


PLACED = CHART / "ci" / "placed-values.yaml"


@needs_helm
def test_chart_places_operator_and_pods_as_the_values_say() -> None:
    rendered, values = helm_template("-f", str(PLACED)), yaml.safe_load(PLACED.read_text(encoding="utf-8"))
    pod = rendered["Deployment", "muster-operator"]["spec"]["template"]["spec"]
    said = values["operator"]
    for name in ("priorityClassName", "nodeSelector", "tolerations", "affinity", "topologySpreadConstraints"):
        assert pod[name] == said[name]
    assert pod["imagePullSecrets"] == values["imagePullSecrets"]
    assert [each["name"] for each in pod["volumes"]] == ["keys", "company-ca"]
    assert [each["name"] for each in pod["containers"][0]["volumeMounts"]] == ["keys", "company-ca"]
    assert rendered["CoordinatorCluster", "muster"]["spec"] == values["cluster"]["spec"]


def test_cluster_of_the_placed_values_is_taken_and_its_pods_are_placed() -> None:
    spec = yaml.safe_load(PLACED.read_text(encoding="utf-8"))["cluster"]["spec"]
    shown = {
        "apiVersion": "muster.dev/v1alpha1",
        "kind": "CoordinatorCluster",
        "metadata": {"name": "muster"},
        "spec": spec,
    }
    assert problems(shown) == []
    made = stateful_set(msgspec.convert(shown, CoordinatorCluster), "muster:1")["spec"]["template"]["spec"]
    for name in ("priorityClassName", "tolerations", "affinity", "topologySpreadConstraints", "imagePullSecrets"):
        assert made[name] == spec["podTemplate"][name]
    assert [each["name"] for each in made["volumes"]] == ["mounted-token-keys"]
    ports = {each["name"]: each["containerPort"] for each in made["containers"][0]["ports"]}
    assert (ports["outside"], ports["nodes"]) == (9094, 9095)


def test_templates_read_values_that_there_are_and_the_schema_knows_all() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    texts = "".join(each.read_text(encoding="utf-8") for each in (CHART / "templates").iterdir())
    for path in sorted(set(re.findall(r"\.Values((?:\.\w+)+)", texts))):
        inner, known = values, schema
        for name in path.strip(".").split("."):
            assert name in inner, path
            inner = inner[name]
            known = known["properties"][name]
    assert problems_of_values(yaml.safe_load(PLACED.read_text(encoding="utf-8")), schema) == []


def problems_of_values(values: dict[str, Any], schema: dict[str, Any]) -> list[str]:
    """Names that the schema of the chart does not have, where it has all."""
    known = schema.get("properties", {})
    strange = [name for name in values if name not in known and schema.get("additionalProperties") is False]
    inner = (
        problems_of_values(each, known[name])
        for name, each in values.items()
        if isinstance(each, dict) and name in known
    )
    return strange + [each for found in inner for each in found]


def test_sample_decodes_and_belongs_together() -> None:
    text = (REPOSITORY / "config/samples/small.yaml").read_text(encoding="utf-8")
    cluster, topic = yaml.safe_load_all(text)
    assert msgspec.convert(topic, OffsetsTopic).spec.cluster_ref.name == cluster["metadata"]["name"]
    assert msgspec.convert(cluster, CoordinatorCluster).spec.topics[0].name == "orders"
