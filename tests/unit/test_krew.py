"""The plugin for krew: what the manifest names is what the archive has, and its launcher runs the command."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

sys.path.insert(0, str(Path(__file__).parents[2] / "hack"))

import krew  # hack/ is no package

REPOSITORY = Path(__file__).parents[2]
MAIN = "import sys\ndef kubectl_main():\n    print('ran', *sys.argv[1:])\n    raise SystemExit(3)\n"


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """One with the entry point of ours, and with nothing that it needs."""
    script = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["scripts"][krew.BIN]
    module = script.partition(":")[0].replace(".", "/")
    info = "muster-9.9.9.dist-info"
    made = tmp_path / "muster-9.9.9-py3-none-any.whl"
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr(f"{Path(module).parent}/__init__.py", "")
        archive.writestr(f"{module}.py", MAIN)
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: muster\nVersion: 9.9.9\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/entry_points.txt", f"[console_scripts]\n{krew.BIN} = {script}\n")
        archive.writestr(f"{info}/RECORD", "")
    return made


def test_manifest_names_the_archive_its_hash_and_the_program_in_it(wheel: Path, tmp_path: Path) -> None:
    archive = krew.pack(wheel, "", tmp_path)
    plugin: dict[str, Any] = yaml.safe_load(krew.manifest(archive, "9.9.9", "https://example.org/v9.9.9/"))
    assert plugin["apiVersion"] == "krew.googlecontainertools.github.com/v1alpha2"
    assert (plugin["kind"], plugin["metadata"]["name"]) == ("Plugin", "muster")
    spec = plugin["spec"]
    assert re.fullmatch(r"v[0-9]+\.[0-9]+\.[0-9]+", spec["version"])
    assert len(spec["shortDescription"]) <= 50, "krew cuts it"
    (platform,) = spec["platforms"]
    assert platform["uri"] == "https://example.org/v9.9.9/kubectl-muster-9.9.9.tar.gz"
    assert platform["sha256"] == hashlib.sha256(archive.read_bytes()).hexdigest()
    with tarfile.open(archive) as files:
        assert sorted(files.getnames()) == ["LICENSE", "kubectl-muster", wheel.name, "requirements.txt"]
        assert files.getmember(platform["bin"]).mode == 0o755
    before = archive.read_bytes()
    assert krew.pack(wheel, "", tmp_path).read_bytes() == before, "the same sources give the same archive"


def test_launcher_makes_its_environment_once_and_runs_the_command_with_its_exit_code(
    wheel: Path, tmp_path: Path
) -> None:
    with tarfile.open(krew.pack(wheel, "", tmp_path)) as files:
        files.extractall(tmp_path / "store")
    link = tmp_path / krew.BIN  # as krew links it
    link.symlink_to(tmp_path / "store" / krew.BIN)
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "PIP_NO_INDEX": "1"}

    def run() -> subprocess.CompletedProcess[str]:
        command = [str(link), "status", "a b"]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)

    first, second = run(), run()
    assert (first.returncode, first.stdout) == (3, "ran status a b\n"), first.stderr
    assert "making its Python environment" in first.stderr
    assert (second.returncode, second.stdout, second.stderr) == (3, "ran status a b\n", "")
    (place,) = (tmp_path / "cache" / krew.BIN).iterdir()
    (place / "complete").unlink()
    place.with_name(place.name + ".lock").mkdir()
    assert (run().returncode, "another run makes" in run().stderr) == (1, True)


def test_locked_requirements_have_a_hash_each_and_what_the_command_imports() -> None:
    lines = krew.locked()
    names = re.findall(r"^([a-z0-9._-]+)==", lines, re.MULTILINE)
    assert {"click", "rich", "kubernetes", "aiohttp"} <= set(names)
    assert len(re.findall("--hash=sha256:", lines)) >= len(names)
