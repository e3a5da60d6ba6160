"""The topics of the upstream, by its Metadata."""

from __future__ import annotations

from muster_coordinator.pod.mirroring.topics import UpstreamTopics
from muster_coordinator.requests.cluster import MetadataPartition, MetadataTopic

ID, OTHER = b"i" * 16, b"o" * 16


def topic(name: str | None, partitions: int, topic_id: bytes = ID, error_code: int = 0) -> MetadataTopic:
    listed = tuple([MetadataPartition(index, 0) for index in range(partitions)])
    return MetadataTopic(name, topic_id, error_code, False, listed)


def test_topics_are_known_by_name_and_by_the_id_of_the_upstream() -> None:
    topics = UpstreamTopics()
    assert (topics.known, topics.find("a"), topics.name_of(ID)) == (False, None, None)
    topics.take([topic("a", 3)])
    assert (topics.known, topics.find("a"), topics.name_of(ID)) == (True, (ID, 3), "a")
    assert (list(topics.names()[0]), topics.names()[1]) == (["a"], topics.version)


def test_version_changes_with_the_topics_alone() -> None:
    topics = UpstreamTopics()
    versions = []
    for listed in ([], [topic("a", 3)], [topic("a", 3)], [topic("a", 4)], [topic("a", 4, OTHER)], []):
        topics.take(listed)
        versions.append(topics.version)
    assert versions == [1, 2, 2, 3, 4, 5]
    assert topics.name_of(ID) is None


def test_topic_with_an_error_stays_as_it_was() -> None:
    topics = UpstreamTopics()
    topics.take([topic("a", 3), topic("b", 1, OTHER)])
    version = topics.version
    topics.take([topic("a", 0, ID, 5), topic("b", 1, OTHER), topic("new", 0, ID, 5)])
    assert topics.find("a") == (ID, 3)
    assert (topics.find("new"), topics.version) == (None, version)
