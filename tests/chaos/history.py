"""What a load saw: every acknowledged commit and every fetch of each group, with times and pods.

Times are seconds of this machine's monotonic clock, which all its processes share. Pods are indexes into
`History.pods`. A group has one commit under way at a time, so its commits are in order, and so are its fetches.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

OFFSETS_PER_GROUP = 1_000_000_000
"""Group n commits offsets from n times this number on: an offset of another group is known at sight."""


class Fetch(msgspec.Struct, array_like=True):
    """An answered OffsetFetch; `offset` is -1 when the coordinator knew none."""

    sent: float
    answered: float
    offset: int
    pod: int
    last_sent: int
    """The highest offset that the group had sent when the answer came."""
    final: bool = False


class Abandoned(msgspec.Struct, array_like=True):
    """A commit whose connection was given up while it waited for the answer: it may still be carried out."""

    offset: int
    pod: int
    at: float


class GroupHistory(msgspec.Struct):
    """`offsets`, `sent`, `acked` and `pods` have one entry for each acknowledged commit.

    `coordinators`: (time, pod) of each connection that was made to commit on. `refusals`: how often each error code
    was answered.
    """

    name: str
    first_offset: int
    last_sent: int
    offsets: list[int] = []
    sent: list[float] = []
    acked: list[float] = []
    pods: list[int] = []
    fetches: list[Fetch] = []
    abandoned: list[Abandoned] = []
    coordinators: list[tuple[float, int]] = []
    refusals: dict[int, int] = {}

    def coordinator_at(self, moment: float) -> int:
        """The pod that the group committed to at that moment; -1: none yet."""
        return next((pod for at, pod in reversed(self.coordinators) if at <= moment), -1)


class History(msgspec.Struct):
    """A whole run. `lags`: (time, seconds) of the load's own event loop being late, which is no fault of a pod."""

    pods: list[str]
    groups: list[GroupHistory]
    interval_s: float
    lags: list[tuple[float, float]] = []

    def write(self, path: Path) -> None:
        path.write_bytes(msgspec.json.encode(self))

    @classmethod
    def read(cls, path: Path) -> History:
        """Raises OSError, msgspec.DecodeError."""
        return msgspec.json.decode(path.read_bytes(), type=cls)
