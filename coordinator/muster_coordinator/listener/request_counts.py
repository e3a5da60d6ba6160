"""The time that requests took, as clients feel it, and the errors that they were answered with."""

from __future__ import annotations

from collections import Counter, defaultdict

from muster_coordinator.shard.metrics import Histogram
from muster_coordinator.shard.ports import Clock


class RequestCounts:
    """Times and errors of all connections of a pod. `times`: by API key, from the moment when a request had come whole
    to the moment when its answer was handed to the socket. JoinGroup, SyncGroup and Fetch wait for others, which
    is part of it. `errors`: how often answers had a code, by (API key, code).
    """

    def __init__(self, clock: Clock) -> None:
        self.now_s = clock.monotonic_s
        self.times: defaultdict[int, Histogram] = defaultdict(Histogram)
        self.errors: Counter[tuple[int, int]] = Counter()
