"""The declared topics, as groups of the consumer protocol see them: implements `ConsumerTopics`."""

from __future__ import annotations

from collections.abc import Iterable

from muster_coordinator.pod.cluster_view import ClusterView


class DeclaredTopics:
    """The topics that the cluster declares. In one that takes any topic the others have no id: members of groups of the
    consumer protocol get nothing of them."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view

    @property
    def version(self) -> int:
        return self._view.topics_version

    def find(self, topic: str) -> tuple[bytes, int] | None:
        count = self._view.topics.get(topic)
        return None if count is None else (self._view.id_of(topic), count)

    def name_of(self, topic_id: bytes) -> str | None:
        return self._view.name_of(topic_id)

    def names(self) -> tuple[Iterable[str], int]:
        """The names of all, and the version of that list."""
        return self._view.topics, self._view.topics_version
