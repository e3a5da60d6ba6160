"""An operator that kills itself at a point (see `kill_points`), as a crash between two actions does.

`python -m tests.chaos.dying FILE local up ...` is `muster local up`, `... FILE operator` is `muster-operator`. FILE
names the point; it is read at the start, if it is there, and at each SIGUSR1.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from tests.chaos.kill_points import CALLS, Point, Port

from muster_coordinator.podapi.client import PodClient

OPERATOR = "operator"


class Dying:
    """Counts calls, and ends the process by SIGKILL at the point."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._point: Point | None = None
        self._left = 0

    def arm(self) -> None:
        if self._file.exists():
            self._point = Point.parse(self._file.read_text())
            self._left = self._point.nth

    def install(self, owners: Mapping[Port, type]) -> None:
        for action, call in CALLS.items():
            owner = owners.get(call.port)
            if owner is not None:
                counted = self._counted(action.__name__, call.belongs, getattr(owner, call.method))
                setattr(owner, call.method, counted)

    def _counted(
        self, action: str, belongs: Callable[..., bool], call: Callable[..., Awaitable[Any]]
    ) -> Callable[..., Awaitable[Any]]:
        async def counted(*arguments: Any, **options: Any) -> Any:
            if not belongs(*arguments, **options):
                return await call(*arguments, **options)
            self._pass(action, "before")
            answer = await call(*arguments, **options)
            self._pass(action, "after")
            return answer

        return counted

    def _pass(self, action: str, when: str) -> None:
        point = self._point
        if point is not None and (point.action, point.when) == (action, when):
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    file, *command = sys.argv[1:]
    dying = Dying(Path(file))
    signal.signal(signal.SIGUSR1, lambda *_: dying.arm())
    dying.arm()
    if command == [OPERATOR]:
        _on_kubernetes(dying)
    else:
        _embedded(dying, command)


def _on_kubernetes(dying: Dying) -> None:
    from muster_operator.__main__ import main as run
    from muster_operator.kube.backups import KubeBackups
    from muster_operator.kube.restores import KubeRestores
    from muster_operator.kube.store import KubeStore
    from muster_operator.kube.workload import KubeWorkload

    jobs = {Port.JOBS: KubeBackups, Port.RESTORES: KubeRestores}
    dying.install({Port.STORE: KubeStore, Port.WORKLOAD: KubeWorkload, Port.POD: PodClient, **jobs})
    run()


def _embedded(dying: Dying, command: list[str]) -> None:
    from muster_cli.local.workload import LocalWorkload
    from muster_cli.main import cli
    from muster_operator.store.sqlite import SqliteStore

    dying.install({Port.STORE: SqliteStore, Port.WORKLOAD: LocalWorkload, Port.POD: PodClient})
    cli(command, prog_name="muster")


if __name__ == "__main__":
    main()
