"""The small share of `make chaos` that every run of the tests makes: a leader is killed under load, nothing is lost."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.timeout(150)]

GENEROUS_MS = 10_000
"""How fast it is, is for `make chaos` to say; tests share the machine with others."""


def test_leader_killed_under_load_its_groups_go_on_elsewhere_and_nothing_is_lost() -> None:
    command = [sys.executable, "-m", "tests.chaos", "kill", "--seconds", "1", "--groups", "40", "--partitions", "12"]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=140)
    assert done.stdout, done.stderr
    [figures] = json.loads(done.stdout.splitlines()[-1])
    assert figures.get("commits", 0) > 0, done.stderr
    assert (figures["lost"], figures["reverted"], figures["invented"], figures["unread"]) == (0, 0, 0, 0), done.stderr
    assert figures["interrupted"] > 0
    assert figures["interrupted_max"] < GENEROUS_MS


def test_unknown_scenario_is_refused_with_the_names_that_there_are() -> None:
    done = subprocess.run([sys.executable, "-m", "tests.chaos", "meteor"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "no scenario meteor" in done.stderr
    assert "cut-node" in done.stderr
