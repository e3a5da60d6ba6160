"""The demo, as `make demo` runs it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration


def start(tmp_path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "muster_cli", "demo"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        start_new_session=True,
    )


def test_demo_shows_nothing_lost_under_a_higher_epoch_and_leaves_nothing_behind(tmp_path: Path) -> None:
    demo = start(tmp_path)
    output, _ = demo.communicate(timeout=90)
    assert demo.returncode == 0, output
    assert re.search(r"leads offsets partition \d+ in epoch \d+ \(before: \d+\)", output)
    assert "committed offsets are those of the committed transactions" in output
    assert "every offset that was acknowledged before the kill is still there" in output
    assert re.search(r"The coordinator was away for [1-9]\d* ms", output)
    assert list(tmp_path.iterdir()) == []


def test_interrupted_demo_ends_its_cluster(tmp_path: Path) -> None:
    demo = start(tmp_path)
    assert demo.stdout is not None
    for line in demo.stdout:
        if "committed offset" in line:
            break
    [data] = tmp_path.iterdir()
    demo.send_signal(signal.SIGINT)
    output, _ = demo.communicate(timeout=90)
    assert demo.returncode == 1, output
    assert not data.exists()
    assert str(data) not in subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
