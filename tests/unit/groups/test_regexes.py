"""Regular expressions of consumer groups. Beside Kafka's library: tests/conformance/test_regexes.py."""

from __future__ import annotations

import pytest

from muster_coordinator.groups.consumer.regexes import error_of, resolve

TOPICS = ("orders", "orders-eu", "bills", "__consumer_offsets")


def test_whole_names_match() -> None:
    assert resolve(["orders", "ord.*", "rders", "nothing"], TOPICS) == {
        "orders": ("orders",),
        "ord.*": ("orders", "orders-eu"),
        "rders": (),
        "nothing": (),
    }


def test_topics_that_may_not_be_described_are_left_out_and_each_is_asked_for_once() -> None:
    asked: list[str] = []

    def may_describe(topic: str) -> bool:
        asked.append(topic)
        return topic != "orders-eu"

    assert resolve(["ord.*", "o.*"], TOPICS, may_describe) == {"ord.*": ("orders",), "o.*": ("orders",)}
    assert sorted(asked) == ["orders", "orders-eu"]


def test_bad_expression_is_told_as_kafka_tells_it_and_matches_nothing() -> None:
    assert error_of("ord.*") is None
    assert error_of("(ord") == "SubscribedTopicRegex `(ord` is not a valid regular expression: missing closing )."
    assert resolve(["(ord", "b.*"], TOPICS) == {"(ord": (), "b.*": ("bills",)}


@pytest.mark.parametrize("regex", ["(a*)*" * 20, "(x+x+)+y", "a{1000}" * 1000, "(" * 2000 + "a" + ")" * 2000])
def test_time_is_bounded_whatever_the_expression(regex: str) -> None:
    if error_of(regex) is None:
        assert resolve([regex], ["x" * 249] * 100)[regex] in ((), ("x" * 249,) * 100)
