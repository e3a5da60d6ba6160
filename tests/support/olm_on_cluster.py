"""The Operator Lifecycle Manager (OLM) on the cluster of the tests, and our bundle as its InstallPlans apply one.

OLM's operator runs as its chart declares it. Its catalog operator, which makes InstallPlans of bundles in a registry,
does not. What an InstallPlan applies is applied here: the definitions and roles of the bundle, its
ClusterServiceVersion, and the ServiceAccount and rights that this declares. The operator holds them against the
ClusterServiceVersion, makes the Deployment, and takes all of it away with the ClusterServiceVersion.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from tests.support.kube import REPOSITORY, kubectl, kubectl_when_ready
from tests.support.muster_cluster import wait_until

Json = dict[str, Any]

CHART = REPOSITORY / ".cache" / "olm" / "chart"
BUILT_HELM = REPOSITORY / ".cache" / "bin" / "helm"
HELM = str(BUILT_HELM) if BUILT_HELM.exists() else shutil.which("helm")
WITHOUT = ("catalog-operator", "operatorhubio-catalog", "packageserver")
"""Objects of the chart that need OLM's catalogs."""
RBAC = "rbac.authorization.k8s.io"
NAMESPACE, GROUP = "muster-system", "muster"
SUCCEED_S = 90.0


def _applied(*objects: Json) -> None:
    text = "\n---\n".join(map(json.dumps, objects))
    kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=text)


@contextmanager
def running_olm(image: str) -> Iterator[None]:
    """OLM's operator, of this image, available. At the end what it logged is printed, and it goes."""
    values = f"olm.image.ref={image},olm.image.pullPolicy=IfNotPresent"
    command = [str(HELM), "template", "olm", str(CHART), "--set", values]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    rendered = [each for each in yaml.safe_load_all(done.stdout) if each and each["metadata"]["name"] not in WITHOUT]
    crds = ("-f", str(CHART / "crds"))
    kubectl("apply", "--server-side", *crds)
    kubectl("wait", "--for=condition=Established", "--timeout=30s", *crds)
    kubectl_when_ready("get", "operatorgroups", "-A")
    (deployment,) = (each for each in rendered if each["kind"] == "Deployment")
    about = ("-n", deployment["metadata"]["namespace"], f"deployment/{deployment['metadata']['name']}")
    try:
        _applied(*rendered)
        kubectl("rollout", "status", *about, "--timeout=50s")
        yield
    finally:
        print(kubectl("logs", *about, "--tail=100", check=False).stdout)
        objects = "\n---\n".join(map(json.dumps, rendered))
        kubectl("delete", "--ignore-not-found", "-f", "-", stdin=objects, check=False, timeout_s=120)
        kubectl("delete", "--ignore-not-found", *crds, check=False)


