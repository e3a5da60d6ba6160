"""Decoding of resources, conditions by kstatus, durations and times."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from muster_operator.api.conditions import Condition, condition_status, with_condition, without_condition
from muster_operator.api.durations import format_time, parse_duration, parse_time
from muster_operator.api.models import CoordinatorCluster, OffsetsTopic


def cluster(**spec: Any) -> CoordinatorCluster:
    return msgspec.convert({"metadata": {"name": "a"}, "spec": spec}, CoordinatorCluster)


def test_cluster_without_spec_fields_has_the_schemas_defaults() -> None:
    spec = cluster().spec
    assert (spec.pods, spec.storage.size, spec.internal.port) == (3, "10Gi", 9092)
    assert (spec.failover.suspect_after, spec.any_topic, spec.suspend) == ("1s", False, False)


def test_unknown_fields_are_ignored() -> None:
    assert cluster(ofTheFuture=1).spec.pods == 3


@pytest.mark.parametrize(
    "spec", [{"pods": 0}, {"pods": "3"}, {"storage": {"size": "-1Gi"}}, {"failover": {"suspectAfter": "soon"}}]
)
def test_what_the_schema_refuses_does_not_decode(spec: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        cluster(**spec)


def test_topic_without_cluster_does_not_decode() -> None:
    with pytest.raises(msgspec.ValidationError, match="clusterRef"):
        msgspec.convert({"metadata": {"name": "t"}, "spec": {}}, OffsetsTopic)


def test_transition_time_changes_with_the_status_only() -> None:
    first = with_condition((), Condition("Ready", "False", "Placing"), "t1")
    assert with_condition(first, Condition("Ready", "False", "Placing"), "t2") == first
    (other_reason,) = with_condition(first, Condition("Ready", "False", "Electing"), "t2")
    assert (other_reason.reason, other_reason.last_transition_time) == ("Electing", "t1")
    (ready,) = with_condition(first, Condition("Ready", "True", "Led"), "t3")
    assert ready.last_transition_time == "t3"


def test_conditions_keep_their_order_and_absent_is_unknown() -> None:
    both = with_condition(
        with_condition((), Condition("Ready", "False", "x"), "t"), Condition("Stalled", "True", "x"), "t"
    )
    again = with_condition(both, Condition("Ready", "True", "y"), "t")
    assert [each.type for each in again] == ["Ready", "Stalled"]
    assert condition_status(without_condition(again, "Stalled"), "Stalled") == "Unknown"


@pytest.mark.parametrize(
    ("text", "seconds"), [("1s", 1.0), ("500ms", 0.5), ("1m30s", 90.0), ("0.5s", 0.5), ("1h", 3600.0)]
)
def test_duration_parses(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "1", "-1s", "1 s", "s", "1d", "1s\n"])
def test_wrong_duration_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        parse_duration(text)


def test_time_is_utc_in_whole_seconds() -> None:
    assert format_time(1_700_000_000.9) == "2023-11-14T22:13:20Z"
    assert parse_time("2023-11-14T22:13:20Z") == 1_700_000_000
    assert parse_time("2023-11-14T22:13:20.500000Z") == 1_700_000_000.5
