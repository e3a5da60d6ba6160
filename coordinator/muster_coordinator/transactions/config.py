"""Settings of the transaction coordinator: those of Kafka, and limits of our own."""

from __future__ import annotations

from dataclasses import dataclass, field, fields


def _setting(default: int, kafka_name: str | None) -> int:
    """A field with Kafka's configuration name in its metadata; None for a limit that Kafka does not have."""
    value: int = field(default=default, metadata={"kafka": kafka_name, "minimum": 1})
    return value


@dataclass(frozen=True, slots=True)
class TransactionConfig:
    """Times are milliseconds. Defaults are those of Kafka 4.3."""

    max_timeout_ms: int = _setting(900_000, "transaction.max.timeout.ms")
    """Longest time (ms) that a producer may ask for its transactions; above it: INVALID_TRANSACTION_TIMEOUT. A
    transaction that is open for longer than its producer has asked for is aborted."""

    id_expiration_ms: int = _setting(604_800_000, "transactional.id.expiration.ms")
    """A transactional id without a transaction is forgotten when nothing happened to it for this long (ms)."""

    expiry_interval_ms: int = _setting(3_600_000, "transaction.remove.expired.transaction.cleanup.interval.ms")
    """Pause (ms) between two searches for expired transactional ids."""

    max_record_bytes: int = 1_048_588
    """message.max.bytes, a setting that both coordinators have: an operation whose record batch would be larger gets
    UNKNOWN_SERVER_ERROR, as in Kafka."""

    max_transactional_ids: int = _setting(1_000_000, None)
    """Transactional ids that one transaction partition holds; a further one gets COORDINATOR_NOT_AVAILABLE."""

    marker_retry_ms: int = 500
    """Pause before a partition that could not be marked is asked again."""

    slice_size: int = 1_000
    """Ids that one step of a search through all of them looks at before other work of the partition gets its turn."""

    def __post_init__(self) -> None:
        for each in fields(self):
            if getattr(self, each.name) < 1:
                raise ValueError(f"{each.name} must be at least 1, not {getattr(self, each.name)}")
