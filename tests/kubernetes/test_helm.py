"""The charts on a cluster: installed, upgraded with a field that is new in the definitions, and removed."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.support.kube import REPOSITORY, kubectl, send_operator_away
from tests.support.muster_cluster import MusterCluster, wait_until
from tests.support.platform_team import Cared, Load, cared_for

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(400)]

BUILT_HELM = REPOSITORY / ".cache" / "bin" / "helm"
HELM = str(BUILT_HELM) if BUILT_HELM.exists() else shutil.which("helm")
NAMESPACE, OPERATOR = "muster-helm", "muster-helm-operator"
PLACED = REPOSITORY / "charts" / "muster" / "ci" / "placed-values.yaml"
PRIORITY = 100_000
DEFINITIONS = (
    "musterbackups",
    "consumergroups",
    "musterusers",
    "offsetspartitions",
    "offsetstopics",
    "coordinatorclusters",
)

if HELM is None:
    pytest.skip("needs helm: make helm", allow_module_level=True)


def helm(*arguments: str) -> str:
    done = subprocess.run([str(HELM), *arguments], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def no_operator(custom_resources: None) -> Iterator[None]:
    """No operator runs, and afterwards the definitions are those of this tree. Helm takes over what is there."""
    send_operator_away()
    yield
    for release in ("muster", "definitions"):
        subprocess.run([str(HELM), "uninstall", release, "-n", OPERATOR, "--ignore-not-found"], capture_output=True)
    kubectl("delete", "namespace", OPERATOR, "--ignore-not-found")
    kubectl("apply", "--server-side", "--force-conflicts", "-f", str(REPOSITORY / "crds"))


def later_definitions(folder: Path) -> Path:
    """The chart of a later version: a CoordinatorCluster has one more field."""
    chart = folder / "muster-crds"
    shutil.copytree(REPOSITORY / "charts" / "muster-crds", chart)
    file = chart / "templates" / "coordinatorclusters.yaml"
    definition = yaml.safe_load(file.read_text(encoding="utf-8"))
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"]["addedLater"] = {"type": "string", "description": "Of a later version."}
    definition["metadata"]["annotations"]["muster.dev/schema"] = "later"
    file.write_text(yaml.safe_dump(definition), encoding="utf-8")
    return chart


def test_charts_are_installed_upgraded_with_a_new_field_and_removed(no_operator: None, tmp_path: Path) -> None:
    _install()
    with cared_for(NAMESPACE, "held", pods=3) as cluster:
        before = cluster.runs()
        load = Load.begin(cluster, "helm")
        _upgrade(cluster, tmp_path)
        load.goes_on()
        helm("uninstall", "muster", "-n", OPERATOR, "--wait")
        helm("uninstall", "definitions", "-n", OPERATOR, "--wait")
        names = {f"{each}.muster.dev" for each in DEFINITIONS}
        kept = json.loads(kubectl("get", "crds", "-o", "json").stdout)["items"]
        assert names <= {each["metadata"]["name"] for each in kept}, "with them all clusters would go"
        assert kubectl("get", "deployments", "-n", OPERATOR, "-o", "name").stdout == ""
        load.goes_on()
        load.end_with_nothing_lost()
        assert cluster.runs() == before, "pods serve on without an operator"
        _install()
        cluster.wait_whole()
        assert cluster.runs() == before, "the next operator finds everything as it is"


def test_chart_with_all_values_of_placement_is_installed(no_operator: None, what_they_name: None) -> None:
    """The values of the chart's own tests, but for numbers: this Kubernetes has one node, and they keep pods apart."""
    sizes = {"operator.replicas": 1, "cluster.spec.pods": 1, "cluster.spec.storage.size": "1Gi"}
    topic = {"cluster.offsetsTopic.partitions": 4, "cluster.offsetsTopic.replicationFactor": 1}
    of_one_node = [f"--set={name}={value}" for name, value in {**sizes, **topic}.items()]
    _install("-f", str(PLACED), *of_one_node, wait=False)  # with it Helm waits for the addresses, which come below
    cluster = MusterCluster(OPERATOR, "muster")
    wait_until(lambda: bool(_balanced(cluster)), "the services of the listener outside are there")
    for name in _balanced(cluster):  # as a cloud does
        address = {"status": {"loadBalancer": {"ingress": [{"ip": "10.255.255.9"}]}}}
        cluster.kubectl("patch", "service", name, "--subresource=status", "--type=merge", "-p", json.dumps(address))
    cluster.wait_ready()
    values = yaml.safe_load(PLACED.read_text(encoding="utf-8"))
    (pod,) = cluster.objects("pods", "-l", "muster.dev/cluster=muster")
    (operator,) = cluster.objects("pods", "-l", "app.kubernetes.io/name=muster-operator")
    for made, said in ((pod, values["cluster"]["spec"]["podTemplate"]), (operator, values["operator"])):
        spec = made["spec"]
        for name in ("priorityClassName", "affinity", "topologySpreadConstraints"):
            assert spec[name] == said[name]
        assert all(each in spec["tolerations"] for each in said["tolerations"])
        assert spec["imagePullSecrets"] == values["imagePullSecrets"]
        assert spec["priority"] == PRIORITY
    mounted = cluster.kubectl("exec", operator["metadata"]["name"], "--", "cat", "/etc/ssl/company/ca.crt")
    assert mounted == "of the company"
    (status,) = (each["status"]["listeners"] for each in cluster.objects("coordinatorclusters"))
    assert {each["name"] for each in status} == {"outside", "nodes"}


