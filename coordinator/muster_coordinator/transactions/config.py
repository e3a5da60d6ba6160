"""Settings of the transaction coordinator: those of Kafka, and limits of our own."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class TransactionConfig:
    """Times are milliseconds. Defaults are those of Kafka 4.3."""

    max_timeout_ms: int = 900_000
    """transaction.max.timeout.ms: a longer time-out than this, or none, gets INVALID_TRANSACTION_TIMEOUT."""

    id_expiration_ms: int = 604_800_000
    """transactional.id.expiration.ms: an id without a transaction is forgotten when nothing happened to it for this
    long."""

    expiry_interval_ms: int = 3_600_000
    """transaction.remove.expired.transaction.cleanup.interval.ms: pause between two searches for expired ids."""

    max_record_bytes: int = 1_048_588
    """message.max.bytes: an operation whose record batch would be larger gets UNKNOWN_SERVER_ERROR, as in Kafka."""

    max_transactional_ids: int = 1_000_000
    """Ids that one partition holds; a further one gets COORDINATOR_NOT_AVAILABLE."""

    marker_retry_ms: int = 500
    """Pause before a partition that could not be marked is asked again."""

    slice_size: int = 1_000
    """Ids that one step of a search through all of them looks at before other work of the partition gets its turn."""

    def __post_init__(self) -> None:
        for each in fields(self):
            if getattr(self, each.name) < 1:
                raise ValueError(f"{each.name} must be at least 1, not {getattr(self, each.name)}")
