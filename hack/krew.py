"""Packs `kubectl muster` for krew: an archive for Linux and macOS, and the manifest that names it.

usage: hack/krew.py DIRECTORY [BASE]

BASE is the address under which the archive will be found, by default file:// of the directory, from which
`kubectl krew install --manifest=DIRECTORY/muster.yaml --archive=...` installs it here. The archive has the wheel, the
locked versions of what it needs, with hashes, and a launcher that puts them into an environment of its own at its first
run. The same sources give the same archive.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import yaml

ROOT = Path(__file__).parent.parent
BIN = "kubectl-muster"

LAUNCHER = """#!/bin/sh
# Runs `kubectl muster` from a Python environment of its own, which the first run makes in the cache of the user.
set -eu
here=$(CDPATH= cd -- "$(dirname -- "$(readlink -f -- "$0")")" && pwd)
place=${XDG_CACHE_HOME:-$HOME/.cache}/kubectl-muster/IDENTITY
if [ ! -e "$place/complete" ]; then
  python=
  for each in python3 python3.14 python3.13 python3.12 python3.11; do
    if "$each" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      python=$each
      break
    fi
  done
  [ -n "$python" ] ||
    { echo "kubectl muster needs Python 3.11 or later, with venv (Debian: python3-venv)" >&2; exit 1; }
  mkdir -p "$(dirname -- "$place")"
  mkdir "$place.lock" 2>/dev/null ||
    { echo "kubectl muster: another run makes $place; if none does, remove $place.lock" >&2; exit 1; }
  trap 'rmdir "$place.lock"' EXIT
  trap 'exit 130' INT TERM
  echo "kubectl muster: making its Python environment in $place (once)" >&2
  rm -rf "$place"
  "$python" -m venv "$place"
  pip="$place/bin/python -m pip install --quiet --disable-pip-version-check"
  [ ! -s "$here/requirements.txt" ] || $pip --require-hashes -r "$here/requirements.txt"
  $pip --no-deps "$here"/*.whl
  : > "$place/complete"
  rmdir "$place.lock"
  trap - EXIT INT TERM
fi
exec "$place/bin/kubectl-muster" "$@"
"""


def version_of(wheel: Path) -> str:
    return wheel.name.split("-")[1]


def pack(wheel: Path, requirements: str, directory: Path) -> Path:
    """Write the archive, and return its path."""
    identity = f"{version_of(wheel)}-{hashlib.sha256(wheel.read_bytes() + requirements.encode()).hexdigest()[:12]}"
    files = {
        BIN: (LAUNCHER.replace("IDENTITY", identity).encode(), 0o755),
        "LICENSE": ((ROOT / "LICENSE").read_bytes(), 0o644),
        "requirements.txt": (requirements.encode(), 0o644),
        wheel.name: (wheel.read_bytes(), 0o644),
    }
    target = directory / f"{BIN}-{version_of(wheel)}.tar.gz"
    with (
        target.open("wb") as raw,
        gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):
        for name, (content, mode) in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            archive.addfile(entry, io.BytesIO(content))
    return target


def manifest(archive: Path, version: str, base: str) -> str:
    """The Plugin of krew, as muster.yaml has it."""
    plugin = {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "muster"},
        "spec": {
            "version": f"v{version}",
            "shortDescription": "See and drive Muster, Kafka's group coordinator",
            "description": "Shows clusters of Muster on one screen, says why a partition or group is as it is, moves"
            " leaders, drains, fences and restarts pods, and packs what somebody needs who helps from afar.\n",
            "caveats": "Needs Python 3.11 or later. The first run makes an environment of its own in ~/.cache, with"
            " packages of locked versions from the package index that pip uses.\n",
            "platforms": [
                {
                    "selector": {"matchExpressions": [{"key": "os", "operator": "In", "values": ["linux", "darwin"]}]},
                    "uri": f"{base.rstrip('/')}/{archive.name}",
                    "sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
                    "bin": BIN,
                }
            ],
        },
    }
    return yaml.safe_dump(plugin, sort_keys=False, width=120)


def locked() -> str:
    """The packages that the command needs, by version and hash, for every platform."""
    options = ("--frozen", "--no-emit-project", "--no-annotate", "--no-header", "--extra", "cli")
    return run("export", "--quiet", *options).stdout


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    uv = shutil.which("uv") or str(ROOT / ".cache" / "uv" / "bin" / "uv")
    return subprocess.run((uv, *arguments), cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)


def main() -> None:
    if not 2 <= len(sys.argv) <= 3 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    directory = Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as built:
        run("build", "--quiet", "--wheel", "-o", built)
        (wheel,) = Path(built).glob("*.whl")
        archive, version = pack(wheel, locked(), directory), version_of(wheel)
    base = sys.argv[2] if len(sys.argv) == 3 else directory.resolve().as_uri()
    (directory / "muster.yaml").write_text(manifest(archive, version, base), encoding="utf-8")
    print(f"wrote {archive} and {directory / 'muster.yaml'}")


if __name__ == "__main__":
    main()
