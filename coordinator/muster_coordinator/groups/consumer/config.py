"""Settings of groups of the consumer protocol, under Kafka's names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property

from muster_coordinator.groups.consumer.assignors.table import ASSIGNORS


def _setting(default: int, kafka_name: str | None, minimum: int = 1) -> int:
    value: int = field(default=default, metadata={"kafka": kafka_name, "minimum": minimum})
    return value


def parse_assignors(text: str) -> tuple[str, ...]:
    """Names between commas, each of them one of ASSIGNORS. Raises ValueError."""
    names = tuple([part.strip() for part in text.split(",") if part.strip()])
    unknown = [name for name in names if name not in ASSIGNORS]
    if unknown or not names or len(set(names)) < len(names):
        raise ValueError(f"{text!r} is not one or more of {', '.join(ASSIGNORS)}, each once")
    return names


class MigrationPolicy(Enum):
    """The policies for making a group of one protocol one of the other while it has members, by Kafka's names."""

    BIDIRECTIONAL = "bidirectional"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    DISABLED = "disabled"

    @property
    def upgrades(self) -> bool:
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE)

    @property
    def downgrades(self) -> bool:
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.DOWNGRADE)


def parse_policy(text: str) -> MigrationPolicy:
    """Case does not matter, as in Kafka. Raises ValueError."""
    try:
        return MigrationPolicy(text.lower())
    except ValueError:
        raise ValueError(f"{text!r} is not one of {', '.join([each.value for each in MigrationPolicy])}") from None


class KafkaVersion(Enum):
    """The releases of Kafka whose rules groups can follow, where they differ."""

    KAFKA_4_3 = "4.3"
    KAFKA_4_4 = "4.4"


def parse_kafka_version(text: str) -> KafkaVersion | None:
    """None: the text is empty. Raises ValueError."""
    try:
        return KafkaVersion(text) if text else None
    except ValueError:
        raise ValueError(f"{text!r} is not one of {', '.join([each.value for each in KafkaVersion])}") from None


def _text(default: str, kafka_name: str, check: Callable[[str], object]) -> str:
    value: str = field(default=default, metadata={"kafka": kafka_name, "check": check})
    return value


