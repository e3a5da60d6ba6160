"""What classic consumers write and read of the embedded protocol, and what their leader gives to whom."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tests.simulation.consuming.group import Place

from muster_coordinator.groups.consumer.embedded import read_assignment, read_subscription, write_assignment
from muster_coordinator.records.primitives import INT16, INT32
from muster_coordinator.requests.groups import JoinGroupMember

__all__ = ["assign", "read_places", "subscription"]


def subscription(topics: Sequence[str], owned: Iterable[Place], *, cooperative: bool) -> bytes:
    """ConsumerProtocolSubscription. An eager consumer has nothing when it joins, and says it in v0."""
    data = INT16.pack(int(cooperative)) + INT32.pack(len(topics))
    data += b"".join([_text(topic) for topic in topics]) + INT32.pack(-1)
    if cooperative:
        by_topic = _by_topic(owned)
        data += INT32.pack(len(by_topic))
        for topic, partitions in by_topic.items():
            data += _text(topic) + INT32.pack(len(partitions)) + b"".join([INT32.pack(each) for each in partitions])
    return data


def read_places(assignment: bytes) -> set[Place]:
    found = read_assignment(assignment)
    return {(topic, partition) for topic, partitions in found.partitions for partition in partitions}


def assign(members: Sequence[JoinGroupMember], counts: Mapping[str, int]) -> tuple[tuple[str, bytes], ...]:
    """Evenly, among those that subscribe; what another member still has is given to nobody."""
    subscriptions = {each.member_id: read_subscription(each.metadata) for each in members}
    claimed = {
        (topic, partition): member
        for member, said in subscriptions.items()
        for topic, partitions in said.owned
        for partition in partitions
    }
    given: dict[str, list[Place]] = {member: [] for member in sorted(subscriptions)}
    for topic, count in counts.items():
        interested = [member for member in given if topic in subscriptions[member].topics]
        for partition in range(count if interested else 0):
            member = interested[partition * len(interested) // count]
            if claimed.get((topic, partition), member) == member:
                given[member].append((topic, partition))
    return tuple([(member, write_assignment(_by_topic(places).items(), 0)) for member, places in given.items()])


def _by_topic(places: Iterable[Place]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, partition in sorted(places):
        found.setdefault(topic, []).append(partition)
    return found


def _text(text: str) -> bytes:
    return INT16.pack(len(text)) + text.encode()
