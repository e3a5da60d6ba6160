"""Writes the bundle with which the Operator Lifecycle Manager (OLM) installs the operator, from what config/ installs.

usage: hack/olm.py DIRECTORY [IMAGE]

IMAGE is the operator's, by default the one of config/kustomization.yaml. DIRECTORY gets manifests/, metadata/ and
bundle.Dockerfile, and beside.yaml: what OLM takes into no bundle and an administrator applies before (policies that end
what the operator may write, deletion protection, network policies).
"""

from __future__ import annotations

import base64
import json
import re
import shutil
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

Json = dict[str, Any]

ROOT = Path(__file__).parent.parent
PACKAGE = "muster"
OPERATOR = "muster-operator"
MEDIA_TYPE = "registry+v1"
# The fourth of five levels: upgrades, backups, failover, metrics and alerts; it does not tune itself.
CAPABILITIES = "Deep Insights"
# Objects that the operator makes, and nobody else: OLM's forms do not offer them.
INTERNAL = ("OffsetsPartition",)
CONDITIONS = "urn:alm:descriptor:io.kubernetes.conditions"
FIELDS = {"boolean": "urn:alm:descriptor:com.tectonic.ui:booleanSwitch"}

DESCRIPTION = """{summary}.

The operator acts in all namespaces. Install it in the namespace `{namespace}`, and apply `beside.yaml` of the bundle's
release there before: it has what OLM installs from no bundle, above all the admission policies that end the operator's
rights to Secrets and to claims of volumes at those of its own. Without them its roles allow more than it needs.
"""


def documents(path: Path) -> list[Json]:
    return [each for each in yaml.safe_load_all(path.read_text(encoding="utf-8")) if each]


def kustomization() -> Json:
    (one,) = documents(ROOT / "config" / "kustomization.yaml")
    return one


def installed(image: str) -> list[Json]:
    """The objects that `kubectl apply -k config` installs, with another image."""
    read = [each for name in kustomization()["resources"] for each in documents(ROOT / "config" / name)]
    for each in read:
        if each["kind"] == "Deployment":
            for container in each["spec"]["template"]["spec"]["containers"]:
                container["image"] = image
    return read


def default_image() -> str:
    (image,) = kustomization()["images"]
    return f"{image['newName']}:{image['newTag']}"


def project() -> Json:
    """The version, licence and description of the release."""
    found: Json = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return found


def definitions() -> list[Json]:
    """The CustomResourceDefinitions."""
    (listed,) = documents(ROOT / "crds" / "Kustomization")
    return [each for name in listed["resources"] for each in documents(ROOT / "crds" / name)]


