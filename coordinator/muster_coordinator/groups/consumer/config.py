"""Settings of groups of the consumer protocol, under Kafka's names where it has them."""

from __future__ import annotations

from dataclasses import dataclass

from muster_coordinator.groups.consumer.assignors.table import ASSIGNORS


@dataclass(frozen=True, slots=True)
class ConsumerGroupConfig:
    """Times are milliseconds. Defaults are those of Kafka 4.3."""

    session_timeout_ms: int = 45_000
    """group.consumer.session.timeout.ms: a member that sends no heartbeat for so long is out of its group."""

    heartbeat_interval_ms: int = 5_000
    """group.consumer.heartbeat.interval.ms: how often members are told to send heartbeats."""

    max_size: int = 2_147_483_647
    """group.consumer.max.size: a further member gets GROUP_MAX_SIZE_REACHED."""

    assignors: tuple[str, ...] = tuple(ASSIGNORS)
    """group.consumer.assignors: the first is taken when no member asks for one."""

    assignment_interval_ms: int = 1_000
    """group.consumer.assignment.interval.ms: least time between two target assignments of a group (KIP-1263)."""

    regex_refresh_interval_ms: int = 600_000
    """group.consumer.regex.refresh.interval.ms: how old the topics of a regular expression may get."""

    def __post_init__(self) -> None:
        for name in ("session_timeout_ms", "heartbeat_interval_ms", "max_size", "regex_refresh_interval_ms"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.assignment_interval_ms < 0:
            raise ValueError("assignment_interval_ms must be >= 0")
        unknown = [name for name in self.assignors if name not in ASSIGNORS]
        if unknown or not self.assignors:
            raise ValueError(f"assignors must be some of {', '.join(ASSIGNORS)}, not {', '.join(unknown) or 'none'}")
