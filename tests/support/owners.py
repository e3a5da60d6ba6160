"""The owner logs of members of a group, and their comparison."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

Owned = tuple[str, int]
"""Topic and partition."""
Event = tuple[int, str, Owned]
"""(time in ms of this machine's clock, "given", "taken" or "lost", what)."""


class Owner(Protocol):
    """`gone_ms`: when it was killed, or was out of its group because it had paused."""

    events: list[Event]
    gone_ms: int | None


def owned_now(events: list[Event]) -> set[Owned]:
    owned: set[Owned] = set()
    for _, what, partition in tuple(events):
        (owned.add if what == "given" else owned.discard)(partition)
    return owned


def owned_twice(members: Sequence[Owner]) -> list[str]:
    """The cases in which a partition was given to a member of a group before another one had given it back, was
    fenced, or was gone."""
    ends_first = {"taken": 0, "lost": 0, "given": 1}
    events = sorted(
        [
            (at_ms, ends_first[what], what, partition, index)
            for index, member in enumerate(members)
            for at_ms, what, partition in member.events
        ]
        + [
            (member.gone_ms, 0, "taken", partition, index)
            for index, member in enumerate(members)
            if member.gone_ms is not None
            for partition in {partition for _, _, partition in member.events}
        ]
    )
    owners: dict[Owned, int] = {}
    wrong = []
    for at_ms, _, what, partition, index in events:
        if what != "given":
            if owners.get(partition) == index:
                del owners[partition]
        elif owners.setdefault(partition, index) != index:
            wrong.append(f"{partition} was given to member {index} at {at_ms}, and member {owners[partition]} has it")
    return wrong
