"""Members of a consumer group that join, leave, crash, lose answers and change their mind, in any order.

At no moment have two members the same partition, neither by the coordinator's state nor by what the members
themselves hold; a replay of the records gives the same groups (the harness compares); and once nothing happens any
more, everybody has what is meant for it and every partition somebody that subscribes to it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.unit.groups.consumer.consumer_harness import ConsumerHarness, id_of

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.consumer.config import ConsumerGroupConfig
from muster_coordinator.groups.consumer.group import ConsumerGroup
from muster_coordinator.groups.consumer.member import Current
from muster_coordinator.requests import consumer_groups as c

TOPICS = ("t1", "t2", "u")
SUBSCRIPTIONS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("t1",), ""),
    (("t1", "t2"), ""),
    (("u", "t2", "unknown"), ""),
    ((), "t.*"),
    (("u",), "t.*"),
    ((), ".*"),
    ((), ""),
)
Partition = tuple[bytes, int]


class Client:
    """A consumer. `owned`: what it reads from; it gives back what it is not told any more when it gets to it."""

    def __init__(self, member_id: str, instance_id: str | None, subscription: tuple[tuple[str, ...], str]) -> None:
        self.member_id, self.instance_id, self.subscription = member_id, instance_id, subscription
        self.epoch = 0
        self.owned: set[Partition] = set()
        self.told: set[Partition] = set()
        self.is_sure = False  # of what the coordinator knows: an answer may have been lost

    def request(self) -> dict[str, Any]:
        names, regex = self.subscription
        fields: dict[str, Any] = {"instance_id": self.instance_id, "topic_partitions": self._reported()}
        if not self.is_sure:
            fields |= {"rebalance_timeout_ms": 20_000, "subscribed_topic_names": names}
            fields |= {"subscribed_topic_regex": regex}
        return fields

    def _reported(self) -> tuple[c.TopicPartitions, ...]:
        topics = {topic_id for topic_id, _ in self.owned}
        return tuple((t, tuple(sorted(p for topic_id, p in self.owned if topic_id == t))) for t in sorted(topics))

    def revoke(self) -> None:
        self.owned &= self.told

    def take(self, response: c.ConsumerGroupHeartbeatResponse) -> None:
        self.is_sure = True
        self.epoch = response.member_epoch
        if response.assignment is not None:
            self.told = {(topic_id, each) for topic_id, partitions in response.assignment for each in partitions}
            self.owned |= self.told

    def lose_everything(self) -> None:
        self.epoch, self.owned, self.told, self.is_sure = 0, set(), set(), False


class ConsumerGroups(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.h = ConsumerHarness(ConsumerGroupConfig(assignment_interval_ms=1000), t1=3, t2=2, u=1)
        self.clients: dict[str, Client] = {}
        self.numbers = 0

    def _draw(self, data: st.DataObject) -> Client:
        return data.draw(st.sampled_from(list(self.clients.values())))

    def _beat(self, client: Client, is_lost: bool = False) -> None:
        response = self.h.beat(client.member_id, client.epoch, **client.request())
        if is_lost:
            client.is_sure = False
        elif response.error_code in (ErrorCode.UNRELEASED_INSTANCE_ID, ErrorCode.FENCED_INSTANCE_ID):
            del self.clients[client.member_id]
        elif response.error_code:
            assert response.error_code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH), response
            assert client.epoch != 0
            client.lose_everything()
        else:
            client.take(response)

    # -- what happens --------------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.clients) < 5)
    @rule(
        subscription=st.sampled_from(SUBSCRIPTIONS),
        instance_id=st.sampled_from([None, None, "i", "j"]),
        is_lost=st.booleans(),
    )
    def join(self, subscription: tuple[tuple[str, ...], str], instance_id: str | None, is_lost: bool) -> None:
        self.numbers += 1
        client = self.clients[f"m{self.numbers}"] = Client(f"m{self.numbers}", instance_id, subscription)
        if instance_id is not None:
            is_lost = False  # it would find its own instance id in use
        self._beat(client, is_lost)

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), revokes=st.booleans(), is_lost=st.sampled_from([False, False, True]))
    def beat(self, data: st.DataObject, revokes: bool, is_lost: bool) -> None:
        client = self._draw(data)
        if revokes:
            client.revoke()
        if client.epoch == 0 and client.instance_id is not None:
            is_lost = False
        self._beat(client, is_lost)

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), subscription=st.sampled_from(SUBSCRIPTIONS))
    def subscribe(self, data: st.DataObject, subscription: tuple[tuple[str, ...], str]) -> None:
        client = self._draw(data)
        client.subscription, client.is_sure = subscription, False
        self._beat(client)

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), comes_back=st.booleans())
    def leave(self, data: st.DataObject, comes_back: bool) -> None:
        client = self._draw(data)
        del self.clients[client.member_id]
        epoch = -2 if client.instance_id is not None and comes_back else -1
        response = self.h.leave(client.member_id, epoch, instance_id=client.instance_id)
        fenced = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)
        assert response.error_code in (0, ErrorCode.GROUP_ID_NOT_FOUND, *fenced), response

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        del self.clients[self._draw(data).member_id]

    @rule(delay_ms=st.sampled_from([500, 1_000, 10_001, 21_000, 45_000]))
    def advance(self, delay_ms: int) -> None:
        self.h.advance(delay_ms)

    @rule(topic=st.sampled_from(TOPICS), count=st.integers(0, 4))
    def change_topic(self, topic: str, count: int) -> None:
        if self.h.topics.find(topic) is not None or count:
            self.h.topics.change(topic, count)

    @precondition(lambda self: self.h.asked)
    @rule(fails=st.sampled_from([False, False, True]))
    def resolve(self, fails: bool) -> None:
        self.h.resolve(fails=fails)

    @rule()
    def fail_over(self) -> None:
        self.h.fail_over()

    # -- what holds ----------------------------------------------------------------------------------------------------

    @invariant()
    def no_partition_has_two_owners(self) -> None:
        group = self.h.tables.groups.get("g")
        if group is None:
            return
        owned = [each for current in group.current.values() for each in _partitions(current)]
        assert len(owned) == len(set(owned)), group.current
        assert {(t, p): m for t, of_topic in group.owners.items() for p, m in of_topic.items()} == {
            each: member_id for member_id, current in group.current.items() for each in _partitions(current)
        }
        # Who is out of the group, and has not heard of it, may read on; nothing of it can be committed.
        held = [each for client in self.clients.values() if client.member_id in group.members for each in client.owned]
        assert len(held) == len(set(held)), {client.member_id: client.owned for client in self.clients.values()}
        assert group.current.keys() == group.members.keys()
        assert group.target_epoch <= group.epoch

    def teardown(self) -> None:
        """Nothing happens any more: the group gets to its target."""
        for _ in range(40):
            self.h.advance(5_000)
            while self.h.asked:
                self.h.resolve()
            for client in list(self.clients.values()):
                client.revoke()
                self._beat(client)
            self.no_partition_has_two_owners()
        group = self.h.tables.groups.get("g")
        if group is None or not group.members:
            assert not self.clients
            return
        assert group.members.keys() == self.clients.keys()
        assert group.state == "Stable", group
        before = len(self.h.log)
        for client in self.clients.values():
            self._beat(client)
        assert len(self.h.log) == before, "a heartbeat without news wrote records"
        self._check_assignment()

    def _check_assignment(self) -> None:
        owner = {each: client.member_id for client in self.clients.values() for each in client.owned}
        wanted: set[Partition] = set()
        for client in self.clients.values():
            topics = _topics(client.subscription, self.h.topics.counts)
            assert {topic_id for topic_id, _ in client.owned} <= {id_of(topic) for topic in topics}
            assert client.owned == set(_partitions(self.h.group.current_of(client.member_id)))
            target = self.h.group.target_of(client.member_id)
            assert client.owned == {(t, p) for t, partitions in target.items() for p in partitions}
            wanted |= {(id_of(topic), each) for topic in topics for each in range(self.h.topics.counts[topic])}
        assert owner.keys() == wanted


def _partitions(current: Current) -> Iterator[Partition]:
    for owned in (current.assigned, current.pending_revocation):
        for topic_id, epochs in owned.items():
            yield from [(topic_id, each) for each in epochs]


def _targets(group: ConsumerGroup) -> dict[str, set[Partition]]:
    return {
        member_id: {(t, p) for t, partitions in group.target_of(member_id).items() for p in partitions}
        for member_id in group.members
    }


def _topics(subscription: tuple[tuple[str, ...], str], existing: dict[str, int]) -> set[str]:
    names, regex = subscription
    prefix = {"": None, ".*": "", "t.*": "t"}[regex]
    found = {topic for topic in existing if prefix is not None and topic.startswith(prefix)}
    return found | {topic for topic in names if topic in existing}


@pytest.mark.parametrize("seed", range(20))
def test_new_target_moves_no_more_than_balance_takes(seed: int) -> None:
    """Members subscribe alike: one that loses something has its whole share still, and gets nothing in
    exchange, whoever comes, goes or falls silent, and over failovers."""
    chance = Random(seed)
    h = ConsumerHarness(ConsumerGroupConfig(assignment_interval_ms=0), t1=5, t2=4)
    before: dict[str, set[Partition]] = {}
    for number in range(25):
        if before and chance.random() < 0.4:
            h.leave(chance.choice(sorted(before)), -1)
        else:
            h.beat(
                f"m{number}", 0, subscribed_topic_names=("t1", "t2"), rebalance_timeout_ms=20_000, topic_partitions=()
            )
        if chance.random() < 0.2:
            h.fail_over()
        group = h.tables.groups.get("g")
        after = _targets(group) if group is not None else {}
        for member_id in before.keys() & after.keys():
            had, has = before[member_id], after[member_id]
            assert had <= has or (has < had and len(has) >= 9 // len(after)), (before, after)
        before = after


TestConsumerGroups = ConsumerGroups.TestCase
TestConsumerGroups.settings = settings(
    max_examples=int(os.environ.get("HYPOTHESIS_MAX_EXAMPLES", "60")),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
