from __future__ import annotations

import pytest

from muster_cli.errors import CliUsageError
from muster_cli.local.command import front_of
from muster_cli.local.front import Pods
from muster_cli.local.options import mirror_settings, parse_settings, parse_topics
from muster_coordinator.outgoing.settings import OutgoingSettings
from muster_gateway.settings import parse_settings as parse_gateway_settings


def test_topics_with_partitions_are_read_in_order() -> None:
    assert parse_topics(["orders:6", "a.b-c_d:1"]) == {"orders": 6, "a.b-c_d": 1}


@pytest.mark.parametrize(
    "value", ["orders", "orders:", ":3", "orders:0", "orders:-1", "orders:x", "a b:1", "..:1", "orders:²"]
)
def test_topic_that_kafka_would_not_take_is_refused_with_the_value(value: str) -> None:
    with pytest.raises(CliUsageError, match="--topic"):
        parse_topics([value])


def test_topic_given_twice_is_refused() -> None:
    with pytest.raises(CliUsageError, match="twice"):
        parse_topics(["orders:1", "orders:2"])


def test_settings_come_back_as_texts_by_name() -> None:
    given = ["offsets.topic.segment.bytes = 4096", "connections.max.idle.ms=60000"]
    assert parse_settings(given) == {"offsets.topic.segment.bytes": "4096", "connections.max.idle.ms": "60000"}


def test_unknown_setting_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(CliUsageError, match=r"did you mean offsets\.topic\.segment\.bytes"):
        parse_settings(["offset.topic.segment.byte=4096"])


@pytest.mark.parametrize("value", ["max.connections", "=1", " =1", "max.connections=many", "max.connections=0"])
def test_setting_that_no_pod_would_take_is_refused(value: str) -> None:
    with pytest.raises(CliUsageError, match="--config"):
        parse_settings([value])


def test_an_upstream_is_mirrored_but_for_the_groups_that_the_gateway_gives_to_muster() -> None:
    assert mirror_settings(None, "a-") == []
    settings = parse_settings(mirror_settings("kafka-0:9092,kafka-1:9092", "a-,b-"))
    assert settings == {
        "muster.upstream.bootstrap": "kafka-0:9092,kafka-1:9092",
        "muster.upstream.served.groups": "a-,b-",
    }
    assert mirror_settings("kafka-0:9092", None)[1] == "muster.upstream.served.groups=*"
    assert mirror_settings("kafka-0:9092", "")[1] == "muster.upstream.served.groups="


@pytest.mark.parametrize(
    ("groups", "more", "expected"),
    [
        (None, (), ("*", "1")),
        ("a-,b-", (), ("a-,b-", "1")),
        ("", (), ("", "1")),
        ("a-", ("muster.upstream.served.groups=b-",), ("b-", "1")),
        ("a-", ("muster.upstream.bootstrap=",), ("a-", "0")),
    ],
    ids=["all", "some", "none", "others by --config", "not mirrored"],
)
def test_gateway_agrees_with_the_pods_on_groups_and_markers(
    groups: str | None, more: tuple[str, ...], expected: tuple[str, str]
) -> None:
    pods = parse_settings([*mirror_settings("kafka-0:9092", groups), *more])
    front = front_of("kafka-0:9092", groups, pods, 0)
    assert front is not None
    settings = front.settings(Pods("127.0.0.1:9093", ""), 29092)
    assert parse_gateway_settings(settings).upstream == "kafka-0:9092"
    assert (settings["muster.groups"], settings["muster.transactions"]) == expected


def test_gateway_logs_in_as_the_pods_that_mirror_the_cluster_do() -> None:
    asked = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.dir": "/account",
        "ssl.truststore.location": "/ca.crt",
    }
    more = [f"muster.upstream.{name}={value}" for name, value in asked.items()]
    pods = parse_settings([*mirror_settings("kafka-0:9092", "a-"), *more])
    front = front_of("kafka-0:9092", "a-", pods, 0)
    assert front is not None
    to_brokers = parse_gateway_settings(front.settings(Pods("127.0.0.1:9093", ""), 29092)).to_brokers
    assert to_brokers == OutgoingSettings("SASL_SSL", "PLAIN", "/account", "/ca.crt")


def test_groups_without_an_upstream_are_refused() -> None:
    with pytest.raises(CliUsageError, match="needs --upstream"):
        front_of(None, "a-", {}, 0)
