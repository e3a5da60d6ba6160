"""Decides which operator a pod listens to, in calls that no epoch decides.

Each operator has a fencing token, a higher one than the operators before it. Metadata images, creations, removals,
fences, imports and drains carry it, and the pod refuses a token below the highest one that it has seen: the call comes
from an operator that was replaced, and can be late by any time. Elections and resignations carry none: their epoch
decides, and a pod never refuses a higher epoch for a lower token (replication.md, "The operator").

A pod reports the highest token in its status. An operator whose own token is lower goes above it, so an operator whose
store was restored from a backup is not locked out (docs/replication.md, "Fencing token").
"""

from __future__ import annotations

from collections.abc import Callable

from muster_coordinator.podapi.control import RefusedCallError


class FencingTokens:
    """`highest` is the highest token that this pod has seen; -1: none. `refused` is called after each refusal.

    It is as durable as the last image (`last_image`), which every operator puts to each pod with its first plan.
    """

    def __init__(self, refused: Callable[[], None]) -> None:
        self.highest = -1
        self._refused = refused

    def note(self, token: int) -> None:
        """An earlier run of this pod has seen `token`."""
        self.highest = max(self.highest, token)

    def check(self, token: int) -> None:
        """Raises RefusedCallError (409, StaleToken) if `token` is lower than the highest one."""
        if token < self.highest:
            self._refused()
            message = f"another operator took over: this pod has seen fencing token {self.highest}, yours is {token}"
            raise RefusedCallError(409, "StaleToken", message)
        self.highest = token
