"""Of one group and partition: versions that were written, acknowledged and seen. Versions count up from 1; a negative
one deletes. A version of a transaction is hidden until its COMMIT marker is on its way, and for good after an ABORT.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.simulation.world import Violation

__all__ = ["FenceHistory", "History", "Start"]


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
        self._leaving: set[int] = {0}  # of those, what deletes the whole group
        self._pending: set[int] = set()  # of transactions without a marker
        self._aborted: set[int] = set()
        self._is_unsure = False  # a marker may come late

    def start(self) -> Start:
        return Start(self._known, self._era)

    def tries(self, version: int) -> None:
        self.tried = max(self.tried, abs(version))
        if version < 0:
            self._deleting.add(-version)

    def tries_to_leave(self, version: int) -> None:
        """``version`` deletes the whole group. Without offsets it may stay for a while."""
        self.tries(-version)
        self._leaving.add(version)

    def acknowledged(self, version: int, start: Start) -> None:
        if start.era == self._era:
            self._known = max(self._known, abs(version))

    def read(self, version: int, start: Start) -> None:
        """``version`` 0: there was none."""
        if start.era != self._era:
            return
        if version == 0:
            if not self._may_be_gone(start):
                raise Violation(f"{self.name} is gone; version {start.known} was acknowledged or read before")
            return
        if version > self.tried:
            raise Violation(f"{self.name} shows version {version}, which nobody wrote")
        if version < start.known:
            raise Violation(f"{self.name} went back to {version}; {start.known} was acknowledged or read before")
        if version in self._pending or version in self._aborted:
            raise Violation(f"{self.name} shows version {version} of a transaction that was not committed")
        self._known = max(self._known, version)

    def described(self, is_there: bool, start: Start) -> None:
        """Whether the group that has this one key is there: described, or among those that are listed."""
        if start.era != self._era:
            return
        if not is_there and not self._may_be_gone(start):
            raise Violation(f"{self.name} is not described; version {start.known} was acknowledged or read before")
        if is_there and not any(one not in self._leaving for one in range(start.known, self.tried + 1)):
            raise Violation(f"{self.name} is described; its deletion {start.known} was acknowledged before")

    def _may_be_gone(self, start: Start) -> bool:
        return any(start.known <= one <= self.tried for one in self._deleting)

    # -- transactions -------------------------------------------------------------------------------------------------

    def prepares(self, version: int) -> None:
        """In a transaction."""
        self.tries(version)
        if not self._is_unsure:
            self._pending.add(version)

    def ends(self, *, commits: bool) -> None:
        """A marker is on its way."""
        self._is_unsure |= commits
        if commits:
            self._pending.clear()

    def ended(self, *, commits: bool) -> None:
        """A marker was answered, and no other one is on its way that was not."""
        self._is_unsure = False
        if not commits:
            self._aborted |= self._pending
            self._pending.clear()

    def forget(self) -> None:
        """A person allowed loss: anything that was written may be there, or gone."""
        self._known = 0
        self._era += 1
        self._pending.clear()
        self._aborted.clear()


class FenceHistory(History):
    """The steps of one partition through re-shards: 2n is "closed by re-shard n", 2n + 1 "opened by it"."""

    @property
    def closed_from(self) -> int:
        """The step that closed it, if no opening was tried since; else -1."""
        return self.tried if self.tried == self._known and self.tried % 2 == 0 and self.tried > 0 else -1

    def answers(self, response: object, closed_from: int) -> None:
        """A client gets ``response`` to a request that it made at the step ``closed_from``."""
        if response is not None and closed_from >= 0 and self.closed_from == closed_from:
            raise Violation(f"{self.name} answers {response} although it is closed by step {closed_from}")
