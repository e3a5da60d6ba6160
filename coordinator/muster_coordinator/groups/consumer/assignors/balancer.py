"""`Balancer`: whose turn it is to give a partition, and whose to take one."""

from __future__ import annotations

NOBODY = -1


class Balancer:
    """The members that are to be balanced, by the number of their partitions. Two ranges of them grow towards each
    other: [0, `_least_end`) at the level `_least_level` takes, [`_most_start`, `_most_end`) at the level `_most_level`
    gives. Behind `_most_end` stand members that have nothing to give.

    `sizes`: how many partitions each member has. The caller changes it as it moves partitions; a range is widened by
    those members only that have not been touched yet.
    """

    __slots__ = (
        "_least_end",
        "_least_level",
        "_least_next",
        "_members",
        "_most_end",
        "_most_level",
        "_most_next",
        "_most_start",
        "_sizes",
    )

    def __init__(self, sizes: list[int]) -> None:
        self._sizes = sizes
        self._members: list[int] = []
        self._least_end = self._least_level = self._least_next = 0
        self._most_start = self._most_end = self._most_level = self._most_next = 0

    def start(self, members: list[int]) -> int:
        """Begins with these members, at least one. Returns by how much the largest has more than the smallest."""
        sizes = self._sizes
        self._members = sorted(members, key=lambda member: (sizes[member], member))
        smallest, largest = sizes[self._members[0]], sizes[self._members[-1]]
        self._least_end = self._least_next = 0
        self._least_level = smallest - 1
        self._most_start = self._most_end = len(members)
        self._most_next = len(members) - 1
        self._most_level = largest + 1
        return largest - smallest

    def is_balanced(self) -> bool:
        return self._most_level - self._least_level <= 1

    def least(self) -> int:
        """The member that takes the next partition."""
        if self._least_next >= self._least_end:
            self._least_level += 1
            members, sizes = self._members, self._sizes
            while self._least_end < len(members) and sizes[members[self._least_end]] == self._least_level:
                self._least_end += 1
            self._least_next = 0
        self._least_next += 1
        return self._members[self._least_next - 1]

    def most(self) -> int:
        """The member that gives the next partition, or NOBODY."""
        if self._most_next < self._most_start:
            members, sizes = self._members, self._sizes
            if self._most_end <= self._most_start and self._most_start > 0:
                self._most_level = sizes[members[self._most_start - 1]]  # all of the range were excluded
            else:
                self._most_level -= 1
            while self._most_start > 0 and sizes[members[self._most_start - 1]] == self._most_level:
                self._most_start -= 1
            self._most_next = self._most_end - 1
        if self._most_next < 0:
            return NOBODY
        self._most_next -= 1
        return self._members[self._most_next + 1]

    def exclude_most(self) -> None:
        """The member that `most` gave has no partition to give."""
        at, last = self._most_next + 1, self._most_end - 1
        self._members[at], self._members[last] = self._members[last], self._members[at]
        self._most_end -= 1
