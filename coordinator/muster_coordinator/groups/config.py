"""Settings of the group coordinator, under Kafka's names, and the limits that are our own."""

from __future__ import annotations

from dataclasses import dataclass, field


def _setting(default: int, kafka_name: str | None) -> int:
    """A field with Kafka's configuration name in its metadata; None for a limit that Kafka does not have."""
    value: int = field(default=default, metadata={"kafka": kafka_name})
    return value


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """Times are milliseconds unless the name says otherwise. Defaults are those of Kafka 4.1 (reference, section
    5.1)."""

    min_session_timeout_ms: int = _setting(6000, "group.min.session.timeout.ms")
    """Shortest session timeout that a JoinGroup may ask for; below it: INVALID_SESSION_TIMEOUT."""

    max_session_timeout_ms: int = _setting(1_800_000, "group.max.session.timeout.ms")
    """Longest session timeout that a JoinGroup may ask for; above it: INVALID_SESSION_TIMEOUT."""

    initial_rebalance_delay_ms: int = _setting(3000, "group.initial.rebalance.delay.ms")
    """Time that an empty group waits for further members before its first rebalance; extended while members arrive, up
    to the rebalance timeout. 0: the join phase ends as soon as the timer runs."""

    new_member_join_timeout_ms: int = _setting(300_000, None)
    """Time for which a member that waits for its first JoinGroup answer is kept (KAFKA-7610); a constant in Kafka."""

    max_size: int = _setting(2_147_483_647, "group.max.size")
    """Members that one group may have; a further one gets GROUP_MAX_SIZE_REACHED."""

    offset_metadata_max_size: int = _setting(4096, "offset.metadata.max.bytes")
    """Longest metadata of one committed offset, in UTF-16 code units as Kafka counts; above it:
    OFFSET_METADATA_TOO_LARGE."""

    offsets_retention_minutes: int = _setting(10_080, "offsets.retention.minutes")
    """Time for which committed offsets are kept after the group became empty or, for a group without members of its own
    and for topics without a subscriber, after the commit (KIP-211)."""

    offsets_retention_check_interval_ms: int = _setting(600_000, "offsets.retention.check.interval.ms")
    """Pause between two searches for expired offsets and groups."""

    max_record_bytes: int = _setting(1_048_588, "message.max.bytes")
    """Largest record batch, in bytes. What was written together beyond it becomes several batches. A commit beyond it
    is refused as a whole with UNKNOWN_SERVER_ERROR. A group whose metadata is larger cannot become Stable: its members'
    SyncGroup gets UNKNOWN_SERVER_ERROR and the group rebalances. Both as in Kafka when the append answers
    MESSAGE_TOO_LARGE."""

    max_groups: int = _setting(1_000_000, None)
    """Groups that one offsets partition holds; a request that would create a further one gets
    COORDINATOR_NOT_AVAILABLE."""

    max_pending_members: int = _setting(10_000, None)
    """Members of one group that got MEMBER_ID_REQUIRED and have not come back; a further one gets
    GROUP_MAX_SIZE_REACHED."""

    max_producers: int = _setting(100_000, None)
    """Transactional producers whose epoch is remembered, to refuse older ones; beyond it the one not seen for
    longest is forgotten (Kafka forgets after producer.id.expiration.ms)."""

    expiry_slice: int = _setting(5_000, None)
    """Offsets that one step of the search for expired ones, and for those of deleted topics, looks at before other work
    of the partition gets its turn."""

    unpacked_groups: int = _setting(256, None)
    """Groups of one offsets partition whose committed offsets are held as objects although they have not changed for
    a while. More are while more change all the time; the others take a fraction of the memory, and a microsecond more
    when they change."""

    def __post_init__(self) -> None:
        for name in (
            "min_session_timeout_ms",
            "max_size",
            "offsets_retention_minutes",
            "offsets_retention_check_interval_ms",
            "max_record_bytes",
            "max_groups",
            "max_pending_members",
            "max_producers",
            "expiry_slice",
            "unpacked_groups",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.max_session_timeout_ms < self.min_session_timeout_ms:
            raise ValueError("max_session_timeout_ms must not be below min_session_timeout_ms")
        if min(self.initial_rebalance_delay_ms, self.new_member_join_timeout_ms, self.offset_metadata_max_size) < 0:
            raise ValueError(
                "initial_rebalance_delay_ms, new_member_join_timeout_ms, offset_metadata_max_size must be >= 0"
            )

    @property
    def offsets_retention_ms(self) -> int:
        return self.offsets_retention_minutes * 60_000
