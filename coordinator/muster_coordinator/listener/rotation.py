"""The order in which requests are carried out: connections take turns, so that what one of them asks for keeps nobody
waiting for long (ADR 43).

Work is counted in units. A request is one, and one more for each UNIT_BYTES of its frame and each ANSWER_UNIT_BYTES of
its answer; a slice of a large answer is SLICE_UNITS; of what is read at once, each READ_UNIT_BYTES are one. In one turn
of the event loop TURN_UNITS are carried out for all connections together, and QUANTUM requests at most for one. The
pod's own work (elections, replication, timers, the pod API) runs between two turns.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

import structlog

logger = structlog.get_logger(__name__)

TURN_UNITS = 32
"""About 1 ms of requests: who waits for a few turns does not notice. Less would cost batches of commits."""

LIGHT_RESERVE = 16
"""Requests in a pod's turn that are kept for connections that have spent little in their last one: a heartbeat is
carried out in the turn in which it comes, whatever many others ask for."""

QUANTUM = 16
"""Kafka takes one request of a connection at a time; clients that pipeline commits have a few in flight."""

UNIT_BYTES = 1024
ANSWER_UNIT_BYTES = 512
"""An answer takes longer to make than a request of its size to read."""

READ_UNIT_BYTES = 16 << 10
"""The system's copy and ours: a loop that is asked to reads megabytes of each connection in one turn."""

SLICE_UNITS = 32

LIGHT_UNITS = 8
"""A connection that has spent more in its last turn waits behind those that have not: a heartbeat does not wait for the
costly answers of many others."""


class Taking(Protocol):
    """A connection that has something to be carried out."""

    def take_turn(self) -> None:
        """Carry out up to a quantum, and `wait` again if that was not all."""
        ...

    def abort(self) -> None:
        """Close at once."""
        ...


class Rotation:
    """One per process. `units`: how many may be spent until the next turn of the event loop. `light_reserve`: those
    that only connections may spend that have spent little in their last one."""

    def __init__(self, light_reserve: int = 0) -> None:
        self.light_reserve = light_reserve
        self.units = TURN_UNITS
        self._light: dict[Taking, None] = {}  # in the order in which they began to wait
        self._heavy: dict[Taking, None] = {}
        self._due = False

    def wait(self, connection: Taking, is_heavy: bool) -> None:
        """Call its `take_turn` when all of its kind that wait already have had theirs. `is_heavy`: it had one, and has
        spent much."""
        (self._heavy if is_heavy else self._light)[connection] = None
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self._turn)

    def forget(self, connection: Taking) -> None:
        """It is closed."""
        self._light.pop(connection, None)
        self._heavy.pop(connection, None)

    def _turn(self) -> None:
        self._due = False
        self.units = TURN_UNITS
        self._serve(self._light, 0)
        if self._heavy and self.units <= self.light_reserve:
            self.units = self.light_reserve + 1  # each turn serves one of these, however many others there are
        self._serve(self._heavy, self.light_reserve)
        if (self._light or self._heavy) and not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _serve(self, waiting: dict[Taking, None], kept: int) -> None:
        for _ in range(len(waiting)):  # who waits again is next in the next turn
            if self.units <= kept or not waiting:
                break
            connection = next(iter(waiting))
            del waiting[connection]
            try:
                connection.take_turn()
            except Exception:  # a defect costs the connection that met it, as asyncio has it for what is received
                logger.exception("turn_failed", client=repr(connection))
                connection.abort()
