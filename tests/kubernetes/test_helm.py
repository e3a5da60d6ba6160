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
from tests.support.muster_cluster import wait_until
from tests.support.platform_team import Cared, Load, cared_for

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(400)]

BUILT_HELM = REPOSITORY / ".cache" / "bin" / "helm"
HELM = str(BUILT_HELM) if BUILT_HELM.exists() else shutil.which("helm")
NAMESPACE, OPERATOR = "muster-helm", "muster-helm-operator"
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


def _install() -> None:
    options = ("-n", OPERATOR, "--create-namespace", "--take-ownership", "--force-conflicts")
    helm("install", "definitions", str(REPOSITORY / "charts/muster-crds"), *options)
    helm("install", "muster", str(REPOSITORY / "charts/muster"), *options, "--wait", "--timeout", "90s")


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
