"""What a run does to this machine's network, it undoes: also for a run that was killed."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.chaos.errors import HarnessError, Skipped
from tests.chaos.network import PREFIX, Namespace, namespaces, remove_leftovers

pytestmark = pytest.mark.integration

KILLED_RUN = """
import sys
from tests.chaos.network import namespaces
with namespaces(1) as made:
    print(made[0].prefix[-1], flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def pair() -> Iterator[list[Namespace]]:
    try:
        with namespaces(2) as made:
            yield made
    except (Skipped, HarnessError) as error:
        pytest.skip(f"network namespaces: {error}")


def left(run: str) -> list[str]:
    names = [line.split()[0] for line in subprocess.check_output(["ip", "netns", "list"], text=True).splitlines()]
    names += [path.name for path in Path("/sys/class/net").iterdir()]
    return [name for name in names if name.startswith(run)]


def reaches(source: Namespace, host: str) -> bool:
    """A connection attempt is answered, if only by a refusal: nothing listens there."""
    code = f"import socket; s = socket.socket(); s.settimeout(0.5); print(s.connect_ex(({host!r}, 9)))"
    done = subprocess.run([*source.prefix, sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    return done.stdout.strip() == "111"


def reaches_soon(source: Namespace, host: str) -> bool:
    """The first packets over a new bridge, or on a busy machine, may take longer than one attempt."""
    deadline = time.monotonic() + 20
    while not reaches(source, host):
        if time.monotonic() > deadline:
            return False
    return True


def test_cut_holds_both_ways_until_it_is_healed(pair: list[Namespace]) -> None:
    one, other = pair
    assert reaches_soon(one, other.host)
    one.drop(*one.cut_from_pods([other.host]))
    assert not reaches(one, other.host)
    assert not reaches(other, one.host)
    one.heal()
    assert reaches_soon(one, other.host)
    assert reaches_soon(other, one.host)


def test_namespaces_of_a_killed_run_are_removed_by_the_next_one(pair: list[Namespace]) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED_RUN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    name = child.stdout.readline().strip()
    assert name == f"{PREFIX}{child.pid}-0"
    remove_leftovers()
    assert left(f"{PREFIX}{child.pid}"), "a run that goes on must keep its network"
    child.kill()
    child.communicate()
    remove_leftovers()
    assert left(f"{PREFIX}{child.pid}") == []
    assert len(left(pair[0].prefix[-1].rpartition("-")[0])) >= 2
