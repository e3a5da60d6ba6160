"""Members of both protocols come, go and fall silent in any order, with failovers in between: no partition is owned
by two at any time, and in the end every one is owned by somebody."""

from __future__ import annotations

import random

import pytest
from tests.unit.groups.mixed_clients import TOPIC, Classic, Consumer
from tests.unit.groups.two_kinds import CONFIG, TwoKinds

from muster_coordinator.groups.config import GroupConfig
from muster_coordinator.requests import groups as m

PARTITIONS = 6
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
