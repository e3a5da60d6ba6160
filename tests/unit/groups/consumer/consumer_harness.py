"""Groups of the consumer protocol with a fake clock, fake timers and a log in memory.

Every result is replayed at once, as the shard does. After every step a follower, which sees nothing but the encoded
records, has the same groups, and so has a replay of the records that a group makes of itself.
"""

from __future__ import annotations

import itertools
from typing import Any

from muster_coordinator.groups.consumer.config import ConsumerGroupConfig, KafkaVersion
from muster_coordinator.groups.consumer.description import describe_consumer_group
from muster_coordinator.groups.consumer.expressions import take_resolved
from muster_coordinator.groups.consumer.group import ConsumerGroup
from muster_coordinator.groups.consumer.heartbeat import consumer_heartbeat
from muster_coordinator.groups.consumer.regexes import resolve
from muster_coordinator.groups.consumer.removal import on_member_timer, on_rebalance_timer, start_timers
from muster_coordinator.groups.consumer.subscriptions import metadata_hash
from muster_coordinator.groups.consumer.tables import ConsumerTables
from muster_coordinator.groups.effects import Effects
from muster_coordinator.records.consumer_group import METADATA_TYPE
from muster_coordinator.records.consumer_group_codec import decode_consumer_group_record
from muster_coordinator.requests import consumer_groups as c
from muster_coordinator.state_machine import Result, SetTimer, TimerKey

START_MS = 1_700_000_000_000
GROUP = "g"


def id_of(topic: str) -> bytes:
    return topic.encode().ljust(16, b".")


class Topics:
    """Implements `ConsumerTopics`: name -> number of partitions."""

    def __init__(self, **counts: int) -> None:
        self.counts = counts
        self.version = 0

    def change(self, topic: str, count: int) -> None:
        """0: the topic is gone."""
        self.counts[topic] = count
        if not count:
            del self.counts[topic]
        self.version += 1

    def find(self, topic: str) -> tuple[bytes, int] | None:
        count = self.counts.get(topic)
        return None if count is None else (id_of(topic), count)

    def name_of(self, topic_id: bytes) -> str | None:
        name = topic_id.decode().rstrip(".")
        return name if name in self.counts else None


class Resolving:
    """Implements `RegexResolving`; a token is the request itself."""

    def attempt(self, request: c.RegexesToResolve) -> c.RegexesToResolve:
        return request


def request(member_id: str, epoch: int, **fields: Any) -> c.ConsumerGroupHeartbeatRequest:
    """A heartbeat in which nothing has changed but `fields`."""
    values: dict[str, Any] = {
        "group_id": GROUP,
        "member_id": member_id,
        "member_epoch": epoch,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout_ms": -1,
        "subscribed_topic_names": None,
        "subscribed_topic_regex": None,
        "server_assignor": None,
        "topic_partitions": None,
        "client_id": "client",
        "client_host": "/127.0.0.1",
        "api_version": 1,
    }
    return c.ConsumerGroupHeartbeatRequest(**{**values, **fields})


