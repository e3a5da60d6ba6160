"""The groups of the consumer protocol of one offsets partition, and what their operations need besides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.consumer.config import ConsumerGroupConfig
from muster_coordinator.groups.consumer.group import ConsumerGroup
from muster_coordinator.groups.consumer.topics import ConsumerTopics
from muster_coordinator.records.consumer_group import METADATA_TYPE, PARTITION_METADATA_TYPE, ConsumerGroupRecord
from muster_coordinator.requests.consumer_groups import RegexesToResolve
from muster_coordinator.state_machine import TimerKey, Token


class RegexResolving(Protocol):
    def attempt(self, request: RegexesToResolve) -> Token:
        """Returns a token; the answer to it is the leave to begin, and `RegexesResolved` comes afterwards, once."""
        ...


class Live:
    """What only an active leader knows of a group."""

    __slots__ = ("checked_version", "regex_version", "resolving")

    def __init__(self) -> None:
        self.resolving = False
        self.checked_version: int | None = None  # of the topics, when the metadata hash was computed last
        self.regex_version: int | None = None  # of the topics, when the expressions were resolved last


class ConsumerTables:
    """`groups` changes in `replay` alone. `new_member_id` is for members that make none themselves (before v1)."""

    __slots__ = ("_live", "config", "groups", "new_member_id", "regexes", "topics")

    def __init__(
        self,
        config: ConsumerGroupConfig,
        topics: ConsumerTopics,
        regexes: RegexResolving,
        new_member_id: Callable[[], str],
    ) -> None:
        self.config = config
        self.topics = topics
        self.regexes = regexes
        self.new_member_id = new_member_id
        self.groups: dict[str, ConsumerGroup] = {}
        self._live: dict[str, Live] = {}

    def live(self, group_id: str) -> Live:
        """What is known of a group that has records, or gets its first ones now."""
        return self._live.setdefault(group_id, Live())

    def forget_live(self) -> None:
        """This pod does not lead any more."""
        self._live.clear()

    def replay(self, record: ConsumerGroupRecord) -> None:
        group_id = record.group_id
        if record.type == PARTITION_METADATA_TYPE:
            return  # of a broker before 4.1
        if record.value is None and record.type == METADATA_TYPE:
            self.groups.pop(group_id, None)
            self._live.pop(group_id, None)
            return
        group = self.groups.get(group_id)
        if group is None:
            if record.value is None:
                return
            group = self.groups[group_id] = ConsumerGroup(group_id)
        group.replay(record)


class _Nothing:
    """No topic, and no answer about expressions: implements `ConsumerTopics`, `RegexResolving` and its token."""

    version = 0

    def find(self, topic: str) -> tuple[bytes, int] | None:
        return None

    def name_of(self, topic_id: bytes) -> str | None:
        return None

    def attempt(self, request: RegexesToResolve) -> Token:
        return self

    def answer(self, response: object) -> None:
        pass

    def refuse(self, code: ErrorCode) -> None:
        pass


def without_topics(new_member_id: Callable[[], str]) -> ConsumerTables:
    """Groups whose members get nothing, for who has only classic groups."""
    nothing = _Nothing()
    return ConsumerTables(ConsumerGroupConfig(), nothing, nothing, new_member_id)


def session_timer(group_id: str, member_id: str) -> TimerKey:
    """A member must have sent a heartbeat by then."""
    return ("consumer-session", group_id, member_id)


def rebalance_timer(group_id: str, member_id: str) -> TimerKey:
    """A member must have given its partitions back by then."""
    return ("consumer-rebalance", group_id, member_id)
