"""The port through which groups of the consumer protocol know the topics that there are."""

from __future__ import annotations

from typing import Protocol


class ConsumerTopics(Protocol):
    @property
    def version(self) -> int:
        """Another number whenever a topic has come, gone or got more partitions."""
        ...

    def find(self, topic: str) -> tuple[bytes, int] | None:
        """(topic id, number of partitions); None: there is no such topic."""
        ...

    def name_of(self, topic_id: bytes) -> str | None:
        """The topic of this id; None: it is gone."""
        ...
