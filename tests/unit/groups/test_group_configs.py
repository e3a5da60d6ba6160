"""Configs of one group: what Kafka 4.3 takes and refuses, what they do, and that they stay. Messages are compared with
Kafka's by the conformance scripts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.groups.two_kinds import CONFIG, TwoKinds

from muster_coordinator.errors import ErrorCode
from muster_coordinator.requests import configs as f
from muster_coordinator.requests import groups as m

SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
ASSIGNMENT = "consumer.assignment.interval.ms"
SET, DELETE = f.AlterOperation.SET, f.AlterOperation.DELETE


class Configured(TwoKinds):
    def alter(self, *changes: tuple[str, str | None], group: str = "g", **fields: Any) -> f.AlteredResource:
        """None: the config is taken away."""
        made = [f.ConfigChange(name, DELETE if value is None else SET, value) for name, value in changes]
        response = self.send(f.AlterGroupConfigsRequest(group, tuple(made), **fields)).response
        assert isinstance(response, f.AlteredResource)
        return response

    def shown(self, group: str = "g", **fields: Any) -> dict[str, f.DescribedConfig]:
        response = self.send(f.DescribeGroupConfigsRequest(group, **fields)).response
        assert isinstance(response, f.DescribedResource)
        assert response.error_code == 0
        return {each.name: each for each in response.configs}


def values(harness: Configured) -> list[tuple[str | None, int]]:
    return [(each.value, each.source) for each in harness.shown().values()]


DEFAULTS = [("45000", 5), ("5000", 5), ("0", 4)]


def test_configs_are_set_shown_and_taken_away() -> None:
    harness = Configured()
    assert values(harness) == DEFAULTS
    assert harness.alter((SESSION, "50000"), (HEARTBEAT, " 6000 ")).error_code == 0
    assert values(harness) == [("50000", 8), ("6000", 8), ("0", 4)]
    assert harness.shown(keys=(HEARTBEAT, "other")).keys() == {HEARTBEAT}
    synonyms = harness.shown(include_synonyms=True)[SESSION].synonyms
    assert [(each.name, each.value, each.source) for each in synonyms] == [
        (SESSION, "50000", 8),
        ("group.consumer.session.timeout.ms", "45000", 5),
    ]
    assert harness.shown(include_documentation=True)[SESSION].documentation
    assert harness.alter((SESSION, None), (HEARTBEAT, None)).error_code == 0
    assert values(harness) == DEFAULTS


def test_configs_that_are_not_named_are_taken_away_where_all_are_replaced() -> None:
    harness = Configured()
    harness.alter((SESSION, "50000"), (HEARTBEAT, "6000"))
    assert harness.alter((HEARTBEAT, "7000"), replaces=True, validate_only=True).error_code == 0
    assert harness.alter((HEARTBEAT, "7000"), ("nonsense", "1"), replaces=True).error_code == ErrorCode.INVALID_CONFIG
    assert values(harness) == [("50000", 8), ("6000", 8), ("0", 4)], "refused, and only validated"
    assert harness.alter((HEARTBEAT, "7000"), replaces=True).error_code == 0
    assert values(harness) == [("45000", 5), ("7000", 8), ("0", 4)]
    assert harness.restored().durable_state().own_configs == {"g": {HEARTBEAT: 7_000}}
    assert harness.alter(replaces=True).error_code == 0
    assert values(harness) == DEFAULTS
    assert harness.restored().durable_state().own_configs == {}


def test_replaced_configs_need_not_go_with_what_was_set_before() -> None:
    bounds = replace(CONFIG, session_timeout_ms=12_000, min_session_timeout_ms=6_000)
    harness = Configured(consumer_config=bounds)
    assert harness.alter((HEARTBEAT, "11000")).error_code == 0
    assert harness.alter((SESSION, "10000")).error_code == ErrorCode.INVALID_CONFIG, "not above the heartbeat interval"
    assert harness.alter((SESSION, "10000"), replaces=True).error_code == 0
    assert harness.coordinator.durable_state().own_configs == {"g": {SESSION: 10_000}}


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ("4.3", f"{HEARTBEAT} must be greater than or equal to group.consumer.min.heartbeat.interval.ms"),
        ("4.4", f"{HEARTBEAT} must be in the range 5000 to 15000 inclusive."),
    ],
)
def test_value_out_of_bounds_is_refused_in_the_words_of_the_release(version: str, message: str) -> None:
    harness = Configured(consumer_config=replace(CONFIG, kafka_version=version))
    altered = harness.alter((HEARTBEAT, "4999"))
    assert (altered.error_code, altered.error_message) == (ErrorCode.INVALID_CONFIG, message)
    assert harness.alter((HEARTBEAT, "5000")).error_code == harness.alter((HEARTBEAT, "15000")).error_code == 0
    assert harness.alter((HEARTBEAT, "15001")).error_code == ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize("digit", ["1", "x"])
def test_value_that_is_too_long_for_a_number_is_refused(digit: str) -> None:
    harness = Configured()
    altered = harness.alter((SESSION, digit * 5_000))
    assert altered.error_code == ErrorCode.INVALID_CONFIG
    assert altered.error_message is not None
    assert digit * 5_000 in altered.error_message
    altered = harness.alter((SESSION, digit * 32_767))
    assert (altered.error_code, altered.error_message) == (ErrorCode.UNKNOWN_SERVER_ERROR, None)


def test_groups_with_configs_are_listed_whether_they_exist_or_not() -> None:
    harness = Configured()
    harness.alter((SESSION, "50000"))
    harness.alter((HEARTBEAT, "6000"), group="h")
    harness.alter((HEARTBEAT, "6000"), group="only validated", validate_only=True)

    def listed() -> set[str]:
        response = harness.send(f.ListConfigResourcesRequest()).response
        assert isinstance(response, f.ListConfigResourcesResponse)
        assert {each.resource_type for each in response.resources} <= {f.ConfigResourceType.GROUP}
        return {each.name for each in response.resources}

    assert listed() == {"g", "h"}
    harness.alter((SESSION, None))
    assert listed() == {"h"}


def test_members_are_held_to_the_configs_of_their_group() -> None:
    harness = Configured()
    assert harness.join_consumer().heartbeat_interval_ms == 5_000
    harness.alter((SESSION, "60000"), (HEARTBEAT, "7000"))
    assert harness.beat("a", 2).heartbeat_interval_ms == 7_000
    harness.advance(59_999)
    assert harness.coordinator.gauges["consumer_groups", "Stable"] == 1
    harness.advance(1)
    assert harness.coordinator.gauges["consumer_groups", "Empty"] == 1


def test_assignments_keep_the_interval_of_their_group() -> None:
    harness = Configured()
    harness.alter((ASSIGNMENT, "10000"))
    assert harness.join_consumer("a").assignment
    assert harness.join_consumer("b").member_epoch == 2
    harness.advance(10_000)
    assert harness.beat("b", 2).member_epoch == 3


def test_configs_outlive_failover_checkpoint_and_their_group() -> None:
    harness = Configured()
    harness.alter((SESSION, "60000"))
    harness.join_consumer()
    harness.beat("a", -1)
    assert harness.send(m.DeleteGroupRequest("g")).response.error_code == 0
    for coordinator in (harness.restored(), harness.coordinator):
        assert coordinator.durable_state().own_configs == {"g": {SESSION: 60_000}}
        assert coordinator.key_count == 0
    harness.reload()
    assert harness.shown()[SESSION].value == "60000"
    harness.join_consumer()
    harness.reload()
    harness.advance(59_999)
    assert harness.coordinator.gauges["consumer_groups", "Stable"] == 1


def test_classic_group_stays_one_whatever_its_configs() -> None:
    harness = Configured()
    harness.stable_group("g")
    before = harness.coordinator.durable_state().groups
    harness.alter((SESSION, "60000"))
    harness.reload()
    assert harness.coordinator.durable_state().groups == before != {}
    assert harness.coordinator.durable_state().consumers == {}


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("share.session.timeout.ms", "50000", ErrorCode.INVALID_CONFIG),
        (SESSION, "x", ErrorCode.INVALID_CONFIG),
        (SESSION, str(2**31), ErrorCode.INVALID_CONFIG),
        (SESSION, "44999", ErrorCode.INVALID_CONFIG),
        (SESSION, "45000", ErrorCode.NONE),
        (SESSION, "60000", ErrorCode.NONE),
        (SESSION, "60001", ErrorCode.INVALID_CONFIG),
        (HEARTBEAT, "4999", ErrorCode.INVALID_CONFIG),
        (HEARTBEAT, "15000", ErrorCode.NONE),
        (HEARTBEAT, "15001", ErrorCode.INVALID_CONFIG),
        (ASSIGNMENT, "-1", ErrorCode.INVALID_CONFIG),
        (ASSIGNMENT, "15001", ErrorCode.INVALID_CONFIG),
    ],
)
def test_values_are_bounded(name: str, value: str, code: ErrorCode) -> None:
    harness = Configured()
    refused = harness.alter((ASSIGNMENT, "5"), (name, value))
    assert refused.error_code == code
    assert (values(harness) == DEFAULTS) == bool(code), "all changes, or none"


def test_session_is_longer_than_the_interval() -> None:
    harness = Configured(consumer_config=replace(CONFIG, min_session_timeout_ms=1))
    assert harness.alter((SESSION, "5000")).error_code == ErrorCode.INVALID_CONFIG
    assert harness.alter((SESSION, "5001")).error_code == 0


def test_value_beyond_later_bounds_counts_as_the_bound() -> None:
    harness = Configured()
    harness.alter((SESSION, "60000"))
    harness.consumer_config = replace(CONFIG, max_session_timeout_ms=50_000)
    harness.reload()
    harness.join_consumer()
    harness.advance(50_000)
    assert harness.coordinator.gauges["consumer_groups", "Empty"] == 1
    assert harness.shown()[SESSION].value == "60000"
