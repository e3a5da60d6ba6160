"""ListOffsets and Fetch of topics without data: what a consumer needs to start where nothing was committed."""

from __future__ import annotations

from typing import Any

from tests.conformance.registry import script
from tests.conformance.session import Session

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6


async def _offsets(s: Session, version: int, timestamp: int, name: str = "t", partition: int = 0, **more: Any) -> None:
    partitions = [{"partition_index": partition, "timestamp": timestamp, "current_leader_epoch": -1} | more]
    topics = [{"name": name, "partitions": partitions}]
    await s.ask("list_offsets", version, replica_id=-1, topics=topics, timeout=1000)


@script(versions=range(1, 12))
async def list_offsets_earliest(s: Session, version: int) -> None:
    await _offsets(s, version, EARLIEST)


@script(versions=range(1, 12))
async def list_offsets_latest(s: Session, version: int) -> None:
    await _offsets(s, version, LATEST)


@script(versions=range(1, 12))
async def list_offsets_at_a_time(s: Session, version: int) -> None:
    await _offsets(s, version, 1_700_000_000_000)


@script(versions=range(7, 12))
async def list_offsets_of_the_largest_timestamp(s: Session, version: int) -> None:
    await _offsets(s, version, MAX_TIMESTAMP)


@script(versions=(8, 10, 11))
async def list_offsets_earliest_local(s: Session, version: int) -> None:
    await _offsets(s, version, EARLIEST_LOCAL)


@script(versions=(9, 10, 11))
async def list_offsets_latest_tiered(s: Session, version: int) -> None:
    await _offsets(s, version, LATEST_TIERED)


@script(versions=(9, 10, 11))
async def list_offsets_earliest_to_be_tiered(s: Session, version: int) -> None:
    await _offsets(s, version, EARLIEST_PENDING_UPLOAD)


@script(versions=(6, 11))
async def list_offsets_of_a_timestamp_that_means_nothing(s: Session, version: int) -> None:
    await _offsets(s, version, -7)


@script(versions=(1, 6, 10, 11))
async def list_offsets_of_an_unknown_topic(s: Session, version: int) -> None:
    await _offsets(s, version, LATEST, name="missing")


@script(versions=(1, 6, 10, 11))
async def list_offsets_of_an_unknown_partition(s: Session, version: int) -> None:
    await _offsets(s, version, LATEST, partition=99)


@script(versions=(4, 10, 11))
async def list_offsets_of_nothing(s: Session, version: int) -> None:
    await s.ask("list_offsets", version, replica_id=-1, topics=[])


@script()
async def list_offsets_twice_for_one_partition(s: Session) -> None:
    partitions = [{"partition_index": 0, "timestamp": LATEST}, {"partition_index": 0, "timestamp": EARLIEST}]
    await s.ask("list_offsets", 6, replica_id=-1, topics=[{"name": "t", "partitions": partitions}])


@script(versions=range(4, 13))
async def fetch_from_an_empty_partition(s: Session, version: int) -> None:
    partitions = [{"partition": 0, "partition_max_bytes": 1000, "last_fetched_epoch": -1}]
    await s.ask("fetch", version, replica_id=-1, max_wait=10, topics=[{"topic": "t", "partitions": partitions}])


@script(versions=range(13, 18))
async def fetch_by_topic_id_from_an_empty_partition(s: Session, version: int) -> None:
    known = await s.quietly("metadata", 12, topics=[{"name": "t"}])
    partitions = [{"partition": 0, "partition_max_bytes": 1000, "last_fetched_epoch": -1}]
    topics = [{"topic_id": known.topics[0].topic_id, "partitions": partitions}]
    await s.ask("fetch", version, max_wait=10, topics=topics)


@script(versions=(4, 11, 12))
async def fetch_from_an_unknown_partition(s: Session, version: int) -> None:
    partitions = [{"partition": 99, "partition_max_bytes": 1000, "last_fetched_epoch": -1}]
    await s.ask("fetch", version, replica_id=-1, max_wait=10, topics=[{"topic": "t", "partitions": partitions}])
