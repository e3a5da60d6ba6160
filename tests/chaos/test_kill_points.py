"""The operator can be made to die at each kind of action that a plan has, and does."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
from tests.chaos.kill_points import CALLS, POINTS, Point, Port

from muster_cli.local.workload import LocalWorkload
from muster_coordinator.podapi.client import PodClient
from muster_operator.kube.backups import KubeBackups
from muster_operator.kube.restores import KubeRestores
from muster_operator.kube.store import KubeStore
from muster_operator.kube.workload import KubeWorkload
from muster_operator.plan.actions import Action
from muster_operator.store.sqlite import SqliteStore

OWNERS = {
    Port.STORE: (SqliteStore, KubeStore),
    Port.WORKLOAD: (LocalWorkload, KubeWorkload),
    Port.POD: (PodClient,),
    Port.JOBS: (KubeBackups,),
    Port.RESTORES: (KubeRestores,),
}

THREE_ELECTIONS = """
import asyncio, sys
from pathlib import Path
from muster_coordinator.podapi.client import PodClient
from tests.chaos.dying import Dying
from tests.chaos.kill_points import CALLS, Port

class Other:
    pass

async def elect(self, number):
    print("elected", number, flush=True)

for call in CALLS.values():
    setattr(Other, call.method, elect)
dying = Dying(Path(sys.argv[1]))
dying.install(dict.fromkeys(Port, Other))
dying.arm()
for number in (1, 2, 3):
    asyncio.run(Other().elect(number))
"""


def test_every_kind_of_action_has_a_kill_before_and_after_it() -> None:
    kinds = {kind.__name__ for kind in get_args(Action)}
    for when in ("before", "after"):
        assert {point.action for point in POINTS if point.when == when} == kinds


def test_the_calls_that_carry_actions_out_exist() -> None:
    for call in CALLS.values():
        for owner in OWNERS[call.port]:
            assert callable(getattr(owner, call.method))


@pytest.mark.parametrize(
    ("point", "said"),
    [(Point("Elect", "before", 2), "elected 1\n"), (Point("Elect", "after", 2), "elected 1\nelected 2\n")],
    ids=str,
)
def test_operator_dies_at_its_point(tmp_path: Path, point: Point, said: str) -> None:
    file = tmp_path / "point"
    file.write_text(str(point))
    done = subprocess.run(
        [sys.executable, "-c", THREE_ELECTIONS, str(file)], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, said), done.stderr
