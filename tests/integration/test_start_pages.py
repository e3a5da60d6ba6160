"""The command blocks of docs/start-machine.md, run as they stand there but for the ports and the data directory."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.local_cluster import LocalCluster, muster

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
UP = ".venv/bin/muster local up "


def blocks(page: str) -> list[tuple[str, str]]:
    """(language, text) of the code blocks of a page of docs/."""
    return re.findall(r"^```(\w*)\n(.*?)^```", (ROOT / "docs" / page).read_text(encoding="utf-8"), re.M | re.S)


def test_commands_of_the_page_for_a_machine_commit_an_offset_and_read_it(tmp_path: Path) -> None:
    (_, commands), (language, program) = blocks("start-machine.md")
    install, up = commands.splitlines()
    assert (install, up[: len(UP)], language) == ("make install", UP, "python")  # the first made what runs this test
    with LocalCluster(tmp_path / "data", *shlex.split(up)[3:]) as cluster:
        bootstrap = cluster.wait_ready()
        assert len(bootstrap.split(",")) == 3
        mine = program.replace("127.0.0.1:9092", bootstrap.split(",")[0])
        assert mine != program
        ran = subprocess.run([sys.executable, "-c", mine], capture_output=True, text=True, timeout=60)
        assert ran.returncode == 0, ran.stderr
        assert "offset=42" in ran.stdout
        assert muster("local", "status", "--json", "--data-dir", str(cluster.data)).returncode == 0
