"""Programs in Go that tests run, each a folder beside this file: compiled once, and kept for all clones."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

GO = shutil.which("go", path=os.environ.get("PATH", "") + ":/usr/local/go/bin")
WHY_NONE = "needs Go and the modules of these clients: https://go.dev/dl"


@cache
def compiled(sources: Path) -> str | None:
    """The program of a folder; None: there is no Go here, or its modules cannot be had."""
    files = sorted(each for each in sources.iterdir() if each.suffix == ".go" or each.name in ("go.mod", "go.sum"))
    digest = hashlib.sha256(b"".join(each.read_bytes() for each in files))
    cached = Path(os.environ.get("MUSTER_CACHE") or Path.home() / ".cache" / "muster")
    made = cached / sources.name / digest.hexdigest()[:16] / sources.name
    if made.exists():
        return str(made)
    if GO is None:
        return None
    made.parent.mkdir(parents=True, exist_ok=True)
    part = made.with_name(f"{made.name}.{os.getpid()}")  # others may compile at the same time
    command = [GO, "build", "-trimpath", "-o", str(part), "."]
    done = subprocess.run(
        command, cwd=sources, env={**os.environ, "CGO_ENABLED": "0"}, check=False, capture_output=True
    )
    if done.returncode:
        print(done.stderr.decode(errors="replace")[-2000:])
        return None
    part.replace(made)
    return str(made)
