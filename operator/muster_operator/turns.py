"""Turns at replacing pods: one cluster at a time of those that an operator process looks after."""

from __future__ import annotations

import math

from muster_operator.store.port import ClusterKey


class Turns:
    """A cluster has its turn from the restart of one of its pods until all of them serve with the declared template.

    So a change that many clusters get at once reaches one of them first, and another one only when that went well. A
    cluster that does not get on gives its turn up. Times are monotonic seconds.
    """

    def __init__(self) -> None:
        self._holder: ClusterKey | None = None
        self._until = 0.0

    def other(self, key: ClusterKey, now: float) -> ClusterKey | None:
        """The cluster that has the turn, if it is another one; else None."""
        return self._holder if self._holder != key and now < self._until else None

    def take(self, key: ClusterKey, now: float, longest_s: float) -> None:
        """A pod of this cluster is replaced now. Without another one within `longest_s` (0: for ever) its turn ends."""
        self._holder = key
        self._until = now + longest_s if longest_s else math.inf

    def end(self, key: ClusterKey) -> None:
        """This cluster replaces no pod any more."""
        if self._holder == key:
            self._holder = None
