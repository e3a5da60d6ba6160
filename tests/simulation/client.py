"""Clients: each group has one writer, which counts up, and readers; operations go to any pod that might lead."""

from __future__ import annotations

from tests.simulation.checker import History
from tests.simulation.operator import Store
from tests.simulation.pod import Cluster, Request

__all__ = ["Client"]

PATIENCE_MS = 900


class Client:
    """``version`` counts the writes of the group's only writer; a reader has none."""

    def __init__(self, name: str, cluster: Cluster, store: Store, history: History, *, writes: bool) -> None:
        self.name = name
        self.answered = 0
        self._cluster = cluster
        self._store = store
        self._history = history
        self._writes = writes
        self._version = 0
        self._serial = 0
        self._next()

    def _next(self) -> None:
        world = self._cluster.world
        world.at(1 + int(world.random.expovariate(1 / world.options.op_every_ms)), self._operate)

    def _operate(self) -> None:
        world = self._cluster.world
        self._serial += 1
        serial = self._serial
        version: int | None = None
        history = self._history
        if self._writes and world.random.random() < 0.7:
            self._version += 1
            version = -self._version if world.random.random() < world.options.deletes else self._version
            history.tries(version)
        known = history.known

        def answered(outcome: str, seen: int) -> None:
            def take() -> None:
                if serial != self._serial or request.cancelled:
                    return
                request.cancelled = True
                if outcome == "ok":
                    self.answered += 1
                    if version is not None:
                        history.acknowledged(version)
                    else:
                        history.read(seen, known)
                self._next()

            world.at(world.random.randint(0, world.options.delay_ms_max), take)

        request = Request(history.group, version, answered)

        def give_up() -> None:
            if serial == self._serial and not request.cancelled:
                request.cancelled = True
                self._next()

        pods = self._cluster.pods
        names = [pod.name for pod in pods.values() if pod.core is not None and pod.core.is_active]
        target = self._store.record.leader
        if names and world.random.random() < 0.8:
            target = world.random.choice(names)
        world.at(world.random.randint(0, world.options.delay_ms_max), lambda: pods[target].request(request))
        world.at(PATIENCE_MS, give_up)
