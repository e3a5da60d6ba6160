"""Writes the charts as they are published: with annotations for Artifact Hub, and with the image of the release.

usage: hack/artifact_hub.py DIRECTORY [IMAGE]

IMAGE is REPOSITORY:TAG of the operator, by default the one of config/. What the annotations say comes from crds/,
docs and changelog, so charts/ does not have it a second time.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from typing import Any

import olm

Json = dict[str, Any]

CHARTS = ("muster", "muster-crds")
SECTION = "### Operator"  # of the changelog: what those notice who install the chart


def changes(changelog: str) -> list[str]:
    """The first sentence of each entry about the operator in the newest version; empty if that has none."""
    newest = changelog.split("\n## ")[1]
    section = newest.partition(f"\n{SECTION}\n")[2].split("\n### ")[0]
    entries = [" ".join(each.split()) for each in re.split(r"^- ", section, flags=re.MULTILINE)[1:]]
    plain = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", each) for each in entries]
    return [re.split(r"(?<=\.) (?=[A-Z`])", each)[0] for each in plain]


def about_definitions() -> list[Json]:
    owned = [olm.owned(each) for each in olm.definitions()]
    return [{name: each[name] for name in ("kind", "version", "name", "displayName", "description")} for each in owned]


def shown(chart: str, image: str) -> dict[str, str]:
    """The texts about the chart that Artifact Hub shows. Its values are texts, also where they are YAML."""
    said: dict[str, Any] = {
        "category": "streaming-messaging",
        "license": olm.project()["license"],
        "crds": olm.text(about_definitions()),
    }
    if chart == "muster":
        said |= {
            "operator": "true",
            "operatorCapabilities": olm.CAPABILITIES.lower(),
            "crdsExamples": olm.text(olm.examples()),
            "images": olm.text([{"name": olm.PACKAGE, "image": image}]),
            "changes": olm.text(changes((olm.ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))),
        }
    return {f"artifacthub.io/{name}": value for name, value in said.items()}


def with_image(values: str, image: str) -> str:
    """The chart's values with the image as their default; ValueError unless it is REPOSITORY:TAG."""
    repository, colon, tag = image.rpartition(":")
    if not colon or "/" in tag or "@" in image:
        raise ValueError(f"image {image!r}: write it as REPOSITORY:TAG")
    image_of_values = re.compile(r"^image:\n  repository: .*\n  tag: .*\n", re.MULTILINE)
    return image_of_values.sub(lambda _: f'image:\n  repository: {repository}\n  tag: "{tag}"\n', values, count=1)


def write(directory: Path, image: str) -> None:
    """Write both charts; what an earlier run left of them goes."""
    for chart in CHARTS:
        target = directory / chart
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(olm.ROOT / "charts" / chart, target)
        (described,) = olm.documents(target / "Chart.yaml")
        described["annotations"] = shown(chart, image)
        (target / "Chart.yaml").write_text(olm.text(described), encoding="utf-8")
    values = directory / "muster" / "values.yaml"
    values.write_text(with_image(values.read_text(encoding="utf-8"), image), encoding="utf-8")


def main() -> None:
    if not 2 <= len(sys.argv) <= 3 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    directory = Path(sys.argv[1])
    try:
        write(directory, sys.argv[2] if len(sys.argv) == 3 else olm.default_image())
    except ValueError as error:
        sys.exit(f"{Path(__file__).name}: {error}")
    print(f"wrote {', '.join(str(directory / chart) for chart in CHARTS)}: helm package {directory}/*")


if __name__ == "__main__":
    main()
