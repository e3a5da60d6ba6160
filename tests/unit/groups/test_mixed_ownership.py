"""Members of both protocols come, go and fall silent in any order, with failovers in between: no partition is owned
by two at any time, and in the end every one is owned by somebody."""

from __future__ import annotations

import os
import random
from typing import Any

import pytest
from tests.unit.groups.mixed_clients import TOPIC, Classic, Consumer
from tests.unit.groups.two_kinds import CONFIG, TwoKinds

from muster_coordinator.groups.classic import consumer_groups, migration
from muster_coordinator.groups.classic.migration import downgrade, end_classic
from muster_coordinator.groups.config import GroupConfig
from muster_coordinator.groups.consumer import classic_members
from muster_coordinator.groups.consumer.embedded import Subscription, read_subscription
from muster_coordinator.groups.effects import Effects
from muster_coordinator.requests import groups as m
from muster_coordinator.state_machine import SetTimer

PARTITIONS = 6
MOST_SEEDS = 150  # until a planted fault must be caught
STEPS = 150
BEAT_MS = 1_000
SETTLING_STEPS = 120  # longer than the sessions of those that fell silent

Client = Consumer | Classic


class Run:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.h = TwoKinds(config=GroupConfig(initial_rebalance_delay_ms=1_000), consumer_config=CONFIG)
        self.h.consumer_topics.change(TOPIC, PARTITIONS)
        self.clients: list[Client] = []
        self.names = 0
        self.kinds: set[str] = set()  # that the group had
        self.changes = 0  # of the kind

    def come(self) -> None:
        self.names += 1
        name = f"m{self.names:03}"
        kind = self.random.choice(("consumer", "eager", "cooperative"))
        if kind == "consumer":
            self.clients.append(Consumer(self.h, name))
        else:
            self.clients.append(Classic(self.h, name, cooperative=kind == "cooperative"))

    def fall_silent(self) -> None:
        """A client dies without a word; what it owned is free once its session is over."""
        if self.clients:
            self.clients.remove(self.random.choice(self.clients))

    def leave(self) -> None:
        if self.clients:
            client = self.random.choice(self.clients)
            client.leave()
            self.clients.remove(client)
            if self.random.random() < 0.2:  # before a member hears of it
                self.h.reload()

    def poll(self) -> None:
        for client in self.random.sample(self.clients, len(self.clients)):
            client.poll()
            self.check()

    def check(self) -> None:
        owners: dict[int, Client] = {}
        for client in self.clients:
            for partition in client.owned:
                assert partition not in owners, f"{partition} is owned by two"
                owners[partition] = client
        listed = self.h.send(m.ListGroupsRequest()).response.groups
        kind = {each.group_type for each in listed}
        if kind and kind != self.kinds:
            self.changes += bool(self.kinds)
            self.kinds = kind

    def step(self) -> None:
        action = self.random.random()
        if action < 0.08 and len(self.clients) < 5:
            self.come()
        elif action < 0.14:
            self.leave()
        elif action < 0.16:
            self.fall_silent()
        elif action < 0.20:
            self.h.reload()
        elif action < 0.22:
            self.h.consumer_topics.change(TOPIC, self.h.consumer_topics.counts[TOPIC] + 1)
        self.poll()
        self.h.advance(self.random.choice((0, 100, BEAT_MS)))

    def settle(self) -> None:
        if not self.clients:
            self.come()
        for _ in range(SETTLING_STEPS):
            self.poll()
            self.h.advance(BEAT_MS)
        owned = [partition for client in self.clients for partition in client.owned]
        assert sorted(owned) == list(range(self.h.consumer_topics.counts[TOPIC]))


@pytest.mark.parametrize("seed", range(40))
def test_no_partition_is_owned_by_two(seed: int) -> None:
    run = Run(seed)
    for _ in range(STEPS):
        run.step()
    run.settle()


def test_runs_change_the_kind_of_their_group() -> None:
    changes = []
    for seed in range(10):
        run = Run(seed)
        for _ in range(STEPS):
            run.step()
        changes.append(run.changes)
    assert sum(changes) > 10


# -- planted faults ---------------------------------------------------------------------------------------------------


def _nothing(*arguments: object) -> Any:
    return {}


def _without_owned(metadata: bytes) -> Subscription:
    return read_subscription(metadata)._replace(owned=())


def _without_rebalance(state: Any, group: Any, leaving: Any, _rebalance: bool, effects: Effects, now_ms: int) -> None:
    downgrade(state, group, leaving, False, effects, now_ms)


def _without_replies(group: Any, effects: Effects) -> None:
    lost = Effects()
    end_classic(group, lost)
    for timer in lost.result().timers:
        if isinstance(timer, SetTimer):
            effects.set_timer(timer.key, timer.delay_ms)
        else:
            effects.cancel_timer(timer.key)


def _never(*arguments: object) -> bool:
    return False


FAULTS: dict[str, tuple[Any, str, Any]] = {
    "an upgrade forgets what classic members have": (migration, "_with_ids", _nothing),
    "what a cooperative member gives back is free at once": (migration, "read_subscription", _without_owned),
    "a classic member's partitions are revoked without its word": (classic_members, "_with_ids", lambda *_: ()),
    "a classic member is not told that partitions are free": (classic_members, "_has_to_join", _never),
    "a downgrade does not rebalance": (consumer_groups, "downgrade", _without_rebalance),
    "an upgrade does not answer who waits": (consumer_groups, "end_classic", _without_replies),
}


FIRST_SEEDS = {"what a cooperative member gives back is free at once": 60}  # it takes a moment that is rare


def run_seeds(first: int) -> None:
    for seed in range(first, MOST_SEEDS):
        run = Run(seed)
        for _ in range(STEPS):
            run.step()
        run.settle()


@pytest.mark.skipif(
    "MUSTER_TEST_COMPILED" in os.environ, reason="compiled code finds functions of its own module at once, not by name"
)
@pytest.mark.parametrize("fault", FAULTS)
def test_planted_fault_is_caught(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, name, wrong = FAULTS[fault]
    monkeypatch.setattr(module, name, wrong)
    with pytest.raises(AssertionError):
        run_seeds(FIRST_SEEDS.get(fault, 0))
