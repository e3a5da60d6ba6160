"""The bundle for OLM installs what config/ installs, and OLM's own validator takes it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.definitions import problems

sys.path.insert(0, str(Path(__file__).parents[3] / "hack"))

import olm  # hack/ is no package

REPOSITORY = Path(__file__).parents[3]
Json = dict[str, Any]
IMAGE = "registry.example.org/muster:0.1.0"
BUILT = REPOSITORY / ".cache" / "bin" / "operator-verify"
VERIFY = str(BUILT) if BUILT.exists() else shutil.which("operator-verify")
SERVICE_VERSION = "manifests/muster.clusterserviceversion.yaml"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("olm")
    olm.write(directory, IMAGE)
    return directory


@pytest.fixture
def bundle(written: Path, tmp_path: Path) -> Path:
    """A copy, to be changed."""
    return Path(shutil.copytree(written, tmp_path / "olm"))


def loaded(path: Path) -> list[Json]:
    return [each for each in yaml.safe_load_all(path.read_text()) if each]


def base() -> list[Json]:
    """What config/ has, read without the script."""
    (kustomization,) = loaded(REPOSITORY / "config/kustomization.yaml")
    return [each for name in kustomization["resources"] for each in loaded(REPOSITORY / "config" / name)]


def made_by_olm(service_version: Json) -> list[Json]:
    """The objects that OLM makes from a ClusterServiceVersion, by name and content."""
    install = service_version["spec"]["install"]["spec"]
    made: list[Json] = []
    for field, kind in (("clusterPermissions", "ClusterRole"), ("permissions", "Role")):
        for each in install[field]:
            name = each["serviceAccountName"]
            made.append({"kind": kind, "metadata": {"name": name}, "rules": each["rules"]})
            made.append({"kind": f"{kind}Binding", "metadata": {"name": name}, "subject": name})
    accounts = {each["subject"] for each in made if "subject" in each}
    made += [{"kind": "ServiceAccount", "metadata": {"name": each}} for each in accounts]
    for each in install["deployments"]:
        metadata = {"name": each["name"], "labels": each["label"]}
        made.append({"kind": "Deployment", "metadata": metadata, "spec": each["spec"]})
    return made


def named(objects: list[Json]) -> dict[tuple[str, str], Json]:
    by_name = {(each["kind"], each["metadata"]["name"]): each for each in objects}
    assert len(by_name) == len(objects), "an object is there twice"
    return by_name


def test_bundle_and_what_is_applied_beside_it_are_the_base_and_nothing_else(bundle: Path) -> None:
    """The chart describes the same as the base; another test compares those."""
    (service_version,) = loaded(bundle / SERVICE_VERSION)
    by_olm = named(made_by_olm(service_version))
    manifests = [each for path in (bundle / "manifests").iterdir() for each in loaded(path)]
    roles = [each for each in manifests if each["kind"] == "ClusterRole"]
    beside = loaded(bundle / "beside.yaml")
    together = named([*by_olm.values(), *roles, *beside])
    expected = named(base())
    assert together.keys() == expected.keys()

    (container,) = expected["Deployment", "muster-operator"]["spec"]["template"]["spec"]["containers"]
    container["image"] = IMAGE
    for key, each in expected.items():
        if key[0] == "NetworkPolicy":
            each["metadata"]["namespace"] = "muster-system"
        same = ("rules",) if key[0] in ("ClusterRole", "Role") and key in by_olm else ("metadata", "spec", "rules")
        if key not in by_olm or key[0] in ("ClusterRole", "Role", "Deployment"):
            assert {name: together[key].get(name) for name in same} == {name: each.get(name) for name in same}
    account = expected["Deployment", "muster-operator"]["spec"]["template"]["spec"]["serviceAccountName"]
    assert {each["subject"] for each in by_olm.values() if "subject" in each} == {account}


def test_kinds_that_olm_refuses_are_beside_the_bundle(bundle: Path) -> None:
    kinds = {each["kind"] for path in (bundle / "manifests").iterdir() for each in loaded(path)}
    assert kinds == {"ClusterServiceVersion", "CustomResourceDefinition", "ClusterRole"}
    assert {each["kind"] for each in loaded(bundle / "beside.yaml")} == {
        "Namespace",
        "NetworkPolicy",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    }


def test_definitions_are_owned_and_described_and_each_that_people_make_has_an_example(bundle: Path) -> None:
    (service_version,) = loaded(bundle / SERVICE_VERSION)
    definitions = [each for path in sorted((bundle / "manifests").glob("*.crd.yaml")) for each in loaded(path)]
    assert definitions == [loaded(path)[0] for path in sorted((REPOSITORY / "crds").glob("*.yaml"))]
    owned = {each["name"]: each for each in service_version["spec"]["customresourcedefinitions"]["owned"]}
    for each in definitions:
        (version,) = each["spec"]["versions"]
        properties = version["schema"]["openAPIV3Schema"]["properties"]
        shown = owned.pop(each["metadata"]["name"])
        assert (shown["kind"], shown["version"]) == (each["spec"]["names"]["kind"], version["name"])
        assert [one["path"] for one in shown["specDescriptors"]] == list(properties["spec"]["properties"])
        assert [one["path"] for one in shown["statusDescriptors"]] == list(properties["status"]["properties"])
    assert not owned

    annotations = service_version["metadata"]["annotations"]
    examples = json.loads(annotations["alm-examples"])
    internal = json.loads(annotations["operators.operatorframework.io/internal-objects"])
    kinds = {each["spec"]["names"]["kind"] for each in definitions if each["metadata"]["name"] not in internal}
    assert len(examples) == len(kinds)
    assert {each["kind"] for each in examples} == kinds
    assert [problems(each) for each in examples] == [[] for _ in examples]
    (cluster,) = (each["metadata"]["name"] for each in examples if each["kind"] == "CoordinatorCluster")
    assert {each["spec"]["clusterRef"]["name"] for each in examples if each["kind"] != "CoordinatorCluster"} == {
        cluster
    }


def test_image_of_the_bundle_has_the_labels_of_its_metadata_and_copies_what_is_there(bundle: Path) -> None:
    (metadata,) = loaded(bundle / "metadata/annotations.yaml")
    lines = (bundle / "bundle.Dockerfile").read_text().splitlines()
    labels = dict(line.removeprefix("LABEL ").split("=", 1) for line in lines if line.startswith("LABEL "))
    assert labels == metadata["annotations"]
    copied = [line.split()[1] for line in lines if line.startswith("COPY ")]
    assert sorted(copied) == sorted(each.name for each in bundle.iterdir() if each.is_dir())


def test_what_an_earlier_bundle_left_is_gone(bundle: Path) -> None:
    left = bundle / "manifests" / "of-before.crd.yaml"
    left.write_text("{}")
    olm.write(bundle, IMAGE)
    assert not left.exists()


def verified(bundle: Path) -> str:
    """What the validator complains of; it ends with 0 whatever it found, with a line for each error and warning."""
    assert VERIFY is not None
    command = [VERIFY, "manifests", "--object_validate", str(bundle)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return done.stdout + done.stderr


def change(bundle: Path, how: Callable[[Json], None]) -> None:
    path = bundle / SERVICE_VERSION
    (service_version,) = loaded(path)
    how(service_version["spec"])
    path.write_text(yaml.safe_dump(service_version))


def give_a_rule_that_is_no_list(spec: Json) -> None:
    spec["install"]["spec"]["clusterPermissions"][0]["rules"][0]["verbs"] = "get"


def forget_a_definition(spec: Json) -> None:
    del spec["customresourcedefinitions"]["owned"][0]


def name_no_install_modes(spec: Json) -> None:
    spec["installModes"] = []


needs_verify = pytest.mark.skipif(VERIFY is None, reason="needs operator-verify: make operator-verify")


@needs_verify
def test_validator_of_olm_lacks_only_an_example_of_what_nobody_makes(bundle: Path) -> None:
    (line,) = verified(bundle).splitlines()
    assert "level=warning" in line
    assert "Kind=OffsetsPartition: provided API should have an example" in line


@needs_verify
def test_validator_sees_a_definition_that_is_not_there(bundle: Path) -> None:
    (bundle / "manifests" / "musterusers.muster.dev.crd.yaml").unlink()
    assert "MusterUser" in verified(bundle)


@needs_verify
@pytest.mark.parametrize(
    ("how", "said"),
    [
        (give_a_rule_that_is_no_list, "verbs"),
        (forget_a_definition, "CoordinatorCluster"),
        (name_no_install_modes, "install modes"),
    ],
)
def test_validator_sees_what_is_wrong(bundle: Path, how: Callable[[Json], None], said: str) -> None:
    change(bundle, how)
    assert said in verified(bundle)
