"""Numbers of partitions: one row for the partitions of both internal topics (ADR 28).

A pod knows a partition by its number: in journal, frames, pod API, shards. This table says what a number stands for.
"""

from __future__ import annotations

from dataclasses import dataclass

PARTITIONS_MAX = 500_000
"""Numbers of each topic. A re-shard takes new ones, so a topic has fewer partitions than that."""


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """A topic whose partitions are led by a coordinator. `first`: the number of its partition 0. `named_by`: the topic
    whose records name partitions of this one, "" if none does.
    """

    name: str
    first: int
    named_by: str = ""

    @property
    def numbers(self) -> range:
        return range(self.first, self.first + PARTITIONS_MAX)


TRANSACTIONS = InternalTopic("__transaction_state", PARTITIONS_MAX)
OFFSETS = InternalTopic("__consumer_offsets", 0, named_by=TRANSACTIONS.name)
INTERNAL_TOPICS = {topic.name: topic for topic in (OFFSETS, TRANSACTIONS)}


def topic_of(number: int) -> InternalTopic:
    """Returns the topic that the partition belongs to."""
    return OFFSETS if number < TRANSACTIONS.first else TRANSACTIONS


def index_of(number: int) -> int:
    """Returns the index of the partition in its topic, which no other log of the topic ever had."""
    return number - topic_of(number).first


def partition_name(number: int) -> str:
    """Kafka's name of the partition, and of the directory of its log: topic and index."""
    topic = topic_of(number)
    return f"{topic.name}-{number - topic.first}"


def number_of_directory(name: str) -> int | None:
    """Returns the number of the partition whose log is in a directory of this name; None: it is none of a partition."""
    topic_name, _, text = name.rpartition("-")
    topic = INTERNAL_TOPICS.get(topic_name)
    if topic is None or not (text.isascii() and text.isdigit()):
        return None
    number = topic.first + int(text)
    return number if number in topic.numbers else None
