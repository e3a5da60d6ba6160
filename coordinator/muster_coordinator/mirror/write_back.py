"""The offsets that Kafka does not have yet of a group that has moved. No I/O."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from muster_coordinator.requests.consumer_groups import DescribedConsumerGroup
from muster_coordinator.requests.groups import DescribedGroup, OffsetFetchResponse

ToWrite: TypeAlias = list[tuple[str, list[tuple[int, int, int, str | None]]]]
"""The offsets of each topic: its (partition, offset, leader epoch, metadata)."""


def to_write(here: OffsetFetchResponse, there: OffsetFetchResponse) -> ToWrite:
    """The offsets that have to be committed at Kafka, so that it has every offset that is here. Offsets that are only
    there stay: nobody can tell whether they were removed here or committed there."""
    found: ToWrite = []
    known = {topic: {each[0]: each for each in partitions} for topic, partitions in there.topics}
    for topic, partitions in here.topics:
        of_topic = known.get(topic, {})
        changed = [each[:4] for each in partitions if of_topic.get(each[0]) != each]
        if changed:
            found.append((topic, list(changed)))
    return found


def has_members(described: DescribedGroup | DescribedConsumerGroup) -> bool:
    """True if Kafka's group has members, or may have some soon."""
    return bool(described.members) or described.group_state not in ("Empty", "Dead")


def only_there(here: OffsetFetchResponse, there: OffsetFetchResponse) -> list[tuple[str, int]]:
    """Topic and partition of each offset that Kafka alone has."""
    known = {(topic, each[0]) for topic, partitions in here.topics for each in partitions}
    of_kafka = [(topic, each[0]) for topic, partitions in there.topics for each in partitions]
    return [place for place in of_kafka if place not in known]


def in_parts(topics: ToWrite, size: int) -> Iterator[ToWrite]:
    """The same, a part of at most `size` partitions at a time."""
    part: ToWrite = []
    left = size
    for topic, partitions in topics:
        start = 0
        while start < len(partitions):
            taken = partitions[start : start + left]
            part.append((topic, taken))
            start += len(taken)
            left -= len(taken)
            if not left:
                yield part
                part, left = [], size
    if part:
        yield part