@dataclass(frozen=True)
class ConsumerGroupConfig:
    """Groups of the consumer protocol (`group.protocol=consumer`, KIP-848). Defaults are those of Kafka 4.3."""

    session_timeout_ms: int = _setting(45_000, "group.consumer.session.timeout.ms")
    """A member that sends no heartbeat for this long (ms) is out of its group. Kafka refuses less than 45000 unless
    another setting allows it."""

    min_session_timeout_ms: int = _setting(45_000, "group.consumer.min.session.timeout.ms")
    """Least `consumer.session.timeout.ms` (ms) of a group's own configs."""

    max_session_timeout_ms: int = _setting(60_000, "group.consumer.max.session.timeout.ms")
    """Greatest `consumer.session.timeout.ms` (ms) of a group's own configs."""

    heartbeat_interval_ms: int = _setting(5_000, "group.consumer.heartbeat.interval.ms")
    """Interval (ms) at which members are told to send heartbeats."""

    min_heartbeat_interval_ms: int = _setting(5_000, "group.consumer.min.heartbeat.interval.ms")
    """Least `consumer.heartbeat.interval.ms` (ms) of a group's own configs."""

    max_heartbeat_interval_ms: int = _setting(15_000, "group.consumer.max.heartbeat.interval.ms")
    """Greatest `consumer.heartbeat.interval.ms` (ms) of a group's own configs."""

    max_size: int = _setting(2_147_483_647, "group.consumer.max.size")
    """Members that one group may have; a further one gets GROUP_MAX_SIZE_REACHED."""

    assignors: str = _text(",".join(ASSIGNORS), "group.consumer.assignors", parse_assignors)
    """Assignors that members may ask for, between commas: uniform, range. The first is taken when none asks."""

    migration_policy: str = _text(MigrationPolicy.BIDIRECTIONAL.value, "group.consumer.migration.policy", parse_policy)
    """The policy for members of both protocols in one group, so that an application is moved while it runs.
    `upgrade`: a group of classic consumers becomes a consumer group when a member of the consumer protocol joins.
    `downgrade`: it becomes a classic one when the last such member leaves. `bidirectional`: both. `disabled`: neither,
    and classic members are refused by a consumer group that has members."""

    assignment_interval_ms: int = _setting(1_000, "group.consumer.assignment.interval.ms", 0)
    """Least time (ms) between two target assignments of a group (KIP-1263). 0: none."""

    min_assignment_interval_ms: int = _setting(0, "group.consumer.min.assignment.interval.ms", 0)
    """Least `consumer.assignment.interval.ms` (ms) of a group's own configs."""

    max_assignment_interval_ms: int = _setting(15_000, "group.consumer.max.assignment.interval.ms", 0)
    """Greatest `consumer.assignment.interval.ms` (ms) of a group's own configs."""

    regex_refresh_interval_ms: int = _setting(600_000, "group.consumer.regex.refresh.interval.ms", 10_000)
    """Age (ms) that the topics of a regular expression may reach before they are looked for again; new topics are found
    sooner."""

    kafka_version: str = _text("", "muster.kafka.version", parse_kafka_version)
    """The Kafka release, 4.3 or 4.4, whose rules these groups follow. Empty: that of the upstream, the lowest that its
    brokers announce ([ADR 58](adr/0058-groups-follow-the-release-of-the-upstream.md)); without an upstream 4.3. With
    4.4 another preferred assignor starts a new assignment (KAFKA-20434), the assignment epoch of a group that gets
    empty is its group epoch (KAFKA-20442), and a static consumer comes back into a full group (KAFKA-20601); a classic
    consumer whose subscription cannot be read is told INCONSISTENT_GROUP_PROTOCOL. With 4.4, and not where it is empty,
    clients are also served what 4.4 added: TxnOffsetCommit 6, DeleteGroups 3 and ApiVersions 5, but not through a
    gateway."""

    regex_refresh_min_interval_ms: int = _setting(10_000, None)
    """Least time (ms) between two searches for the topics of a group's regular expressions: each goes through all
    names; a constant in Kafka."""

    def __post_init__(self) -> None:
        for setting in OWN_CONFIGS.values():
            least, greatest = bounds_of(self, setting)
            if least > greatest:
                raise ValueError(f"min_{setting} ({least}) is above max_{setting} ({greatest})")

    @cached_property
    def policy(self) -> MigrationPolicy:
        return parse_policy(self.migration_policy)

    @cached_property
    def set_release(self) -> KafkaVersion | None:
        """None: nobody has set one."""
        return parse_kafka_version(self.kafka_version)

    @cached_property
    def assignor_names(self) -> tuple[str, ...]:
        return parse_assignors(self.assignors)


OWN_CONFIGS = {
    "consumer.session.timeout.ms": "session_timeout_ms",
    "consumer.heartbeat.interval.ms": "heartbeat_interval_ms",
    "consumer.assignment.interval.ms": "assignment_interval_ms",
}
"""The configs that may be set for one group, by Kafka's name -> the setting in whose place it comes."""


def bounds_of(config: ConsumerGroupConfig, setting: str) -> tuple[int, int]:
    """(least, greatest) value that a group's own configs may have for a setting."""
    return getattr(config, f"min_{setting}"), getattr(config, f"max_{setting}")


def with_own_configs(config: ConsumerGroupConfig, own: Mapping[str, int]) -> ConsumerGroupConfig:
    """Settings of one group. What is out of bounds counts as the bound: they may have been others when it was set
    (GroupConfig#evaluate). Names that are not known, of a later version, mean nothing."""
    changes = {}
    for name, setting in OWN_CONFIGS.items():
        if name in own:
            least, greatest = bounds_of(config, setting)
            changes[setting] = max(least, min(own[name], greatest))
    return replace(config, **changes)  # type: ignore[arg-type]  # mypy takes them for values of `assignors`
