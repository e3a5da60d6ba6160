"""The groups of one partition that have offsets which Kafka does not have, for one leadership of it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from muster_coordinator.pod.mirroring.followed import Followed
from muster_coordinator.pod.mirroring.writing.kafka import Producer

UNKNOWN = -1


@dataclass
class Refused:
    """The reason why Kafka takes no offsets of a group, and since when (monotonic ms)."""

    reason: str
    since_ms: int
    has_members: bool


class PartitionWrites:
    """`followed`: of one leadership. A new leader takes all groups that have moved for changed."""

    def __init__(self, followed: Followed, now_ms: int) -> None:
        self.followed = followed
        self.refused: dict[str, Refused] = {}
        self.writing = asyncio.Lock()
        """Held while something is written."""
        self.producer: Producer | None = None
        """None: somebody else's writes, or an own one without an answer, may still come to Kafka."""
        self.held: set[str] = set()
        """Groups on their way back, of which rounds write nothing: the way back does."""
        self._looked_ms = now_ms
        # Since when (monotonic ms) Kafka may lack something of a group.
        self._waiting = dict.fromkeys(self._at_muster(), UNKNOWN)
        self._again: dict[str, int] = {}  # the same of groups that have changed since they were taken in hand
        followed.machine.changed.clear()

    def _at_muster(self) -> list[str]:
        return [group for group, route in self.followed.machine.routes.by_group.items() if route.at_muster]

    def look(self, now_ms: int) -> None:
        """Take note of what has changed."""
        machine = self.followed.machine
        changed, machine.changed = machine.changed, set()
        for group in changed:
            if self.is_written(group):
                if group in self._waiting:
                    self._again.setdefault(group, self._looked_ms)
                self._waiting.setdefault(group, self._looked_ms)
            else:
                for groups in (self._waiting, self._again, self.refused):
                    groups.pop(group, None)
        self._looked_ms = now_ms

    def is_written(self, group_id: str) -> bool:
        """True if the group has moved to Muster. Those that were never Kafka's stay here."""
        route = self.followed.machine.routes.by_group.get(group_id)
        return route is not None and route.at_muster

    @property
    def waiting(self) -> tuple[str, ...]:
        return tuple(self._waiting)

    def taken(self, group_id: str) -> None:
        """The group is taken in hand: its offsets are about to be asked for. Only later changes count as new."""
        self._again.pop(group_id, None)

    def written(self, group_id: str) -> None:
        """Kafka has all that was committed here when the group was taken in hand."""
        self._waiting.pop(group_id, None)
        since_ms = self._again.pop(group_id, None)
        if since_ms is not None:
            self._waiting[group_id] = since_ms
        self.refused.pop(group_id, None)
        self.followed.machine.bypasses.quiet.discard(group_id)
        if self.followed.machine.groups.has_pending(group_id):
            self.followed.machine.changed.add(group_id)  # a marker names no group

    def refuse(self, group_id: str, reason: str, now_ms: int, *, has_members: bool) -> None:
        before = self.refused.get(group_id)
        goes_on = before is not None and before.has_members == has_members
        since_ms = before.since_ms if before is not None and goes_on else now_ms
        self.refused[group_id] = Refused(reason, since_ms, has_members)
        self.followed.machine.bypasses.quiet.discard(group_id)

    def unwritten_ms(self, group_id: str, now_ms: int) -> int:
        """The time (ms) for which something of the group may not have been at Kafka; 0: nothing; UNKNOWN: this leader
        has not compared yet."""
        since_ms = self._waiting.get(group_id)
        if since_ms is None:
            return now_ms - self._looked_ms if group_id in self.followed.machine.changed else 0
        return UNKNOWN if since_ms == UNKNOWN else now_ms - since_ms

    def longest_ms(self, now_ms: int) -> int:
        """The same of the group for which it is longest, as far as it is known."""
        groups = {*self._waiting, *self.followed.machine.changed}
        return max((self.unwritten_ms(group, now_ms) for group in groups if self.is_written(group)), default=0)
