"""The bill of materials of an image names what the image is made of, no more and no less."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]


def locked(*extras: str) -> dict[str, str]:
    """What `hack/image` installs for these extras on this platform: name and version."""
    uv = "uv" if subprocess.run(["which", "uv"], capture_output=True).returncode == 0 else ".cache/uv/bin/uv"
    options = [part for extra in extras for part in ("--extra", extra)]
    command = [uv, "export", "-q", "--frozen", "--no-emit-project", "--no-hashes", "--no-annotate", *options]
    listed = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True, timeout=60).stdout
    return dict(re.findall(r"^([a-z0-9._-]+)==([^ ;\n]+)", listed, flags=re.MULTILINE))


@pytest.mark.parametrize(
    ("name", "extras"),
    [("muster", ["operator", "backup", "tracing"]), ("muster-pipeline", ["cli", "pipeline", "backup"])],
    ids=["muster", "pipeline"],
)
def test_bill_of_materials_names_every_package_of_the_image_with_its_hashes(
    tmp_path: Path, name: str, extras: list[str]
) -> None:
    subprocess.run([REPOSITORY / "hack" / "sbom", tmp_path], check=True, capture_output=True, timeout=60)
    document = json.loads((tmp_path / f"{name}.cdx.json").read_text(encoding="utf-8"))
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.5")
    assert document["metadata"]["component"]["name"] == "muster"
    found = {each["name"]: each["version"] for each in document["components"]}
    assert found == locked(*extras)
    for each in document["components"]:
        hashes = [one for reference in each["externalReferences"] for one in reference.get("hashes", ())]
        assert {one["alg"] for one in hashes} == {"SHA-256"}, each["name"]
    image = (REPOSITORY / "hack" / "image").read_text(encoding="utf-8")
    assert f"extras=({' '.join(f'--extra {extra}' for extra in extras)})" in image
