"""Refusals as lines of the log: who, from where, what, why. Bounded, so that who asks on and on fills no disk,
and one address does not crowd out the others."""

from __future__ import annotations

from collections import Counter

import structlog

from muster_coordinator.security.acls import Operation, ResourceType
from muster_coordinator.security.identity import Identity
from muster_coordinator.shard.ports import Clock

logger = structlog.get_logger(__name__)

LONGEST_NAME = 256
"""Characters of a name that a client chose: the id of a group may have 32 KiB."""


class AuditLog:
    """Logs at most `lines_per_second`, of one address at most a quarter of them. `refused`: requests by what they were
    about, whether logged or not."""

    def __init__(self, lines_per_second: int, clock: Clock) -> None:
        self.refused: Counter[str] = Counter()
        self._limit = lines_per_second
        self._of_one = max(1, lines_per_second // 4)
        self._clock = clock
        self._second = 0
        self._lines = 0
        self._by_host: Counter[str] = Counter()
        self._left_out = 0

    def tell(self, event: str, host: str, **fields: object) -> None:
        """One line, if there is room for it. What `fields` have of a client's choice is cut by the caller."""
        self.look()
        if self._lines >= self._limit or self._by_host[host] >= self._of_one:
            self._left_out += 1
            return
        self._lines += 1
        self._by_host[host] += 1
        logger.warning(event, client=host, **fields)

    def request_refused(
        self, who: Identity, request: object, operation: Operation, resource_type: ResourceType, name: str
    ) -> None:
        """`who` may not do this, and asked for it."""
        self.refused[resource_type.name] += 1
        self.tell(
            "request_refused",
            who.host,
            principal=who.principal[:LONGEST_NAME],
            request=type(request).__name__,
            operation=operation.name,
            resource=resource_type.name,
            name=name[:LONGEST_NAME],
        )

    def look(self) -> None:
        """Tell how much was left out, once the second is over."""
        second = self._clock.monotonic_ms() // 1000
        if second == self._second:
            return
        self._second = second
        self._lines = 0
        self._by_host.clear()
        left_out, self._left_out = self._left_out, 0
        if left_out and self._limit:
            logger.warning("refusals_not_logged", number=left_out)
