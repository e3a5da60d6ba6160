"""The order of what logs say of transactions, and the latest cut that tears none and is not after a given one. Pure.

A transaction leaves, in this order: offsets in logs of groups, the decision in a log of transactions, markers in those
of groups, the completion in that of transactions; then its producer begins the next one. A cut that has one of these
must have those before it, or a restored coordinator would end the transaction in one partition only, or end with a
repeated marker what came after it.

Clients of transaction version 1 use one epoch for all transactions, and a marker may be written twice. Which decision a
marker follows is found by counting, from one cut that tears nothing to another one. Where two answers remain, the cut
keeps to both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

NEVER = 1 << 62
"""The offset of what the logs do not have."""
BEFORE = -1
"""The offset of what is before the first cut."""


class Edge(NamedTuple):
    """A cut that has the batch of partition `of` at `offset` must have that of `needs` at `needed`."""

    of: int
    offset: int
    needs: int
    needed: int


class Decision(NamedTuple):
    """`number`: the partition of transactions. `completed`: offset of the completion, or NEVER."""

    number: int
    offset: int
    epoch: int
    committed: bool
    completed: int


class Marker(NamedTuple):
    """`first`, `last`: the batches with offsets since the marker before; BEFORE: the first one is that old, or there
    is none. `decides`: there are some."""

    offset: int
    epoch: int
    committed: bool
    decides: bool
    first: int
    last: int


class UnknownOrderError(Exception):
    """The markers of a producer do not follow its decisions."""


@dataclass
class Written:
    """One producer in one partition of groups: its markers after the first cut, and offsets that have none yet."""

    markers: list[Marker] = field(default_factory=list)
    open: bool = False
    first: int = BEFORE
    last: int = BEFORE

    def offsets(self, offset: int) -> None:
        """A batch with offsets, after the first cut."""
        self.open = True
        if self.first == BEFORE:
            self.first = offset
        self.last = offset

    def marker(self, offset: int, epoch: int, committed: bool) -> None:
        """A marker of a coordinator, after the first cut."""
        self.markers.append(Marker(offset, epoch, committed, self.open, self.first, self.last))
        self.open, self.first, self.last = False, BEFORE, BEFORE


def edges(group: int, written: Written, decisions: Sequence[Decision]) -> Iterator[Edge]:
    """The order of one producer in the partition `group`. `decisions`: those with this partition, from the first one
    on whose completion the first cut does not have. Raises UnknownOrderError."""
    pending = bool(decisions) and decisions[0].offset == BEFORE
    possible = [{-1, 0} if pending else {-1}]  # the decision of what the first cut has last
    possible += _followed(written.markers, decisions, possible[0])
    found, after_last = written.markers, {each + 1 for each in possible[-1]}
    last_marker: dict[int, int] = {}
    for marker, indexes in zip(found, possible[1:], strict=True):
        newest = decisions[max(indexes)]
        yield Edge(group, marker.offset, newest.number, newest.offset)
        for index in indexes:
            last_marker[index] = marker.offset
            if marker.last != BEFORE:
                yield Edge(decisions[index].number, decisions[index].offset, group, marker.last)
        yield from _began(group, marker.first, max(indexes), decisions)
    for index, offset in last_marker.items():
        yield Edge(decisions[index].number, decisions[index].completed, group, offset)
    if written.last != BEFORE:
        for index in after_last:
            if index < len(decisions) and decisions[index].offset != BEFORE:
                yield Edge(decisions[index].number, decisions[index].offset, group, written.last)
        yield from _began(group, written.first, max(after_last), decisions)


def _began(group: int, first: int, index: int, decisions: Sequence[Decision]) -> Iterator[Edge]:
    """Offsets of the transaction `index` come after the completion of the one before."""
    if first != BEFORE and index > 0:
        before = decisions[index - 1]
        yield Edge(group, first, before.number, before.completed)


def _followed(markers: Sequence[Marker], decisions: Sequence[Decision], before: set[int]) -> list[set[int]]:
    """The indexes of the decisions that each marker may follow. Each decision has one marker or more, in order; offsets
    before a marker say that it is the first one of its decision. Raises UnknownOrderError."""
    found, reached = [], before
    for marker in markers:
        steps = {each + 1 for each in reached} | (set() if marker.decides else reached)
        reached = {each for each in steps if 0 <= each < len(decisions) and _may_follow(marker, decisions[each])}
        found.append(reached)
    last = len(decisions) - 1
    ends = {last, last - 1} if decisions and decisions[-1].completed == NEVER else {last}
    if not reached & ends:
        raise UnknownOrderError
    if found:
        found[-1] &= ends
    for at in range(len(found) - 1, 0, -1):
        found[at - 1] = {
            each for each in found[at - 1] if each + 1 in found[at] or (each in found[at] and not markers[at].decides)
        }
    return found


def _may_follow(marker: Marker, decision: Decision) -> bool:
    """The first cut has all offsets of what it has the decision of."""
    if marker.first != BEFORE and decision.offset == BEFORE:
        return False
    return (marker.epoch, marker.committed) == (decision.epoch, decision.committed)


def untorn(cut: Mapping[int, int], floor: Mapping[int, int], order: Sequence[Edge]) -> dict[int, int] | None:
    """The latest ends of logs, by partition, that are not after those of `cut` and keep to `order`. None: that would
    be below `floor` in some partition."""
    found = dict(cut)
    left = [each for each in order if each.offset < cut[each.of] and each.needed >= floor[each.needs]]
    changed = True
    while changed:
        changed = False
        for each in left:
            if each.offset < found[each.of] and each.needed >= found[each.needs]:
                if each.offset < floor[each.of]:
                    return None
                found[each.of] = each.offset
                changed = True
    return found