class ConsumerHarness:
    def __init__(self, config: ConsumerGroupConfig | None = None, **topics: int) -> None:
        self.config = config or ConsumerGroupConfig(assignment_interval_ms=0)
        self.now_ms = START_MS
        self.topics = Topics(**topics)
        self.log: list[tuple[bytes, bytes | None]] = []
        self.timers: dict[TimerKey, int] = {}
        self.asked: list[c.RegexesToResolve] = []
        self.last: Result = Result()
        self.announced = KafkaVersion.KAFKA_4_3  # by an upstream
        self._ids = itertools.count(1)
        self.tables = self._new()
        self.follower = self._new()

    def _new(self) -> ConsumerTables:
        made = self.config, self.topics, Resolving(), lambda: f"made-{next(self._ids)}"
        return ConsumerTables(*made, lambda: self.announced)

    # -- steps ---------------------------------------------------------------------------------------------------------

    def send(self, sent: c.ConsumerGroupHeartbeatRequest) -> c.ConsumerGroupHeartbeatResponse:
        result = consumer_heartbeat(self.tables, sent, object(), self.now_ms)
        self._apply(result)
        assert isinstance(result.response, c.ConsumerGroupHeartbeatResponse)
        return result.response

    def join(self, member_id: str, *topics: str, **fields: Any) -> c.ConsumerGroupHeartbeatResponse:
        values = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": topics, "topic_partitions": ()}
        return self.send(request(member_id, 0, **{**values, **fields}))

    def beat(self, member_id: str, epoch: int, **fields: Any) -> c.ConsumerGroupHeartbeatResponse:
        return self.send(request(member_id, epoch, **fields))

    def leave(self, member_id: str, epoch: int = -1, **fields: Any) -> c.ConsumerGroupHeartbeatResponse:
        return self.send(request(member_id, epoch, **fields))

    def advance(self, delay_ms: int) -> None:
        """Let time pass; timers fire in order, each once, at their time."""
        end_ms = self.now_ms + delay_ms
        while due := [(at_ms, key) for key, at_ms in self.timers.items() if at_ms <= end_ms]:
            self.now_ms, key = min(due)
            del self.timers[key]
            kind, group_id, member_id = key
            fire = {"consumer-session": on_member_timer, "consumer-rebalance": on_rebalance_timer}[kind]
            self._apply(fire(self.tables, group_id, member_id))
        self.now_ms = end_ms

    def resolve(self, topics: dict[str, tuple[str, ...]] | None = None, fails: bool = False) -> None:
        """The answer to the oldest question for topics of regular expressions."""
        asked = self.asked.pop(0)
        found = resolve(asked.regexes, self.topics.counts, asked.may_describe) if topics is None else topics
        answer = None if fails else tuple(found.items())
        self._apply(
            take_resolved(self.tables, c.RegexesResolved(asked.group_id, answer, self.topics.version, self.now_ms))
        )

    def fail_over(self) -> None:
        """The follower leads, with nothing but the log; another one begins from the records that the groups make of
        themselves."""
        self.tables = self.follower
        self.tables.forget_live()
        self.timers.clear()
        self.asked.clear()
        effects = Effects()
        for group in self.tables.groups.values():
            start_timers(self.tables, group, effects)
        self.follower = self._copy()
        self._apply(effects.result())

    def _copy(self) -> ConsumerTables:
        copy = self._new()
        for group in self.tables.groups.values():
            for key, value, _ in group.records():
                copy.replay(decode_consumer_group_record(key, value))
        return copy

    def _apply(self, result: Result) -> None:
        self.last = result
        assert not result.imported
        for record in result.records:
            assert isinstance(record, tuple)
            key, value, change = record
            assert decode_consumer_group_record(key, value) == change
            self.tables.replay(change)
            self.follower.replay(decode_consumer_group_record(key, value))
            self.log.append((key, value))
        for timer in result.timers:
            self.timers.pop(timer.key, None)
            if isinstance(timer, SetTimer):
                self.timers[timer.key] = self.now_ms + timer.delay_ms
        self.asked += [reply.token for reply in result.replies]
        assert states(self.follower) == states(self.tables) == states(self._copy())
        for group_id in {record[2].group_id for record in result.records if record[2].type == METADATA_TYPE}:  # type: ignore[union-attr]
            group = self.tables.groups[group_id]
            assert group.metadata_hash == metadata_hash(group, self.topics), "what it foresaw is what came"

    # -- questions -----------------------------------------------------------------------------------------------------

    @property
    def group(self) -> ConsumerGroup:
        return self.tables.groups[GROUP]

    def describe(self) -> c.DescribedConsumerGroup:
        asked = c.DescribeConsumerGroupRequest(GROUP)
        described = describe_consumer_group(self.tables, asked, object(), self.now_ms).response
        assert isinstance(described, c.DescribedConsumerGroup)
        return described

    @property
    def record_types(self) -> list[int]:
        """Of the last step."""
        return [int.from_bytes(record[0][:2], "big") for record in self.last.records if isinstance(record, tuple)]


ATTRIBUTES: tuple[str, ...] = getattr(ConsumerGroup, "__mypyc_attrs__", None) or ConsumerGroup.__slots__
"""The attributes of a group, also of a compiled one."""


def states(tables: ConsumerTables) -> dict[str, dict[str, Any]]:
    return {group_id: {name: getattr(group, name) for name in ATTRIBUTES} for group_id, group in tables.groups.items()}
