"""Settings of groups of the consumer protocol, under Kafka's names."""

from __future__ import annotations

from dataclasses import dataclass, field

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


def _assignors() -> str:
    metadata = {"kafka": "group.consumer.assignors", "check": parse_assignors}
    value: str = field(default=",".join(ASSIGNORS), metadata=metadata)
    return value


@dataclass(frozen=True)
class ConsumerGroupConfig:
    """Groups of the consumer protocol (`group.protocol=consumer`, KIP-848). Defaults are those of Kafka 4.3."""

    session_timeout_ms: int = _setting(45_000, "group.consumer.session.timeout.ms")
    """A member that sends no heartbeat for so long (ms) is out of its group. Kafka refuses less than 45000 unless
    another setting allows it."""

    heartbeat_interval_ms: int = _setting(5_000, "group.consumer.heartbeat.interval.ms")
    """How often (ms) members are told to send heartbeats."""

    max_size: int = _setting(2_147_483_647, "group.consumer.max.size")
    """Members that one group may have; a further one gets GROUP_MAX_SIZE_REACHED."""

    assignors: str = _assignors()
    """Assignors that members may ask for, between commas: uniform, range. The first is taken when none asks."""

    assignment_interval_ms: int = _setting(1_000, "group.consumer.assignment.interval.ms", 0)
    """Least time (ms) between two target assignments of a group (KIP-1263). 0: none."""

    regex_refresh_interval_ms: int = _setting(600_000, "group.consumer.regex.refresh.interval.ms", 10_000)
    """How old (ms) the topics of a regular expression may get before they are looked for again; new topics are found
    sooner."""

    regex_refresh_min_interval_ms: int = _setting(10_000, None)
    """Least time (ms) between two searches for the topics of a group's regular expressions: each goes through all
    names; a constant in Kafka."""

    @property
    def assignor_names(self) -> tuple[str, ...]:
        return parse_assignors(self.assignors)
