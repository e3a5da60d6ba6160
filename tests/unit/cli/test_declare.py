from __future__ import annotations

import msgspec
import pytest

from muster_cli.declare import UpOptions, declared_cluster, declared_offsets_topic
from muster_cli.errors import CliUsageError
from muster_operator.store.port import ClusterRecords

PLAIN = UpOptions(
    pods=None, partitions=None, replication_factor=1, base_port=0, topics={}, any_topic=False, settings={}
)


def options(pods: int | None = None, partitions: int | None = None) -> UpOptions:
    return UpOptions(pods, partitions, 1, 0, {"orders": 6}, True, {"group.max.size": "5"})


def before(pods: int, partitions: int) -> ClusterRecords:
    chosen = options(pods, partitions)
    nothing = ClusterRecords()
    return ClusterRecords(declared_cluster(chosen, nothing), (declared_offsets_topic(chosen, nothing),))


def test_new_directory_gets_three_pods_and_fifty_partitions() -> None:
    assert declared_cluster(PLAIN, ClusterRecords()).spec.pods == 3
    assert declared_offsets_topic(PLAIN, ClusterRecords()).spec.partitions == 50


def test_used_directory_keeps_its_numbers_when_none_are_given() -> None:
    assert declared_cluster(PLAIN, before(2, 7)).spec.pods == 2
    assert declared_offsets_topic(PLAIN, before(2, 7)).spec.partitions == 7


def test_topics_and_settings_are_those_of_this_command_line() -> None:
    spec = declared_cluster(options(), before(3, 50)).spec
    assert [(topic.name, topic.partitions) for topic in spec.topics] == [("orders", 6)]
    assert (spec.any_topic, spec.settings) == (True, {"group.max.size": "5"})
    spec = declared_cluster(PLAIN, before(3, 50)).spec
    assert (spec.topics, spec.any_topic, spec.settings) == ((), False, {})


def test_more_pods_than_before_are_taken_and_fewer_refused() -> None:
    assert declared_cluster(options(pods=4), before(3, 50)).spec.pods == 4
    with pytest.raises(CliUsageError, match="has 3 pods"):
        declared_cluster(options(pods=2), before(3, 50))


def test_another_number_of_partitions_is_refused() -> None:
    with pytest.raises(CliUsageError, match="has 50 partitions"):
        declared_offsets_topic(options(partitions=51), before(3, 50))


def test_declared_objects_survive_the_way_through_json() -> None:
    cluster = declared_cluster(options(), ClusterRecords())
    assert msgspec.json.decode(msgspec.json.encode(cluster), type=type(cluster)) == cluster
