"""The sample repository in examples/gitops: the definitions take what kustomize makes, and it belongs together."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from tests.support.definitions import Json, problems, schemas

from muster_operator.api.models import CoordinatorCluster, MusterUser, OffsetsTopic
from muster_operator.kube.manifests import bootstrap_service_name, headless_service_name, stateful_set
from muster_operator.store.client_security import mounted_secrets

REPOSITORY = Path(__file__).parents[3]
GITOPS = REPOSITORY / "examples" / "gitops"
OVERLAYS = ("development", "three-zones", "in-front-of-kafka")
WAVE = "argocd.argoproj.io/sync-wave"
needs_kustomize = pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl, for kustomize")


@cache
def rendered(folder: str) -> list[Json]:
    command = ("kubectl", "kustomize", str(GITOPS / folder))
    text = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    return [each for each in yaml.safe_load_all(text) if each]


def overlay(name: str) -> list[Json]:
    return rendered(f"clusters/{name}")


def of_kind(shown: list[Json], *kinds: str) -> list[Json]:
    return [each for each in shown if each["kind"] in kinds]


def cluster_of(name: str) -> CoordinatorCluster:
    (found,) = of_kind(overlay(name), "CoordinatorCluster")
    return msgspec.convert(found, CoordinatorCluster)


def ours() -> Iterator[tuple[str, Json]]:
    for name in OVERLAYS if shutil.which("kubectl") else ():
        yield from ((f"{name}/{each['kind']}", each) for each in overlay(name) if each["kind"] in schemas())
    for file in sorted((REPOSITORY / "config" / "samples").glob("*.yaml")):
        yield from (
            (f"{file.name}/{each['kind']}", each) for each in yaml.safe_load_all(file.read_text(encoding="utf-8"))
        )


SAMPLES = list(ours())


@pytest.mark.parametrize("shown", [each for _, each in SAMPLES], ids=[name for name, _ in SAMPLES])
def test_sample_is_taken_by_schema_and_rules(shown: Json) -> None:
    assert problems(shown) == []


@needs_kustomize
@pytest.mark.parametrize("name", OVERLAYS)
def test_objects_of_an_overlay_belong_together(name: str) -> None:
    shown = overlay(name)
    cluster = cluster_of(name)
    (namespace,) = of_kind(shown, "Namespace")
    unscoped = ("Namespace", "PriorityClass")
    assert {each["metadata"]["namespace"] for each in shown if each["kind"] not in unscoped} == {
        namespace["metadata"]["name"]
    }
    for each in of_kind(shown, "OffsetsTopic", "MusterUser"):
        assert each["spec"]["clusterRef"]["name"] == cluster.metadata.name
    topics = [msgspec.convert(each, OffsetsTopic) for each in of_kind(shown, "OffsetsTopic")]
    assert all(each.spec.replication_factor <= cluster.spec.pods for each in topics)
    assert not (cluster.spec.gateway and len(topics) > 1), "with a gateway transactions are Kafka's"
    assert cluster.spec.access.muster_users == bool(of_kind(shown, "MusterUser"))


@needs_kustomize
@pytest.mark.parametrize("name", OVERLAYS)
def test_argo_cd_applies_what_others_need_first(name: str) -> None:
    waves: dict[str, int] = {}
    for each in overlay(name):
        waves[each["kind"]] = max(int(each["metadata"]["annotations"][WAVE]), waves.get(each["kind"], -9))
    order = (
        "Namespace",
        "SecretStore",
        "Issuer",
        "ExternalSecret",
        "Certificate",
        "CoordinatorCluster",
        "OffsetsTopic",
    )
    there = [waves[kind] for kind in order if kind in waves]
    assert there == sorted(there)
    assert waves["Namespace"] < waves["CoordinatorCluster"] < waves["OffsetsTopic"] <= waves.get("MusterUser", 9)


def secrets_made(shown: list[Json]) -> dict[str, Json]:
    """By name, with type and keys: those that cert-manager and External Secrets make."""
    made: dict[str, Json] = {
        each["spec"]["secretName"]: {"type": "kubernetes.io/tls", "keys": {"tls.crt", "tls.key", "ca.crt"}}
        for each in of_kind(shown, "Certificate")
    }
    for each in of_kind(shown, "ExternalSecret"):
        target = each["spec"]["target"]
        keys = {row["secretKey"] for row in each["spec"]["data"]}
        made[target["name"]] = {"type": target.get("template", {}).get("type", "Opaque"), "keys": keys}
    return made


def secrets_wanted(shown: list[Json]) -> dict[str, Json]:
    """By name, with type and keys: those that cluster and users name."""
    wanted: dict[str, Json] = {}
    (cluster,) = of_kind(shown, "CoordinatorCluster")
    spec = cluster["spec"]
    tls = {"type": "kubernetes.io/tls", "keys": {"tls.crt", "tls.key", "ca.crt"}}
    wanted |= dict.fromkeys(spec.get("security", {}).values(), tls)
    wanted |= {each["tls"]["secret"]: tls for each in spec.get("listeners", ()) if "tls" in each}
    if upstream := spec.get("upstream"):
        wanted[upstream["sasl"]["secret"]] = {"type": "kubernetes.io/basic-auth", "keys": {"username", "password"}}
        wanted[upstream["tls"]["caSecret"]] = {"type": "Opaque", "keys": {"ca.crt"}}
    for each in of_kind(shown, "MusterUser"):
        wanted[each["spec"]["authentication"]["secret"]] = {"type": "Opaque", "keys": {"password"}}
    return wanted


@needs_kustomize
@pytest.mark.parametrize("name", OVERLAYS)
def test_every_secret_that_is_named_is_made_with_the_keys_that_are_read(name: str) -> None:
    made, wanted = secrets_made(overlay(name)), secrets_wanted(overlay(name))
    assert wanted.items() <= made.items()
    named = {secret for _, secret in mounted_secrets(cluster_of(name)).items()}
    assert named <= wanted.keys(), "the pods mount another one"
    assert (name == "development") == (not wanted)


@needs_kustomize
def test_certificates_name_cluster_and_roles_and_every_address_of_the_listener() -> None:
    cluster = cluster_of("three-zones")
    meta = cluster.metadata
    certificates = {each["spec"]["secretName"]: each["spec"] for each in of_kind(overlay("three-zones"), "Certificate")}
    for secret, role in (
        (cluster.spec.security.pod_secret, "pod/*"),
        (cluster.spec.security.operator_secret, "operator"),
    ):
        assert secret is not None
        assert certificates[secret]["uris"] == [f"muster://{meta.namespace}/{meta.name}/{role}"]
        assert certificates[secret]["usages"] == ["server auth", "client auth"]
    assert cluster.spec.internal.tls is not None
    names = certificates[cluster.spec.internal.tls.secret]["dnsNames"]
    assert f"{bootstrap_service_name(meta.name)}.{meta.namespace}.svc" in names
    assert f"*.{headless_service_name(meta.name)}.{meta.namespace}.svc" in names


@needs_kustomize
def test_three_zones_put_each_pod_in_a_zone_of_its_own() -> None:
    manifest = stateful_set(cluster_of("three-zones"), "muster:1", secured=True)
    spec = manifest["spec"]["template"]["spec"]
    (term,) = spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    labels = manifest["spec"]["template"]["metadata"]["labels"]
    assert term["topologyKey"] == "topology.kubernetes.io/zone"
    assert term["labelSelector"]["matchLabels"].items() <= labels.items()
    (priority,) = of_kind(overlay("three-zones"), "PriorityClass")
    assert spec["priorityClassName"] == priority["metadata"]["name"]
    users = [msgspec.convert(each, MusterUser) for each in of_kind(overlay("three-zones"), "MusterUser")]
    assert [each.username for each in users] == ["billing"]


def documents(file: str) -> list[Json]:
    return [*yaml.safe_load_all((GITOPS / file).read_text(encoding="utf-8"))]


def test_applications_and_kustomizations_name_folders_that_exist_in_an_order() -> None:
    applications = documents("argocd/applications.yaml")
    paths = [each["spec"]["source"]["path"] for each in applications]
    flux = [each for each in documents("flux/muster.yaml") if each["kind"] == "Kustomization"]
    paths += [each["spec"]["path"] for each in flux]
    assert [path for path in paths if not (REPOSITORY / path).is_dir()] == []
    waves = [int(each["metadata"]["annotations"][WAVE]) for each in applications]
    assert waves == sorted(set(waves))
    awaited = [[name["name"] for name in each["spec"].get("dependsOn", ())] for each in flux]
    assert awaited == [[], *([each["metadata"]["name"]] for each in flux[:-1])]
    definitions = [applications[0]["spec"]["syncPolicy"]["automated"], flux[0]["spec"]]
    assert [each["prune"] for each in definitions] == [False, False], "pruning a definition deletes every object of it"


@needs_kustomize
def test_operator_of_the_application_may_read_the_secrets_that_the_recipes_name() -> None:
    (operator,) = (each for each in documents("argocd/applications.yaml") if "helm" in each["spec"]["source"])
    values = operator["spec"]["source"]["helm"]["valuesObject"]
    users = of_kind(overlay("three-zones"), "MusterUser")
    read = [cluster_of("three-zones").spec.security.operator_secret]
    read += [each["spec"]["authentication"]["secret"] for each in users]
    assert values["operator"]["secrets"] == read
    assert values["networkPolicies"]["namespaces"] == [cluster_of("three-zones").metadata.namespace]
    (of_flux,) = (each for each in documents("flux/muster.yaml") if "patches" in each["spec"])
    ((patch,),) = (yaml.safe_load(each["patch"]) for each in of_flux["spec"]["patches"])
    assert patch["value"]["resourceNames"] == read
    known: Any = yaml.safe_load((REPOSITORY / "charts/muster/values.yaml").read_text(encoding="utf-8"))
    for name, inner in values.items():
        assert inner.keys() <= known[name].keys()
