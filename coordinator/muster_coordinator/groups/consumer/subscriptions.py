"""The topics that the members of a group subscribe to, by name and by expression, and a hash of what these topics
are."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from muster_coordinator.groups.consumer.group import ConsumerGroup, add
from muster_coordinator.groups.consumer.member import Subscription
from muster_coordinator.groups.consumer.topics import ConsumerTopics
from muster_coordinator.records.consumer_group import ConsumerGroupMemberValue, ConsumerGroupRegexValue

NO_TOPICS = 0
"""The `metadata_hash` of a group none of whose topics exists."""


def names_of(subscription: Subscription, regexes: Mapping[str, ConsumerGroupRegexValue]) -> dict[str, None]:
    """The topics of a subscription, each once. An expression that is not resolved yet matches none."""
    topics, regex = subscription
    names = dict.fromkeys(topics)
    resolved = regexes.get(regex) if regex else None
    if resolved is not None:
        names.update(dict.fromkeys(resolved.topics))
    return names


def ids_of(names: Iterable[str], topics: ConsumerTopics) -> tuple[bytes, ...]:
    """The ids of the topics that exist."""
    found = [topics.find(name) for name in names]
    return tuple([each[0] for each in found if each is not None])


def metadata_hash(
    group: ConsumerGroup,
    topics: ConsumerTopics,
    gone: Iterable[ConsumerGroupMemberValue] = (),
    come: Iterable[ConsumerGroupMemberValue] = (),
    regexes: Mapping[str, ConsumerGroupRegexValue] | None = None,
) -> int:
    """The hash of the topics that the group will be subscribed to once members are `gone` and `come` and expressions
    stand for what `regexes` says: another number when one of them has changed (KIP-1101).
    Takes time in proportion to the topics, not to the members.

    Not Kafka's number, which is made by XXH3: a group that changes hands is assigned anew once.
    """
    names, used = dict(group.topic_members), dict(group.regex_members)
    for values, delta in ((gone, -1), (come, 1)):
        for value in values:
            for topic in value.subscribed_topic_names:
                add(names, topic, delta)
            if value.subscribed_topic_regex:
                add(used, value.subscribed_topic_regex, delta)
    resolved = group.regexes if regexes is None else regexes
    known = used.keys() & resolved.keys()
    return _hash({*names, *(topic for regex in known for topic in resolved[regex].topics)}, topics)


def _hash(names: set[str], topics: ConsumerTopics) -> int:
    digest = hashlib.blake2b(digest_size=8)
    there_are_any = False
    for name in sorted(names):
        found = topics.find(name)
        if found is not None:
            topic_id, count = found
            digest.update(topic_id + count.to_bytes(4, "big") + name.encode() + b"\x00")
            there_are_any = True
    return int.from_bytes(digest.digest(), "big", signed=True) if there_are_any else NO_TOPICS


def are_alike(subscriptions: Iterable[Subscription]) -> bool:
    """Kafka: SubscriptionType.HOMOGENEOUS. All have the same names, or all the same expression and no names."""
    different = {(frozenset(names), regex) for names, regex in subscriptions}
    return len(different) <= 1 and not any(names and regex for names, regex in different)
