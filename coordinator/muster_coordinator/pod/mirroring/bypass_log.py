"""Groups that clients use at the upstream although Muster serves them, as lines of the log."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import structlog

from muster_coordinator.mirror.bypasses import Bypass
from muster_coordinator.shard.ports import Clock

logger = structlog.get_logger(__name__)

LINES = 5
"""The lines that are logged at a time."""
WAITING_MAX = 100
"""Groups that wait for their line; of more than these only the number is told."""


class BypassLog:
    """A few lines in each `pace_ms`, however many clients bypass Muster. Call `look` often."""

    def __init__(self, clock: Clock, pace_ms: int) -> None:
        self._clock = clock
        self._pace_ms = pace_ms
        self._waiting: deque[tuple[int, Bypass]] = deque()
        self._not_told = 0
        self._next_ms = clock.monotonic_ms()

    def add(self, partition: int, bypasses: Iterable[Bypass]) -> None:
        for each in bypasses:
            if len(self._waiting) < WAITING_MAX:
                self._waiting.append((partition, each))
            else:
                self._not_told += 1

    def look(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if not self._waiting or now_ms < self._next_ms:
            return
        self._next_ms = now_ms + self._pace_ms
        for _ in range(min(LINES, len(self._waiting))):
            partition, told = self._waiting.popleft()
            event = "group_served_twice" if told.also_here else "group_used_at_upstream"
            logger.warning(event, group=told.group_id, clients=told.clients, partition=partition)
        if self._not_told and not self._waiting:
            logger.warning("groups_used_at_upstream_not_told", number=self._not_told)
            self._not_told = 0
