"""The requests of a mirror to the brokers that it follows, and their answers."""

from __future__ import annotations

import msgspec


class PartitionToFetch(msgspec.Struct, frozen=True, gc=False):
    """`leader_epoch`: of the broker, as Metadata has it. `last_epoch`: of the last batch that was read, -1 if none was:
    the broker compares it with its log, and names the offset where the two part (KIP-595)."""

    partition: int
    leader_epoch: int
    offset: int
    last_epoch: int


class FetchRecordsRequest(msgspec.Struct, frozen=True, gc=False):
    """A Fetch of one topic, without a fetch session, with control batches and open transactions (read_uncommitted)."""

    topic_id: bytes
    partitions: tuple[PartitionToFetch, ...]
    max_wait_ms: int
    max_bytes: int
    partition_max_bytes: int


class FetchedRecords(msgspec.Struct, frozen=True, gc=False):
    """`diverging`: (epoch, end offset) up to which the logs are the same; None: as far as they were read. `records`:
    whole batches, of which the last one may be cut off."""

    partition: int
    error_code: int
    high_watermark: int
    diverging: tuple[int, int] | None
    records: bytes


class FetchRecordsResponse(msgspec.Struct, frozen=True, gc=False):
    error_code: int
    partitions: tuple[FetchedRecords, ...]
