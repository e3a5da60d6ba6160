"""The topics to which consumers subscribe: they grow, and one appears, while things fail."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.injected import Injected

if TYPE_CHECKING:
    from tests.simulation.world import World

__all__ = ["FIRST_TOPIC", "GroupTopics", "TopicGrowth"]

MOST_PARTITIONS = 6
FIRST_TOPIC = "ct-a"
LATE_TOPIC = "ct-late"


class GroupTopics:
    """Implements `ConsumerTopics` for all pods. `counts`: topic -> partitions."""

    def __init__(self) -> None:
        self.version = 1
        self.counts = {FIRST_TOPIC: 3, "ct-b": 2}

    def find(self, topic: str) -> tuple[bytes, int] | None:
        count = self.counts.get(topic)
        return None if count is None else (_id_of(topic), count)

    def name_of(self, topic_id: bytes) -> str | None:
        name = topic_id.rstrip(b".").decode()
        return name if name in self.counts else None

    def places(self, topics: frozenset[str]) -> frozenset[tuple[str, int]]:
        """(topic, partition) of those of these topics that exist."""
        return frozenset((topic, index) for topic in topics for index in range(self.counts.get(topic, 0)))

    def grow(self, topic: str) -> None:
        self.counts[topic] = self.counts.get(topic, 0) + 1
        self.version += 1


class TopicGrowth:
    """Every `grow_every_ms`, in the mean, a topic gets a partition."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._again()

    def _again(self) -> None:
        world = self._world
        world.at(1 + int(world.random.expovariate(1 / world.options.grow_every_ms)), self._grow)

    def _grow(self) -> None:
        topics = self._world.topics
        topic = self._world.random.choice((*topics.counts, LATE_TOPIC))
        if not self._world.faults:
            return
        if topics.counts.get(topic, 0) < MOST_PARTITIONS:
            topics.grow(topic)
            self._world.injected[Injected.TOPIC_GREW] += 1
            self._world.log(f"{topic} has {topics.counts[topic]} partitions")
        self._again()


def _id_of(topic: str) -> bytes:
    return topic.encode().ljust(16, b".")
