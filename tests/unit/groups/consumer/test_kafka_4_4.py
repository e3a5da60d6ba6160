"""What Kafka 4.4 does otherwise than 4.3 in groups of the consumer protocol (`muster.kafka.version`)."""

from __future__ import annotations

import pytest
from tests.unit.groups.consumer.consumer_harness import ConsumerHarness

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.consumer.config import ConsumerGroupConfig, KafkaVersion
from muster_coordinator.settings_by_name import SettingsError, parse_settings

STAYS_AWAY = -2


def harness(version: str, max_size: int = 10) -> ConsumerHarness:
    return ConsumerHarness(
        ConsumerGroupConfig(kafka_version=version, max_size=max_size, assignment_interval_ms=0), t=2, u=2
    )


@pytest.mark.parametrize(("version", "error"), [("4.3", ErrorCode.GROUP_MAX_SIZE_REACHED), ("4.4", ErrorCode.NONE)])
def test_static_member_comes_back_into_a_full_group_since_4_4(version: str, error: ErrorCode) -> None:
    """[KAFKA-20601]"""
    h = harness(version, max_size=1)
    h.join("a", "t", instance_id="i")
    h.leave("a", STAYS_AWAY, instance_id="i")
    assert h.join("b", "t", instance_id="i").error_code == error
    assert len(h.group.members) == 1


def test_full_group_of_4_4_refuses_new_instances_and_those_not_released() -> None:
    h = harness("4.4", max_size=1)
    h.join("a", "t", instance_id="i")
    assert h.join("b", "t", instance_id="j").error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert h.join("b", "t").error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert h.join("b", "t", instance_id="i").error_code == ErrorCode.UNRELEASED_INSTANCE_ID


@pytest.mark.parametrize(("version", "by"), [("4.3", 0), ("4.4", 1)])
def test_another_preferred_assignor_bumps_the_epoch_since_4_4(version: str, by: int) -> None:
    """[KAFKA-20434]"""
    h = harness(version)
    epoch = h.join("a", "t", "u", server_assignor="uniform").member_epoch
    assert h.beat("a", epoch, server_assignor="range").member_epoch == epoch + by
    assert (h.group.epoch, h.group.target_epoch) == (epoch + by, epoch + by)


def test_static_member_that_comes_back_with_another_assignor_bumps_the_epoch() -> None:
    """[KAFKA-20434]"""
    h = harness("4.4")
    epoch = h.join("a", "t", instance_id="i", server_assignor="uniform").member_epoch
    h.leave("a", STAYS_AWAY, instance_id="i")
    assert h.join("b", "t", instance_id="i", server_assignor="range").member_epoch == epoch + 1


def test_assignor_of_a_minority_bumps_nothing() -> None:
    h = harness("4.4")
    for member_id in ("a", "b", "c"):
        epoch = h.join(member_id, "t", server_assignor="uniform").member_epoch
    h.beat("c", epoch, server_assignor="range")
    assert h.group.epoch == epoch


@pytest.mark.parametrize(("version", "target_epoch"), [("4.3", 2), ("4.4", 3)])
def test_assignment_epoch_of_an_emptied_group_follows_since_4_4(version: str, target_epoch: int) -> None:
    """[KAFKA-20442]"""
    h = harness(version)
    h.join("a", "t")
    h.leave("a")
    assert (h.group.epoch, h.group.target_epoch) == (3, target_epoch)


def test_assignment_epoch_of_a_group_that_keeps_a_member_waits_for_it() -> None:
    h = harness("4.4")
    h.join("a", "t")
    h.join("b", "t")
    h.leave("a")
    assert (h.group.epoch, h.group.target_epoch) == (4, 3)


def test_version_is_a_setting_and_an_unknown_one_is_refused() -> None:
    assert parse_settings({}).consumers.set_release is None
    assert parse_settings({"muster.kafka.version": "4.4"}).consumers.set_release is KafkaVersion.KAFKA_4_4
    with pytest.raises(SettingsError, match=r"muster\.kafka\.version.*4\.3, 4\.4"):
        parse_settings({"muster.kafka.version": "4.5"})


@pytest.mark.parametrize(
    ("setting", "upstream", "follows"),
    [
        ("", KafkaVersion.KAFKA_4_3, False),
        ("", KafkaVersion.KAFKA_4_4, True),
        ("4.3", KafkaVersion.KAFKA_4_4, False),
        ("4.4", KafkaVersion.KAFKA_4_3, True),
    ],
)
def test_setting_counts_before_the_upstream(setting: str, upstream: KafkaVersion, follows: bool) -> None:
    h = ConsumerHarness(ConsumerGroupConfig(kafka_version=setting))
    h.announced = upstream
    assert h.tables.follows_4_4 is follows


def test_release_that_changes_under_a_group_counts_from_then_on() -> None:
    h = harness("", max_size=1)
    h.join("a", "t", instance_id="i")
    h.leave("a", STAYS_AWAY, instance_id="i")
    assert h.join("b", "t", instance_id="i").error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    h.announced = KafkaVersion.KAFKA_4_4
    epoch = h.join("b", "t", instance_id="i", server_assignor="uniform").member_epoch
    assert epoch > 0
    assert h.beat("b", epoch, server_assignor="range").member_epoch == epoch + 1
    h.announced = KafkaVersion.KAFKA_4_3
    assert h.beat("b", epoch + 1, server_assignor="uniform").member_epoch == epoch + 1
    h.leave("b")
    assert h.group.target_epoch == h.group.epoch - 1
