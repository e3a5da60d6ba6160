"""Of one group and partition: versions that were written, acknowledged and seen. Versions count up from 1; a negative
one deletes.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.simulation.world import Violation

__all__ = ["History", "Start"]


@dataclass(frozen=True)
class Start:
    """What was known when a request was made. ``era``: losses that a person had allowed by then."""

    known: int
    era: int


class History:
    def __init__(self, name: str) -> None:
        self.name = name
        self.tried = 0  # highest version that somebody tried to write
        self._known = 0  # highest that was acknowledged or read
        self._era = 0
        self._deleting: set[int] = {0}

    def start(self) -> Start:
        return Start(self._known, self._era)

    def tries(self, version: int) -> None:
        self.tried = max(self.tried, abs(version))
        if version < 0:
            self._deleting.add(-version)

    def acknowledged(self, version: int, start: Start) -> None:
        if start.era == self._era:
            self._known = max(self._known, abs(version))

    def read(self, version: int, start: Start) -> None:
        """``version`` 0: there was none."""
        if start.era != self._era:
            return
        if version == 0:
            if not any(start.known <= one <= self.tried for one in self._deleting):
                raise Violation(f"{self.name} is gone; version {start.known} was acknowledged or read before")
            return
        if version > self.tried:
            raise Violation(f"{self.name} shows version {version}, which nobody wrote")
        if version < start.known:
            raise Violation(f"{self.name} went back to {version}; {start.known} was acknowledged or read before")
        self._known = max(self._known, version)

    def forget(self) -> None:
        """A person allowed loss: anything that was written may be there, or gone."""
        self._known = 0
        self._era += 1
