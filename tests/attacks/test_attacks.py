"""The small share of `make attack` that every run of the tests makes. Tests share the machine with others: how much
slower members are is for `make attack` to say, here nobody may be in error."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.attacks.__main__ import once
from tests.attacks.catalogue import ATTACKS
from tests.attacks.judging import missed

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

SECONDS = 1.0
SHARE = (
    "no-readers",
    "half-frames",
    "come-and-go",
    "half-logins",
    "fetched-1000-times",
    "huge-counts",
    "clock-back",
    "gateway-no-readers",
)


@pytest.mark.parametrize("name", SHARE)
def test_members_go_on_beside(name: str) -> None:
    run = once(ATTACKS[name], SECONDS)
    assert missed(ATTACKS[name], run) == [], run
    assert run.beside.requests > 0


def test_unknown_attack_is_refused() -> None:
    done = subprocess.run([sys.executable, "-m", "tests.attacks", "meteor"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "no attack meteor" in done.stderr
