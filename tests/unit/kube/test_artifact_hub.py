"""The charts as they are published: what Artifact Hub shows of them is what they install, with the image it names."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.definitions import problems

sys.path.insert(0, str(Path(__file__).parents[3] / "hack"))

import artifact_hub  # hack/ is no package

REPOSITORY = Path(__file__).parents[3]
IMAGE = "registry.example.org:5000/muster:0.10"
BUILT_HELM = REPOSITORY / ".cache" / "bin" / "helm"
HELM = str(BUILT_HELM) if BUILT_HELM.exists() else shutil.which("helm")
needs_helm = pytest.mark.skipif(HELM is None, reason="needs helm: make helm")


@pytest.fixture(scope="module")
def charts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("charts")
    artifact_hub.write(directory, IMAGE)
    return directory


def described(charts: Path, chart: str) -> dict[str, Any]:
    return dict(yaml.safe_load((charts / chart / "Chart.yaml").read_text()))


def said(charts: Path, chart: str) -> dict[str, str]:
    annotations = described(charts, chart)["annotations"]
    assert all(isinstance(each, str) for each in annotations.values())
    return {name.removeprefix("artifacthub.io/"): each for name, each in annotations.items()}


@pytest.mark.parametrize("chart", artifact_hub.CHARTS)
def test_definitions_are_those_that_the_repository_has(charts: Path, chart: str) -> None:
    shown = {each["name"]: each for each in yaml.safe_load(said(charts, chart)["crds"])}
    for path in (REPOSITORY / "crds").glob("*.yaml"):
        definition = yaml.safe_load(path.read_text())
        each = shown.pop(definition["metadata"]["name"])
        (version,) = definition["spec"]["versions"]
        assert (each["kind"], each["version"]) == (definition["spec"]["names"]["kind"], version["name"])
        assert each["displayName"]
        assert each["description"]
    assert not shown


def test_examples_are_taken_by_the_definitions_and_changes_are_those_of_the_changelog(charts: Path) -> None:
    shown = said(charts, "muster")
    examples = yaml.safe_load(shown["crdsExamples"])
    assert len(examples) >= 5
    assert [problems(each) for each in examples] == [[] for _ in examples]
    assert (shown["operator"], shown["operatorCapabilities"]) == ("true", "deep insights")
    changelog = (REPOSITORY / "CHANGELOG.md").read_text()
    assert yaml.safe_load(shown["changes"]) == artifact_hub.changes(changelog)


def test_changes_are_first_sentences_about_the_operator_in_the_newest_version() -> None:
    newest = (
        "### Pod\n- No.\n\n### Operator\n- It [does](docs/a.md)\n  0.5 more. And why.\n- Less\n\n### Checks\n- No.\n"
    )
    older = "### Operator\n- Of before.\n"
    assert artifact_hub.changes(f"# Changelog\n\n## 0.2\n\n{newest}\n## 0.1\n\n{older}") == [
        "It does 0.5 more.",
        "Less",
    ]
    assert artifact_hub.changes(f"# Changelog\n\n## 0.2\n\n### Pod\n- No.\n\n## 0.1\n\n{older}") == []


@pytest.mark.parametrize("chart", artifact_hub.CHARTS)
def test_published_chart_differs_by_annotations_and_image_alone(charts: Path, chart: str) -> None:
    source = REPOSITORY / "charts" / chart
    names = sorted(path.relative_to(source) for path in source.rglob("*") if path.is_file())
    assert names == sorted(path.relative_to(charts / chart) for path in (charts / chart).rglob("*") if path.is_file())
    changed = {str(name) for name in names if (source / name).read_bytes() != (charts / chart / name).read_bytes()}
    assert changed == ({"Chart.yaml", "values.yaml"} if chart == "muster" else {"Chart.yaml"})
    before = yaml.safe_load((source / "Chart.yaml").read_text())
    assert {**described(charts, chart), "annotations": None} == {**before, "annotations": None}
    if chart == "muster":
        values = yaml.safe_load((source / "values.yaml").read_text())
        values["image"] |= {"repository": "registry.example.org:5000/muster", "tag": "0.10"}
        assert yaml.safe_load((charts / chart / "values.yaml").read_text()) == values


@needs_helm
def test_helm_takes_the_charts_and_installs_the_image_that_is_shown(charts: Path) -> None:
    assert HELM is not None
    for chart in artifact_hub.CHARTS:
        subprocess.run([HELM, "lint", "--strict", str(charts / chart)], check=True, capture_output=True, timeout=60)
    command = [HELM, "template", "muster", str(charts / "muster"), "-n", "muster-system"]
    text = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    deployments = [each for each in yaml.safe_load_all(text) if each and each["kind"] == "Deployment"]
    used = {one["image"] for each in deployments for one in each["spec"]["template"]["spec"]["containers"]}
    assert used == {each["image"] for each in yaml.safe_load(said(charts, "muster")["images"])} == {IMAGE}


@pytest.mark.parametrize("image", ["muster", "registry:5000/muster", "muster@sha256:0123"])
def test_image_without_a_tag_is_refused(image: str) -> None:
    with pytest.raises(ValueError, match="REPOSITORY:TAG"):
        artifact_hub.with_image("image:\n  repository: a\n  tag: b\n", image)
