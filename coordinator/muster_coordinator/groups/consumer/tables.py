"""The groups of the consumer protocol of one offsets partition, and what their operations need besides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.consumer.config import ConsumerGroupConfig, KafkaVersion, with_own_configs
from muster_coordinator.groups.consumer.group import ConsumerGroup
from muster_coordinator.groups.consumer.topics import ConsumerTopics
from muster_coordinator.records.consumer_group import (
    CONFIGS_TYPE,
    METADATA_TYPE,
    PARTITION_METADATA_TYPE,
    ConsumerGroupRecord,
    GroupConfigsValue,
)
from muster_coordinator.records.consumer_group_codec import encode_consumer_group_key, encode_consumer_group_value
from muster_coordinator.requests.consumer_groups import RegexesToResolve
from muster_coordinator.state_machine import Record, TimerKey, Token


class RegexResolving(Protocol):
    def attempt(self, request: RegexesToResolve) -> Token:
        """Returns a token; the answer to it is the leave to begin, and `RegexesResolved` comes afterwards, once."""
        ...


class Live:
    """The part of a group's state that only an active leader knows."""

    __slots__ = ("awaited", "checked_version", "regex_version", "resolving")

    def __init__(self) -> None:
        self.awaited: set[str] = set()  # classic members that were told to join anew: a time-out runs
        self.resolving = False
        self.checked_version: int | None = None  # of the topics, when the metadata hash was computed last
        self.regex_version: int | None = None  # of the topics, when the expressions were resolved last


def without_upstream() -> KafkaVersion:
    """The release that counts where nobody announces one."""
    return KafkaVersion.KAFKA_4_3


class ConsumerTables:
    """`groups` and `own_configs` change in `replay` alone. `own_configs`: what administrators have set for a group,
    whether it exists or not. `new_member_id` is for members that make none themselves (before v1). `announced`: the
    release that the upstream is now."""

    __slots__ = (
        "_announced",
        "_configs",
        "_live",
        "config",
        "groups",
        "new_member_id",
        "own_configs",
        "regexes",
        "topics",
    )

    def __init__(
        self,
        config: ConsumerGroupConfig,
        topics: ConsumerTopics,
        regexes: RegexResolving,
        new_member_id: Callable[[], str],
        announced: Callable[[], KafkaVersion] = without_upstream,
    ) -> None:
        self._announced = announced
        self.config = config
        self.topics = topics
        self.regexes = regexes
        self.new_member_id = new_member_id
        self.groups: dict[str, ConsumerGroup] = {}
        self.own_configs: dict[str, dict[str, int]] = {}
        self._configs: dict[str, ConsumerGroupConfig] = {}  # of the groups that have configs of their own
        self._live: dict[str, Live] = {}

    @property
    def follows_4_4(self) -> bool:
        """True if the rules of 4.4 count now. Only operations may ask: a replay must not depend on what can change."""
        return (self.config.set_release or self._announced()) is KafkaVersion.KAFKA_4_4

    def config_of(self, group_id: str) -> ConsumerGroupConfig:
        """The settings, with what is set for this group in their place."""
        return self._configs.get(group_id, self.config)

    def live(self, group_id: str) -> Live:
        """The state of a group that has records, or gets its first ones now."""
        return self._live.setdefault(group_id, Live())

    def forget_live_of(self, group_id: str) -> None:
        """Another coordinator has served the group."""
        self._live.pop(group_id, None)

    def forget_live(self) -> None:
        """This pod does not lead any more."""
        self._live.clear()

    def replay(self, record: ConsumerGroupRecord) -> None:
        group_id = record.group_id
        if record.type == PARTITION_METADATA_TYPE:
            return  # of a broker before 4.1
        if record.type == CONFIGS_TYPE:
            self._set_configs(group_id, record.value)
            return
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

    def _set_configs(self, group_id: str, value: object) -> None:
        if isinstance(value, GroupConfigsValue):
            self.own_configs[group_id] = dict(value.configs)
            self._configs[group_id] = with_own_configs(self.config, self.own_configs[group_id])
        else:
            self.own_configs.pop(group_id, None)
            self._configs.pop(group_id, None)


def configs_record(group_id: str, configs: dict[str, int]) -> Record:
    """All that is set for a group; a tombstone if that is nothing."""
    value = GroupConfigsValue(tuple(sorted(configs.items()))) if configs else None
    return (
        encode_consumer_group_key(CONFIGS_TYPE, group_id),
        None if value is None else encode_consumer_group_value(value),
        ConsumerGroupRecord(CONFIGS_TYPE, group_id, "", value),
    )


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


def join_timer(group_id: str, member_id: str) -> TimerKey:
    """A classic member that was told to join anew must have done so by then."""
    return ("consumer-join", group_id, member_id)


def sync_timer(group_id: str, member_id: str) -> TimerKey:
    """A classic member that has joined must have sent SyncGroup by then."""
    return ("consumer-sync", group_id, member_id)
