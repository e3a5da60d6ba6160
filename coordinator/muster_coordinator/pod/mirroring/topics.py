"""The topics of the upstream, as groups of the consumer protocol see them: implements `ConsumerTopics`.

Behind a gateway clients have records, and so topics with their ids, from Kafka: an assignment has to name those.
"""

from __future__ import annotations

from collections.abc import Iterable

from muster_coordinator.requests.cluster import MetadataTopic


class UpstreamTopics:
    """The topics that a broker has listed last. `known`: one has, since this pod started."""

    def __init__(self) -> None:
        self.known = False
        self.version = 0
        self._found: dict[str, tuple[bytes, int]] = {}
        self._names: dict[bytes, str] = {}

    def take(self, topics: Iterable[MetadataTopic]) -> None:
        """Take a list of all topics. One that it has an error of stays as it was."""
        found: dict[str, tuple[bytes, int]] = {}
        for topic in topics:
            if topic.name is None:
                continue
            if not topic.error_code and isinstance(topic.partitions, tuple):
                found[topic.name] = (topic.topic_id, len(topic.partitions))
            elif topic.name in self._found:
                found[topic.name] = self._found[topic.name]
        if found != self._found or not self.known:
            self._found = found
            self._names = {topic_id: name for name, (topic_id, _) in found.items()}
            self.version += 1
        self.known = True

    def find(self, topic: str) -> tuple[bytes, int] | None:
        return self._found.get(topic)

    def count_of(self, topic: str) -> int:
        """The number of partitions of a topic; 0 if there is none."""
        found = self._found.get(topic)
        return found[1] if found is not None else 0

    def name_of(self, topic_id: bytes) -> str | None:
        return self._names.get(topic_id)

    def names(self) -> tuple[Iterable[str], int]:
        """The names of all, and the version of that list."""
        return self._found, self.version
