"""The urgency of work, and the rests of background work after each piece."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

POLL_S = 0.02
"""The interval at which a task that nothing wakes looks whether its wait is over. A person notices 100 ms."""


class Urgency(IntEnum):
    """The order of work: the lower value goes first. Groups of a partition wait for its election, a client for its
    commit, no client for work in the background.
    """

    ELECTION = 0
    COMMIT = 1
    BACKGROUND = 2


@dataclass(frozen=True)
class Rest:
    """Work that is done in pieces, with a rest after each: it takes at most `share` of the time.

    The rest is a multiple of what the piece took on the clock, because a busy machine makes both long. No rest is
    longer than `longest_s` seconds: then the work takes more than its share.
    """

    share: float
    longest_s: float

    def after(self, worked_s: float) -> float:
        """The seconds to rest after a piece of work that took `worked_s` seconds."""
        return min(max(worked_s, 0.0) * (1 / self.share - 1), self.longest_s)
