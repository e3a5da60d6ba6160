"""The limit of open files of a process."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

from muster_coordinator.tuning import descriptors
from muster_coordinator.tuning.descriptors import raise_descriptor_limit

PROGRAM = """
import resource
from muster_coordinator.tuning.descriptors import raise_descriptor_limit

resource.setrlimit(resource.RLIMIT_NOFILE, (512, 2048))
raise_descriptor_limit()
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def test_soft_limit_is_raised_to_the_hard_one() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["2048", "2048"]


def test_process_goes_on_where_the_system_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(1, "Operation not permitted")

    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    monkeypatch.setattr(descriptors.resource, "setrlimit", refuse)
    raise_descriptor_limit()
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before
