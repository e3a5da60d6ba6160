"""Who reads what transactions have committed: fetches that take what is there, and stable ones (KIP-447)."""

from __future__ import annotations

from tests.simulation.client import TOPIC, Caller
from tests.simulation.transactions.model import Model
from tests.simulation.world import Violation

from muster_coordinator.errors import ErrorCode
from muster_coordinator.requests import groups as m

__all__ = ["Reader"]


class Reader:
    """`answered` counts fetches that showed something, or that there is nothing."""

    def __init__(self, name: str, group: str, caller: Caller, model: Model) -> None:
        self.name = name
        self.answered = 0
        self._group = group
        self._caller = caller
        self._world = caller.world
        self._model = model
        self._next()

    def _next(self) -> None:
        self._world.at(1 + int(self._world.random.expovariate(1 / self._world.options.op_every_ms)), self._read)

    def _read(self) -> None:
        stable = self._world.random.random() < 0.5
        start = self._model.start(self._group)

        def answered(response: m.OffsetFetchResponse | None) -> None:
            if response is not None:
                ((_, ((_, offset, _, _, code),)),) = response.topics
                if code == ErrorCode.NONE:
                    self._model.reads(self._group, max(offset, 0), start, stable=stable)
                    self.answered += 1
                elif code != ErrorCode.UNSTABLE_OFFSET_COMMIT or not stable:
                    raise Violation(f"{self._group} is not shown: {response}, {stable=}")
            self._next()

        self._caller.call(m.OffsetFetchRequest(self._group, None, -1, ((TOPIC, (0,)),), stable), answered)
