"""`muster local up` with pods at which offsets of a transaction do not wait for markers: a planted fault.

python -m tests.support.without_barrier local up ...    the arguments are those of `muster`
python -m tests.support.without_barrier pod OPTION...   a pod; the options of `muster-coordinator`
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from muster_cli.local import up, workload
from muster_cli.local.data_dir import DataDir, RunningPod
from muster_cli.main import main as muster
from muster_coordinator.pod.mirroring.barrier import Barrier
from muster_coordinator.process.main import main as coordinator


def at_once(_barrier: Barrier, _partition: int, go_on: Callable[[], None], _refuse: object) -> None:
    go_on()


def pod(running: RunningPod, uid: str, data: DataDir, settings: Mapping[str, str]) -> list[str]:
    options = workload.coordinator_command(running, uid, data, settings)[3:]
    return [sys.executable, "-m", __spec__.name, "pod", *options]


def main(arguments: list[str]) -> None:
    paths = (str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", ""))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    if arguments[0] == "pod":
        Barrier.after_markers = at_once  # type: ignore[method-assign]
        sys.exit(coordinator(arguments[1:]))
    vars(up)["LocalWorkload"] = partial(workload.LocalWorkload, command=pod)
    sys.argv = ["muster", *arguments]
    muster()


if __name__ == "__main__":
    main(sys.argv[1:])
