"""The load that the connections of one user put on a pod together: their number, their requests in flight, and their
rate.

Beyond a bound nothing is refused: the user's connections are read later. A request above the rate is carried out and
answered with the time (ms) for which its connection is not read, as Kafka does it (KIP-219, KIP-599).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Protocol

from muster_coordinator.security.quotas import Quotas

BURST_WINDOWS = 10
"""A user that was silent may ask for so many seconds' worth at once: Kafka measures a rate over ten whole windows of
a second (`quota.window.num`). The members of a group that starts ask for much in a moment, and for little after it."""


class Waiting(Protocol):
    """A connection whose requests wait for room."""

    def take_turn(self) -> None:
        """Carry out what waits."""
        ...


class UserLoad:
    """One for each user that has connections. `in_flight`: requests without their answers, of all of them."""

    def __init__(self, quotas: Quotas, max_in_flight: int, now_ms: int) -> None:
        self.connections = 0
        self.in_flight = 0
        self._max_in_flight = max_in_flight
        self._waiting: dict[Waiting, None] = {}  # in the order in which they began to wait
        self._wake: asyncio.Handle | None = None
        self._at_ms = now_ms
        self.quotas = quotas
        self._tokens = self._burst  # requests that may come now; below 0: those that came too early

    @property
    def _burst(self) -> float:
        return float(BURST_WINDOWS * (self.quotas.request_rate or 0))

    def use(self, quotas: Quotas, now_ms: int) -> None:
        """Applies these quotas from now on. A user that gets a rate for the first time may use its burst."""
        if quotas.request_rate == self.quotas.request_rate:
            self.quotas = quotas
            return
        had_rate = self.quotas.request_rate is not None
        self._refill(now_ms)
        self.quotas = quotas
        self._tokens = min(self._tokens, self._burst) if had_rate else self._burst

    # -- requests in flight -------------------------------------------------------------------------------------------

    def is_full(self) -> bool:
        return self.in_flight >= self._max_in_flight

    def left(self, number: int) -> None:
        """Releases requests that are answered, or given up with their connection: others may come in."""
        self.in_flight -= number
        if self._waiting and self._wake is None:
            self._wake = asyncio.get_running_loop().call_soon(self._wake_next)

    def wait(self, connection: Waiting) -> None:
        """Call its `take_turn` once there is room."""
        self._waiting[connection] = None

    def forget(self, connection: Waiting) -> None:
        """It is closed."""
        self._waiting.pop(connection, None)

    def _wake_next(self) -> None:
        self._wake = None
        while self._waiting and not self.is_full():
            connection = next(iter(self._waiting))
            del self._waiting[connection]
            connection.take_turn()  # it waits again, behind the others, if there was no room for all that it has

    # -- rate ---------------------------------------------------------------------------------------------------------

    def throttle_ms(self, now: Callable[[], int]) -> int:
        """A request has come: for how long (ms) its connection rests. 0: not at all."""
        rate = self.quotas.request_rate
        if rate is None:
            return 0
        self._refill(now())
        self._tokens -= 1
        return 0 if self._tokens >= 0 else math.ceil(-self._tokens * 1000 / rate)

    def is_at_rest(self, now_ms: int) -> bool:
        """Nothing is lost when it is forgotten: a user that comes again at once would begin with the same."""
        self._refill(now_ms)
        return not self.connections and self._tokens >= self._burst

    def _refill(self, now_ms: int) -> None:
        rate = self.quotas.request_rate or 0
        self._tokens = min(self._burst, self._tokens + (now_ms - self._at_ms) * rate / 1000)
        self._at_ms = now_ms
