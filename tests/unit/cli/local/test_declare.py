from __future__ import annotations

from typing import Literal

import msgspec
import pytest

from muster_cli.errors import CliUsageError
from muster_cli.local.declare import DEFAULT_REPLICATION_FACTOR, UpOptions, declared_cluster, declared_topics
from muster_operator.store.port import ClusterRecords

PLAIN = UpOptions(
    pods=None,
    partitions=None,
    transaction_partitions=None,
    replication_factor=None,
    base_port=0,
    topics={},
    any_topic=False,
    settings={},
)


def options(
    pods: int | None = None,
    partitions: int | None = None,
    replication_factor: Literal[1, 3, 5] | None = None,
    transaction_partitions: int | None = None,
) -> UpOptions:
    return UpOptions(
        pods, partitions, transaction_partitions, replication_factor, 0, {"orders": 6}, True, {"group.max.size": "5"}
    )


def before(pods: int, partitions: int, replication_factor: Literal[1, 3, 5] | None = None) -> ClusterRecords:
    chosen = options(pods, partitions, replication_factor)
    nothing = ClusterRecords()
    return ClusterRecords(declared_cluster(chosen, nothing), declared_topics(chosen, nothing, pods))


def test_new_directory_gets_three_pods_and_fifty_partitions() -> None:
    assert declared_cluster(PLAIN, ClusterRecords()).spec.pods == 3
    assert declared_topics(PLAIN, ClusterRecords(), 3)[0].spec.partitions == 50


def test_used_directory_keeps_its_numbers_when_none_are_given() -> None:
    assert declared_cluster(PLAIN, before(2, 7)).spec.pods == 2
    assert declared_topics(PLAIN, before(2, 7), 2)[0].spec.partitions == 7


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
        declared_topics(options(partitions=51), before(3, 50), 3)


def test_transaction_topic_has_five_partitions_or_as_many_as_before_and_none_where_that_is_asked() -> None:
    def partitions(chosen: UpOptions, records: ClusterRecords) -> list[tuple[str, int]]:
        return [(each.spec.topic, each.layout.base) for each in declared_topics(chosen, records, 3)]

    both = [("__consumer_offsets", 0), ("__transaction_state", 500_000)]
    assert partitions(PLAIN, ClusterRecords()) == both
    assert partitions(options(transaction_partitions=0), ClusterRecords()) == both[:1]
    assert partitions(PLAIN, before(3, 50)) == both
    without = ClusterRecords(before(3, 50).cluster, before(3, 50).topics[:1])
    assert partitions(PLAIN, without) == both[:1]
    assert partitions(options(transaction_partitions=5), without) == both
    with pytest.raises(CliUsageError, match="transactional ids"):
        partitions(options(transaction_partitions=0), before(3, 50))


def test_replication_factor_is_the_one_asked_for_or_that_of_before_or_what_the_pods_allow() -> None:
    def factor(chosen: UpOptions, records: ClusterRecords, pods: int) -> int:
        return declared_topics(chosen, records, pods)[0].spec.replication_factor

    assert factor(options(replication_factor=3), ClusterRecords(), 3) == 3
    assert factor(PLAIN, before(3, 50, 3), 3) == 3
    assert factor(options(replication_factor=1), before(3, 50, 3), 3) == 1
    assert factor(PLAIN, ClusterRecords(), 3) == DEFAULT_REPLICATION_FACTOR
    assert factor(PLAIN, ClusterRecords(), 2) == 1
    with pytest.raises(CliUsageError, match="there are 3 pods"):
        factor(options(replication_factor=5), ClusterRecords(), 3)


def test_declared_objects_survive_the_way_through_json() -> None:
    cluster = declared_cluster(options(), ClusterRecords())
    assert msgspec.json.decode(msgspec.json.encode(cluster), type=type(cluster)) == cluster
