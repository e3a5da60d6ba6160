"""What every simulated operator is: a process that dies between any two actions, knows nothing when it starts again,
and ends for good when another one holds the lease.
"""

from __future__ import annotations

from tests.simulation.world import World

__all__ = ["OperatorProcess"]


class OperatorProcess:
    """Each start is a run of its own, by number: what an earlier run has scheduled does nothing any more. All with one
    name crash together.
    """

    def __init__(self, name: str, world: World) -> None:
        self.name = name
        self.world = world
        self.wants = ""  # "move", "resign" or "change", asked for by the simulation
        self._run = 0
        self._ended = False
        self.start()

    def start(self) -> None:
        if self._ended:
            return
        self._run += 1
        self._forget()
        self._step(self._run)

    def crash(self) -> None:
        self._run += 1
        self.world.at(self.world.random.randint(1, 1_500), self.start)

    def end(self) -> None:
        """It holds the lease no more, and hears of that."""
        self._ended = True
        self._run += 1

    def _forget(self) -> None:
        """Nothing is known."""
        raise NotImplementedError

    def _step(self, run: int) -> None:
        """Looks, acts, and comes again, while ``run`` is the present one."""
        raise NotImplementedError
