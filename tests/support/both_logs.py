"""The side that took each commit of groups that have moved, by the logs of Kafka's brokers and of the pods that mirror
them.

Generations do not tell the sides apart: a group that moves keeps its own. Wall clocks do, where all is on one machine.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from muster_coordinator.log.segments.partition_log import partition_directory
from muster_coordinator.records.batch import CorruptBatchError, RecordBatch, iter_batches
from muster_coordinator.records.decode import decode_record
from muster_coordinator.records.group_metadata import GroupMetadataRecord
from muster_coordinator.records.group_route import decode_route, is_route_key
from muster_coordinator.records.structs import BatchRecord, OffsetCommitRecord

Commit = tuple[str, int, int, int]
"""Topic, partition, offset, and when it was committed."""


@dataclass
class _AtMuster:
    """One group. `since_ms`: the time of its last route; None: it is Kafka's. `times`: when it was Muster's before.
    `own`: how many commits it took meanwhile. `mirrored`: the others, which the mirror has read."""

    since_ms: int | None = None
    times: list[tuple[int, int]] = field(default_factory=list)
    own: int = 0
    mirrored: set[Commit] = field(default_factory=set)


def commits_on_the_wrong_side(
    brokers: Sequence[Path], pods: Sequence[Path], partitions: int
) -> tuple[dict[str, list[str]], int]:
    """(what is wrong, by group; how many commits of members were judged). `brokers`, `pods`: data directories. Of
    the replicas of either side the one that has most is read."""
    wrong: defaultdict[str, list[str]] = defaultdict(list)
    judged = 0
    for number in range(partitions):
        at_kafka: defaultdict[str, set[Commit]] = defaultdict(set)
        of_members: defaultdict[str, set[Commit]] = defaultdict(set)
        for batch, record in _records(_fullest(brokers, number)):
            for group, commit in _commit(record):
                at_kafka[group].add(commit)
                if not batch.is_transactional:  # Muster writes in transactions
                    of_members[group].add(commit)
        for group, here in _at_muster(_fullest(pods, number)).items():
            times = [*here.times, *([(here.since_ms, 1 << 62)] if here.since_ms is not None else [])]
            judged += here.own + len(of_members[group])
            wrong[group] += [
                f"Kafka took {each} while Muster served, {first} to {last}"
                for each in sorted(of_members[group])
                for first, last in times
                if first < each[-1] < last
            ]
            wrong[group] += [f"Muster took {each} while Kafka served" for each in here.mirrored - at_kafka[group]]
    return {group: found for group, found in wrong.items() if found}, judged


def generations(directories: Sequence[Path], partitions: int) -> dict[str, int]:
    """The last generation of each group with members of the classic protocol. `directories`: of the brokers or pods."""
    found: dict[str, int] = {}
    for number in range(partitions):
        for _, record in _records(_fullest(directories, number)):
            group = decode_record(record.key, record.value)
            if isinstance(group, GroupMetadataRecord) and group.value is not None and group.value.members:
                found[group.group_id] = group.value.generation
    return found


def _at_muster(log: Path) -> dict[str, _AtMuster]:
    """All groups of the log."""
    groups: defaultdict[str, _AtMuster] = defaultdict(_AtMuster)
    for _, record in _records(log):
        if record.key is not None and is_route_key(record.key):
            route = decode_route(record.key, record.value)
            here = groups[route.group_id]
            if here.since_ms is not None:
                here.times.append((here.since_ms, record.timestamp_ms))
            here.since_ms = record.timestamp_ms if route.at_muster else None
        else:
            for group, commit in _commit(record):
                if groups[group].since_ms is None:
                    groups[group].mirrored.add(commit)
                else:
                    groups[group].own += 1
    return groups


def _fullest(directories: Sequence[Path], number: int) -> Path:
    """The replica of the partition that has most."""
    return max((partition_directory(each, number) for each in directories), key=_end)


def _end(directory: Path) -> int:
    """Offset of the last record."""
    return max((record.offset for _, record in _records(directory)), default=-1)


def _commit(record: BatchRecord) -> Iterator[tuple[str, Commit]]:
    """(group, commit), if it is one."""
    found = decode_record(record.key, record.value)
    if isinstance(found, OffsetCommitRecord) and found.value is not None:
        yield found.group_id, (found.topic, found.partition, found.value.offset, found.value.commit_timestamp_ms)


def _records(directory: Path) -> Iterator[tuple[RecordBatch, BatchRecord]]:
    """All but control records, up to what is being written."""
    for segment in sorted(directory.glob("*.log")):
        try:
            for batch in iter_batches(segment.read_bytes()):
                if not batch.is_control:
                    yield from ((batch, record) for record in batch.records())
        except CorruptBatchError as error:
            if not error.truncated:
                raise
