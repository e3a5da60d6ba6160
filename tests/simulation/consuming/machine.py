"""A machine whose consumers, one after the other, are of either protocol: an application that is moved to the new one,
and back, while its group runs."""

from __future__ import annotations

from tests.simulation.client import Caller
from tests.simulation.consuming.classic import SUBSCRIPTIONS, ClassicConsumer
from tests.simulation.consuming.group import Group, Place
from tests.simulation.consuming.member import ModernConsumer
from tests.simulation.injected import Injected

__all__ = ["Machine"]

ROLLED_EVERY_MS = 700
NEW, EAGER, COOPERATIVE = "new", "eager", "cooperative"
PROTOCOLS = (NEW, NEW, EAGER, COOPERATIVE, COOPERATIVE)


class Machine:
    """A static one has the same instance id by either protocol. `answered`: what all its consumers were."""

    def __init__(self, name: str, group: Group, caller: Caller, *, static: bool) -> None:
        self.name = name
        self._group = group
        self._caller = caller
        self._instance = name if static else None
        self._names = caller.world.random.choice(SUBSCRIPTIONS)
        self._answered_before = 0
        self._processes = 0
        self._protocol = ""
        self._process: ModernConsumer | ClassicConsumer | None = None
        self._start()
        caller.world.every(ROLLED_EVERY_MS, self.restart)

    def _start(self) -> None:
        world, before = self._caller.world, self._protocol
        if self._process is not None:
            self._answered_before += self._process.answered
        self._processes += 1
        self._protocol = world.random.choice(PROTOCOLS)
        if before:
            world.injected[Injected.PROTOCOL_CHANGED] += (before == NEW) != (self._protocol == NEW)
        if self._protocol == NEW:
            name = f"{self.name}.{self._processes}"
            self._process = ModernConsumer(name, self._group, self._caller, self._instance, self._start)
        else:
            names = self._names if self._instance is not None else world.random.choice(SUBSCRIPTIONS)
            cooperative = self._protocol == COOPERATIVE
            self._process = ClassicConsumer(
                self._group, self._caller, self._instance, names, self._start, cooperative=cooperative
            )

    def restart(self) -> None:
        """Its consumer leaves, and the next one comes: whoever assigns then looks at the topics."""
        if self._process is not None:
            self._process.leaves_next = True

    @property
    def answered(self) -> int:
        return self._answered_before + (0 if self._process is None else self._process.answered)

    @property
    def owned(self) -> set[Place]:
        return set() if self._process is None else self._process.owned

    @property
    def topics(self) -> frozenset[str]:
        return frozenset() if self._process is None else self._process.topics

    @property
    def is_settled(self) -> bool:
        return self._process is not None and self._process.is_settled