class Bundle:
    """A bundle in a folder, as hack/olm.py writes it."""

    def __init__(self, folder: Path) -> None:
        self.beside = [each for each in yaml.safe_load_all((folder / "beside.yaml").read_text()) if each]
        manifests = [yaml.safe_load(each.read_text()) for each in sorted((folder / "manifests").iterdir())]
        (self.service_version,) = (each for each in manifests if each["kind"] == "ClusterServiceVersion")
        self.definitions = [each for each in manifests if each["kind"] == "CustomResourceDefinition"]
        self.roles = [each for each in manifests if each["kind"] == "ClusterRole"]
        assert len(manifests) == 1 + len(self.definitions) + len(self.roles)
        self.name: str = self.service_version["metadata"]["name"]
        self.service_version["metadata"]["namespace"] = NAMESPACE
        (deployment,) = self.service_version["spec"]["install"]["spec"]["deployments"]
        self.account: str = deployment["spec"]["template"]["spec"]["serviceAccountName"]

    def example(self, *kinds: str) -> list[Json]:
        """The objects of these kinds that OLM's forms show."""
        shown = json.loads(self.service_version["metadata"]["annotations"]["alm-examples"])
        return [each for each in shown if each["kind"] in kinds]

    def prepare(self) -> None:
        """Apply what an administrator does, with an OperatorGroup for all namespaces, and what an InstallPlan does
        before the ClusterServiceVersion.
        """
        _applied(*self.beside)
        _applied(*self.definitions, *self.roles)
        for each in self.definitions:
            kubectl("wait", "--for=condition=Established", "--timeout=30s", f"crd/{each['metadata']['name']}")
        self.target()

    def put_away(self) -> None:
        """Delete what `prepare` applied, but for the definitions."""
        objects = "\n---\n".join(map(json.dumps, (*self.roles, *self.beside)))
        kubectl("delete", "--ignore-not-found", "-f", "-", stdin=objects, timeout_s=120)

    def target(self, *namespaces: str) -> None:
        """Apply the OperatorGroup, for these namespaces or for all."""
        group = {
            "apiVersion": "operators.coreos.com/v1",
            "kind": "OperatorGroup",
            "metadata": {"name": GROUP, "namespace": NAMESPACE},
            "spec": {"targetNamespaces": list(namespaces)} if namespaces else {},
        }
        _applied(group)

    def apply(self) -> None:
        _applied(self.service_version)

    def grant(self) -> None:
        """Apply the ServiceAccount and the rights that the ClusterServiceVersion declares, owned by it. OLM looks for
        them some times and then no more for minutes: a label of the ClusterServiceVersion makes it look again.
        """
        _applied(*self._rights())
        kubectl("-n", NAMESPACE, "label", "csv", self.name, "granted=true", "--overwrite")

    def _rights(self) -> Iterator[Json]:
        uid = self.found()["metadata"]["uid"]
        owned = {
            "apiVersion": "operators.coreos.com/v1alpha1",
            "kind": "ClusterServiceVersion",
            "name": self.name,
            "uid": uid,
        }
        labels = {
            "olm.managed": "true",
            "olm.owner": self.name,
            "olm.owner.kind": "ClusterServiceVersion",
            "olm.owner.namespace": NAMESPACE,
        }
        here: Json = {"labels": labels, "namespace": NAMESPACE, "ownerReferences": [owned]}
        # not only its name: OLM makes a Role called like that, and of each Role of ours a ClusterRole of the same name
        name = f"{self.name}-{self.account}"
        yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {**here, "name": self.account}}
        yield from self._granted("permissions", "Role", {**here, "name": name})
        yield from self._granted("clusterPermissions", "ClusterRole", {"labels": labels, "name": self.name})

    def _granted(self, field: str, kind: str, meta: Json) -> Iterator[Json]:
        (declared,) = self.service_version["spec"]["install"]["spec"][field]
        assert declared["serviceAccountName"] == self.account
        subject = {"kind": "ServiceAccount", "name": self.account, "namespace": NAMESPACE}
        api = {"apiVersion": f"{RBAC}/v1", "metadata": meta}
        yield {**api, "kind": kind, "rules": declared["rules"]}
        ref = {"apiGroup": RBAC, "kind": kind, "name": meta["name"]}
        yield {**api, "kind": f"{kind}Binding", "roleRef": ref, "subjects": [subject]}

    def rules(self) -> list[Json]:
        """All rights that the ClusterServiceVersion declares."""
        install = self.service_version["spec"]["install"]["spec"]
        return [rule for each in (*install["permissions"], *install["clusterPermissions"]) for rule in each["rules"]]

    def found(self) -> Json:
        """The ClusterServiceVersion as it is on the cluster."""
        found: Json = json.loads(kubectl("-n", NAMESPACE, "get", "csv", self.name, "-o", "json").stdout)
        return found

    def wait_for(self, phase: str, reason: str) -> Json:
        """The status of the ClusterServiceVersion, once it says so."""

        def said() -> tuple[str | None, str | None]:
            status = self.found().get("status", {})
            return status.get("phase"), status.get("reason")

        wait_until(lambda: said() == (phase, reason), f"{self.name} is {phase}: {reason}", SUCCEED_S)
        status: Json = self.found()["status"]
        return status

    def install(self) -> None:
        self.apply()
        self.grant()
        self.wait_for("Succeeded", "InstallSucceeded")

    def remove(self) -> None:
        """Delete the ClusterServiceVersion, and wait until OLM has taken away all that it had made."""
        kubectl("-n", NAMESPACE, "delete", "csv", self.name, "--ignore-not-found")
        wait_until(lambda: not self.left(), f"nothing of {self.name} is left", SUCCEED_S)

    def left(self) -> list[str]:
        """The names of objects that OLM takes away with the ClusterServiceVersion and that are there."""
        own = kubectl("get", "clusterroles,clusterrolebindings", "-l", f"olm.owner={self.name}", "-o", "name")
        kinds = "deployments,serviceaccounts,roles,rolebindings,pods"
        labelled = ("-l", f"olm.owner={self.name}", "-o", "name")
        in_namespace = kubectl("-n", NAMESPACE, "get", kinds, *labelled)
        pods = kubectl("-n", NAMESPACE, "get", "pods", "-l", "app.kubernetes.io/name=muster-operator", "-o", "name")
        return [*own.stdout.split(), *in_namespace.stdout.split(), *pods.stdout.split()]
