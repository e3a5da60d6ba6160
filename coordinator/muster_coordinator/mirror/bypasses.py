"""Groups of Muster's that clients use at the Kafka cluster itself, as its records about them tell. Pure.

Kafka's record of a group has its members: as long as there are some, they are clients that do not come here. In a group
of consumers each has a record of its own; those of before a move have none any more until they are removed. A commit
outside of that is one of somebody without a membership, such as a tool, unless this pod has written it there.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from muster_coordinator.mirror.write_back import ToWrite
from muster_coordinator.records.consumer_group import MEMBER_TYPE, ConsumerGroupMemberValue, ConsumerGroupRecord
from muster_coordinator.records.group_metadata import GroupMember, GroupMetadataRecord
from muster_coordinator.records.structs import OffsetCommitRecord

GROUPS_MAX = 1_000
"""The most groups of one partition that are remembered."""
_LONGEST = 256
"""Characters of a group's id or a client's: Kafka takes 32 KiB."""
_CLIENTS_NAMED = 3
_CONSUMERS_MAX = 1_000
"""Members of one group that are remembered."""
_WRITES_MAX = 8
"""Values of one partition that were written to Kafka and not read from there yet."""


@dataclass(frozen=True, slots=True)
class Bypass:
    """A group that is used at Kafka. `clients`: its members there, client id and host, some of them; "" if it has none.
    `also_here`: it is used here at the same time, so that it is served twice."""

    group_id: str
    clients: str
    also_here: bool


class Bypasses:
    """`has`: whether there is such a group here."""

    def __init__(self, has: Callable[[str], bool]) -> None:
        self._has = has
        self._known: OrderedDict[str, Bypass] = OrderedDict()
        self._news: dict[str, Bypass] = {}
        self._consumers: dict[str, dict[str, str]] = {}  # group -> member id -> client, of those that are there
        self._writes: dict[tuple[str, str, int], deque[tuple[int, int, str]]] = {}
        self.quiet: set[str] = set()
        """Groups of which an earlier leader may have written offsets to Kafka that nobody has read yet."""
        self.with_members: dict[str, Bypass] = {}
        """Those that have members there now, by group."""

    def left_out(self, change: Any, up_to_date: bool) -> bool:
        """A record about a group of Muster's. `up_to_date`: all that was there before has been read, so that a commit
        is one of now. Returns whether it is somebody else's."""
        group_id = change.group_id[:_LONGEST]
        if type(change) is GroupMetadataRecord:
            members = change.value.members if change.value is not None else ()
            if members:
                self._is_used(Bypass(group_id, _named([_client(each) for each in members]), self._has(change.group_id)))
            else:
                self.forget(group_id)
        elif type(change) is ConsumerGroupRecord:
            self._consumer(change, group_id)
        elif type(change) is OffsetCommitRecord and change.value is not None and up_to_date:
            if self._is_write(change):
                return False
            known = self._known.get(group_id)
            self._is_used(Bypass(group_id, known.clients if known is not None else "", self._has(change.group_id)))
        return True

    def _consumer(self, change: ConsumerGroupRecord, group_id: str) -> None:
        if change.type != MEMBER_TYPE:
            return
        members = self._consumers.get(group_id, {})
        member_id, value = change.name[:_LONGEST], change.value
        if not isinstance(value, ConsumerGroupMemberValue):
            if members.pop(member_id, None) is not None and not members:
                self.forget(group_id)
        elif len(members) < _CONSUMERS_MAX:
            members[member_id] = _client(value)
            self._is_used(Bypass(group_id, _named(members.values()), self._has(change.group_id)))
            self._consumers[group_id] = members

    def writes(self, group_id: str, topics: ToWrite) -> None:
        """These offsets are about to be written to Kafka by this pod, and will come from there."""
        for topic, partitions in topics:
            for partition, offset, leader_epoch, metadata in partitions:
                place = group_id, topic, partition
                sent = self._writes.setdefault(place, deque(maxlen=_WRITES_MAX))
                sent.append((offset, leader_epoch, metadata or ""))

    def _is_write(self, change: OffsetCommitRecord) -> bool:
        place, value = (change.group_id, change.topic, change.partition), change.value
        sent = self._writes.get(place)
        if sent is None or value is None:
            return change.group_id in self.quiet
        committed = value.offset, value.leader_epoch, value.metadata
        if committed not in sent:
            return change.group_id in self.quiet
        while sent.popleft() != committed:  # Kafka did not take what was sent before
            pass
        if not sent:
            del self._writes[place]
        return True

    def news(self) -> tuple[Bypass, ...]:
        """The news: groups whose use there has begun, or that are used here as well by now."""
        news, self._news = tuple(self._news.values()), {}
        return news

    def _is_used(self, now: Bypass) -> None:
        before = self._known.get(now.group_id)
        if before is None or (bool(now.clients), now.also_here) > (bool(before.clients), before.also_here):
            self._news[now.group_id] = now
        self._known[now.group_id] = now
        self._known.move_to_end(now.group_id)
        if now.clients:
            self.with_members[now.group_id] = now
        if len(self._known) > GROUPS_MAX:
            self.forget(next(iter(self._known)))

    def forget(self, group_id: str) -> None:
        for groups in (self._known, self._news, self.with_members, self._consumers):
            groups.pop(group_id, None)


def _client(member: GroupMember | ConsumerGroupMemberValue) -> str:
    return f"{member.client_id[:_LONGEST]}@{member.client_host[:_LONGEST].lstrip('/')}"


def _named(clients: Iterable[str]) -> str:
    names = sorted(set(clients))
    more = f" and {len(names) - _CLIENTS_NAMED} more" if len(names) > _CLIENTS_NAMED else ""
    return ", ".join(names[:_CLIENTS_NAMED]) + more
