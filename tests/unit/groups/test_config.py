"""Defaults and Kafka's names of the settings, and the checks that need no group."""

from __future__ import annotations

from dataclasses import fields

import pytest
from tests.unit.groups.harness import Topics

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.config import GroupConfig
from muster_coordinator.groups.coordinator import GroupCoordinator
from muster_coordinator.requests import groups as m


def test_defaults_are_those_of_kafka() -> None:
    config = GroupConfig()
    named = {
        field.metadata["kafka"]: getattr(config, field.name) for field in fields(config) if field.metadata["kafka"]
    }
    assert named == {
        "group.min.session.timeout.ms": 6_000,
        "group.max.session.timeout.ms": 1_800_000,
        "group.initial.rebalance.delay.ms": 3_000,
        "group.max.size": 2_147_483_647,
        "offset.metadata.max.bytes": 4_096,
        "offsets.retention.minutes": 10_080,
        "offsets.retention.check.interval.ms": 600_000,
        "message.max.bytes": 1_048_588,
    }
    assert config.offsets_retention_ms == 7 * 24 * 3_600_000
    assert config.new_member_join_timeout_ms == 300_000


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_size": 0},
        {"offsets_retention_minutes": 0},
        {"min_session_timeout_ms": 10_000, "max_session_timeout_ms": 9_999},
        {"initial_rebalance_delay_ms": -1},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_impossible_setting_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        GroupConfig(**wrong)


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (m.HeartbeatRequest("", 1, "m", None), ErrorCode.INVALID_GROUP_ID),
        (m.LeaveGroupRequest("", ()), ErrorCode.INVALID_GROUP_ID),
        (m.OffsetDeleteRequest("", ()), ErrorCode.INVALID_GROUP_ID),
        (m.SyncGroupRequest("g", 1, "m", None, None, None, (), 5), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (
            m.JoinGroupRequest("g", 1, 1, "", None, "consumer", (), None, "c", "/h", 9),
            ErrorCode.INVALID_SESSION_TIMEOUT,
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_request_is_refused_even_while_the_partition_loads(request_: object, code: ErrorCode) -> None:
    coordinator = GroupCoordinator(GroupConfig(), Topics(), lambda: "x")
    response = coordinator.refuse(request_)
    assert response is not None
    assert response.error_code == code


@pytest.mark.parametrize(
    "request_",
    [
        m.HeartbeatRequest("g", 1, "m", None),
        m.OffsetFetchRequest("", None, -1, None, False),
        m.DeleteGroupRequest(""),
        m.DescribeGroupRequest("", 6),
        m.ListGroupsRequest(),
    ],
    ids=lambda value: type(value).__name__,
)
def test_request_that_depends_on_its_group_is_not_refused_early(request_: object) -> None:
    coordinator = GroupCoordinator(GroupConfig(), Topics(), lambda: "x")
    assert coordinator.refuse(request_) is None
