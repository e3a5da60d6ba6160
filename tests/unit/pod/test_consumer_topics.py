"""Declared topics as groups of the consumer protocol see them."""

from __future__ import annotations

from muster_coordinator.pod.cluster_view import ClusterView, topic_id
from muster_coordinator.pod.consumer_topics import DeclaredTopics
from muster_coordinator.podapi.image import DeclaredTopic, MetadataImage


def image(version: int, **topics: int) -> MetadataImage:
    declared = tuple([DeclaredTopic(name, count) for name, count in topics.items()])
    return MetadataImage(1, version, "c", (), 5, (), declared)


def test_topics_have_ids_names_and_counts_and_a_version_that_changes_with_them_alone() -> None:
    view = ClusterView()
    topics = DeclaredTopics(view)
    assert topics.find("t") is None
    view.update(image(1, t=2))
    assert topics.find("t") == (topic_id("t"), 2)
    assert topics.name_of(topic_id("t")) == "t"
    assert (list(topics.names()[0]), topics.names()[1]) == (["t"], topics.version)
    before = topics.version
    view.update(image(2, t=2))
    assert topics.version == before
    view.update(image(3, t=3))
    assert topics.version != before