def _shown() -> Iterator[Json]:
    """Objects of ours that the repository shows to people: the samples, and what the docs have in YAML."""
    for path in sorted((ROOT / "config" / "samples").glob("*.yaml")):
        yield from documents(path)
    for name in ("operator.md", "backup.md"):
        text = (ROOT / "docs" / name).read_text(encoding="utf-8")
        for block in re.findall(r"^```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            for each in yaml.safe_load_all(block):
                if isinstance(each, dict) and "apiVersion" in each and "kind" in each:
                    yield each


def examples() -> list[Json]:
    """One object of each kind that people make, all of one cluster; ValueError when none is shown for a kind."""
    kinds = [each["spec"]["names"]["kind"] for each in definitions()]
    first: dict[str, Json] = {}
    for each in _shown():
        first.setdefault(each["kind"], each)
    wanted = [kind for kind in kinds if kind not in INTERNAL]
    if lacking := [kind for kind in wanted if kind not in first]:
        raise ValueError(f"config/samples, docs/operator.md and docs/backup.md show no {', '.join(lacking)} in YAML")
    cluster = first["CoordinatorCluster"]["metadata"]["name"]
    for kind in wanted:
        if "clusterRef" in first[kind]["spec"]:
            first[kind]["spec"]["clusterRef"] = {"name": cluster}
    return [first[kind] for kind in wanted]


def _title(field: str) -> str:
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", field)
    return words[0].upper() + words[1:]


def _descriptors(schema: Json) -> list[Json]:
    """The console's description of each field, from its schema."""
    made = []
    for name, field in schema.get("properties", {}).items():
        one = {"path": name, "displayName": _title(name), "description": field.get("description", _title(name))}
        kind = CONDITIONS if name == "conditions" else FIELDS.get(field.get("type", ""))
        made.append(one | ({"x-descriptors": [kind]} if kind else {}))
    return made


def owned(definition: Json) -> Json:
    spec = definition["spec"]
    (version,) = spec["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    return {
        "name": definition["metadata"]["name"],
        "kind": spec["names"]["kind"],
        "version": version["name"],
        "displayName": _title(spec["names"]["kind"]),
        "description": schema["description"],
        "specDescriptors": _descriptors(schema["properties"]["spec"]),
        "statusDescriptors": _descriptors(schema["properties"].get("status", {})),
    }


def is_ours(each: Json, *kinds: str) -> bool:
    return each["kind"] in kinds and each["metadata"]["name"] == OPERATOR


def in_csv(each: Json) -> bool:
    """True if OLM makes this object from the ClusterServiceVersion."""
    kinds = ("Deployment", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
    return is_ours(each, *kinds)


def service_version(image: str) -> Json:
    """The ClusterServiceVersion."""
    objects = installed(image)
    (deployment,) = (each for each in objects if each["kind"] == "Deployment")
    release = project()
    (chart,) = documents(ROOT / "charts" / "muster" / "Chart.yaml")

    def rules(kind: str) -> list[Json]:
        account = deployment["spec"]["template"]["spec"]["serviceAccountName"]
        return [{"serviceAccountName": account, "rules": each["rules"]} for each in objects if is_ours(each, kind)]

    summary = release["description"]
    owned_definitions = [owned(each) for each in definitions()]
    return {
        "apiVersion": "operators.coreos.com/v1alpha1",
        "kind": "ClusterServiceVersion",
        "metadata": {
            "name": f"{PACKAGE}.v{release['version']}",
            "annotations": {
                "alm-examples": json.dumps(examples(), indent=2),
                "capabilities": CAPABILITIES,
                "categories": "Streaming & Messaging",
                "containerImage": image,
                "description": summary,
                "operatorframework.io/suggested-namespace": kustomization()["namespace"],
                "operators.operatorframework.io/internal-objects": json.dumps(
                    [each["name"] for each in owned_definitions if each["kind"] in INTERNAL]
                ),
            },
        },
        "spec": {
            "displayName": "Muster",
            "description": DESCRIPTION.format(summary=summary, namespace=kustomization()["namespace"]),
            "version": release["version"],
            "maturity": "alpha",
            "minKubeVersion": re.sub(r"^>=([0-9.]+).*$", r"\1", chart["kubeVersion"]),
            "provider": {"name": "Muster"},
            "keywords": ["kafka", "consumer groups", "offsets"],
            "icon": [
                {
                    "base64data": base64.b64encode((ROOT / "config" / "olm" / "icon.svg").read_bytes()).decode(),
                    "mediatype": "image/svg+xml",
                }
            ],
            "installModes": [
                {"type": mode, "supported": mode == "AllNamespaces"}
                for mode in ("OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces")
            ],
            "customresourcedefinitions": {"owned": owned_definitions},
            "install": {
                "strategy": "deployment",
                "spec": {
                    "clusterPermissions": rules("ClusterRole"),
                    "permissions": rules("Role"),
                    "deployments": [
                        {
                            "name": deployment["metadata"]["name"],
                            "label": deployment["metadata"]["labels"],
                            "spec": deployment["spec"],
                        }
                    ],
                },
            },
            "relatedImages": [{"name": PACKAGE, "image": image}],
        },
    }


def labels() -> dict[str, str]:
    """The labels in metadata/annotations.yaml and of the bundle's image."""
    prefix = "operators.operatorframework.io.bundle"
    return {
        f"{prefix}.mediatype.v1": MEDIA_TYPE,
        f"{prefix}.manifests.v1": "manifests/",
        f"{prefix}.metadata.v1": "metadata/",
        f"{prefix}.package.v1": PACKAGE,
        f"{prefix}.channels.v1": "alpha",
        f"{prefix}.channel.default.v1": "alpha",
    }


def dockerfile() -> str:
    lines = [f"LABEL {key}={value}" for key, value in labels().items()]
    return "\n".join(["FROM scratch", "", *lines, "", "COPY manifests /manifests/", "COPY metadata /metadata/", ""])


def text(*objects: Any) -> str:
    return yaml.safe_dump_all(objects, sort_keys=False, width=120, allow_unicode=True)


def files(image: str) -> dict[str, str]:
    """The files of the bundle by their path in it."""
    made = {f"manifests/{PACKAGE}.clusterserviceversion.yaml": text(service_version(image))}
    for each in definitions():
        made[f"manifests/{each['metadata']['name']}.crd.yaml"] = text(each)
    rest = [each for each in installed(image) if not in_csv(each)]
    for each in rest:
        if each["kind"] == "ClusterRole":
            made[f"manifests/{each['metadata']['name']}.clusterrole.yaml"] = text(each)
    namespace = kustomization()["namespace"]
    beside = [each for each in rest if each["kind"] != "ClusterRole"]
    for each in beside:
        if each["kind"] == "NetworkPolicy":
            each["metadata"]["namespace"] = namespace
    made["beside.yaml"] = text(*beside)
    made["metadata/annotations.yaml"] = text({"annotations": labels()})
    made["bundle.Dockerfile"] = dockerfile()
    return made


def write(directory: Path, image: str) -> None:
    """Write the bundle; what an earlier one left in its folders goes."""
    for folder in ("manifests", "metadata"):
        shutil.rmtree(directory / folder, ignore_errors=True)
    for name, content in files(image).items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")


def main() -> None:
    if not 2 <= len(sys.argv) <= 3 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    directory = Path(sys.argv[1])
    write(directory, sys.argv[2] if len(sys.argv) == 3 else default_image())
    print(f"wrote {directory}: docker build -f {directory / 'bundle.Dockerfile'} {directory}")


if __name__ == "__main__":
    main()