@pytest.fixture
def what_they_name(no_operator: None) -> Iterator[None]:
    """All that the values of placement name: a zone, a priority class, a Secret, and files to mount."""
    kubectl("label", "nodes", "--all", "topology.kubernetes.io/zone=one", "--overwrite")
    kubectl("create", "namespace", OPERATOR)
    kubectl("create", "priorityclass", "kafka-groups", f"--value={PRIORITY}")
    for name, content in (("company-ca", "ca.crt=of the company"), ("token-keys", "keys.json={}")):
        kubectl("-n", OPERATOR, "create", "configmap", name, f"--from-literal={content}")
    login = ("--docker-server=registry.invalid", "--docker-username=a", "--docker-password=b")
    kubectl("-n", OPERATOR, "create", "secret", "docker-registry", "registry", *login)
    yield
    kubectl("-n", OPERATOR, "delete", "offsetstopics,coordinatorclusters", "--all", "--ignore-not-found")
    kubectl("delete", "priorityclass", "kafka-groups")
    kubectl("label", "nodes", "--all", "topology.kubernetes.io/zone-")


def _balanced(cluster: MusterCluster) -> list[str]:
    """The names of the services that a cloud gives an address."""
    services = cluster.objects("services")
    return [each["metadata"]["name"] for each in services if each["spec"]["type"] == "LoadBalancer"]


def _install(*values: str, wait: bool = True) -> None:
    options = ("-n", OPERATOR, "--create-namespace", "--take-ownership", "--force-conflicts")
    helm("install", "definitions", str(REPOSITORY / "charts/muster-crds"), *options)
    helm(
        "install",
        "muster",
        str(REPOSITORY / "charts/muster"),
        *options,
        *values,
        *(("--wait", "--timeout", "90s") if wait else ()),
    )


def _upgrade(cluster: Cared, folder: Path) -> None:
    helm("upgrade", "definitions", str(later_definitions(folder)), "-n", OPERATOR, "--force-conflicts")
    wait_until(lambda: "Of a later version" in _explained(), "the API server has the new field")
    cluster.patch(addedLater="kept")
    (found,) = cluster.objects("coordinatorclusters")
    assert found["spec"]["addedLater"] == "kept", "a field that the definitions lack would be dropped"
    # The operator reads the definitions when it starts, and every five minutes.
    kubectl("rollout", "restart", "deployment/muster-operator", "-n", OPERATOR)
    kubectl("rollout", "status", "deployment/muster-operator", "-n", OPERATOR, "--timeout=50s")
    cluster.wait_for_reason("CrdOutdated", "CrdOutdated")


def _explained() -> str:
    return kubectl("explain", "coordinatorcluster.spec.addedLater", check=False).stdout
