"""The protocol core is sans-IO: simulation and proof rest on it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import muster_coordinator.replication

FOLDER = Path(next(iter(muster_coordinator.replication.__path__)))
SHELL = {"promise.py", "log_id.py"}  # they touch the disk and draw random bytes
FORBIDDEN = {"asyncio", "time", "random", "uuid", "datetime", "socket", "threading", "os", "secrets", "structlog"}


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.name)
def test_module_imports_no_clock_randomness_tasks_or_io(path: Path) -> None:
    if path.name in SHELL:
        return
    imported = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            imported.add(node.module.split(".")[0])
    assert not imported & FORBIDDEN


def test_modules_stay_short_enough_to_read() -> None:
    assert [path.name for path in FOLDER.glob("*.py") if len(path.read_text().splitlines()) > 400] == []
