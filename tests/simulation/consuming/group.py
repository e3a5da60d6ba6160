"""One group of the new protocol as its members know it: who has which partition, and what was committed to each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from tests.simulation.consuming.log import ConsumerLog
from tests.simulation.history import History
from tests.simulation.world import Violation

if TYPE_CHECKING:
    from tests.simulation.cluster import Partition

__all__ = ["Group", "Place"]

Place = tuple[str, int]
"""(topic, partition)."""


class MemberOf(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def owned(self) -> set[Place]: ...

    @property
    def topics(self) -> frozenset[str]: ...

    @property
    def is_settled(self) -> bool:
        """It has joined, and nothing to give back."""
        ...


class Group:
    """A member has a partition from the answer that gave it until it says that it gave it back, leaves, is told that it
    is out, or ends. One that is removed meanwhile does not know: from the record on that removes it the partition is
    not its own any more."""

    def __init__(self, name: str, partition: Partition) -> None:
        self.name = name
        self.partition = partition
        self.members: list[MemberOf] = []
        self.joining: set[int] = set()  # identities of classic consumers whose JoinGroup waits for its answer
        self._holders: dict[Place, tuple[str, int]] = {}  # (member id, removals of it when it asked)
        self._histories: dict[Place, History] = {}
        self._processes: dict[str, list[str]] = {}  # instance id -> member ids that it had

    @property
    def log(self) -> ConsumerLog:
        return self.partition.consumers

    def history(self, place: Place) -> History:
        found = self._histories.get(place)
        if found is None:
            found = self._histories[place] = History(f"{self.name} {place[0]}-{place[1]}")
            self.partition.histories.append(found)
        return found

    def removals(self, member_id: str) -> int:
        """By records of groups of either kind."""
        return self.log.removals[self.name, member_id] + self.partition.members.removals[self.name, member_id]

    def takes(self, member_id: str, removals: int, places: Iterable[Place]) -> None:
        """By an answer to what it asked when it had been removed so often. One that was removed before the answer came
        has nothing by it."""
        if self.removals(member_id) != removals:
            return
        for place in sorted(places):
            holder = self._holders.get(place)
            if holder is not None and holder[0] != member_id and self.removals(holder[0]) == holder[1]:
                raise Violation(f"{self.name} gives {place} to {member_id}, and {holder[0]} has not given it back")
            self._holders[place] = member_id, removals

    def keeps(self, member_id: str, removals: int) -> None:
        """It is told that it is still a member."""
        for place, holder in self._holders.items():
            if holder[0] == member_id:
                self._holders[place] = member_id, removals

    def gives_back(self, member_id: str, places: Iterable[Place]) -> None:
        for place in places:
            if self._holders.get(place, ("", 0))[0] == member_id:
                del self._holders[place]

    def holder(self, place: Place) -> tuple[str, int] | None:
        """(member id, how often it had been removed when it asked) of who has it."""
        found = self._holders.get(place)
        return found if found is not None and self.removals(found[0]) == found[1] else None

    def places(self) -> list[Place]:
        """All that somebody has."""
        return sorted(place for place in self._holders if self.holder(place) is not None)

    def is_member(self, instance: str | None, member_id: str) -> None:
        """The log has it as the member of this instance."""
        if instance is not None:
            ids = self._processes.setdefault(instance, [])
            if member_id not in ids:
                ids.append(member_id)

    def formers(self, instance: str | None, member_id: str) -> list[str]:
        """The members of this instance before `member_id`, which is the present one."""
        ids = self._processes.get(instance or "", [])
        return ids[:-1] if ids and ids[-1] == member_id else []

    def pending(self) -> str:
        """What its members lack; "": each partition to which somebody subscribes has one owner, who does."""
        seen: dict[Place, str] = {}
        wanted: set[Place] = set()
        topics = self.partition.world.topics
        for member in self.members:
            if not member.is_settled:
                return f"{member.name} is not settled"
            wanted |= topics.places(member.topics)
            for place in sorted(member.owned):
                if place[0] not in member.topics:
                    return f"{member.name} has {place}, and does not subscribe to it"
                if place in seen:
                    return f"{member.name} and {seen[place]} have {place}"
                seen[place] = member.name
        missing = sorted(wanted - seen.keys())
        return f"nobody in {self.name} has {missing}" if missing else ""
