"""A new target assignment is that of a specification made of the members one by one, whatever has happened before: a
group counts its subscriptions as records come, and a heartbeat counts on from there."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from tests.unit.groups.consumer.consumer_harness import ConsumerHarness, Topics, request

from muster_coordinator.groups.consumer.assignors.spec import Assignment, GroupSpec
from muster_coordinator.groups.consumer.assignors.table import assign
from muster_coordinator.groups.consumer.group import ConsumerGroup
from muster_coordinator.groups.consumer.member import subscription_of
from muster_coordinator.records.consumer_group import TARGET_METADATA_TYPE

SUBSCRIPTIONS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("t1", "t2"), ""),
    (("t1", "t2"), ""),
    (("t2",), ""),
    ((), "t.*"),
    (("u", "unknown"), "t.*"),
)


class Drawn(ConsumerHarness):
    """A group whose members do at random what members do."""

    def __init__(self, chance: Random) -> None:
        super().__init__(t1=5, t2=7, u=2)
        self.chance = chance
        self.kinds = SUBSCRIPTIONS[: chance.choice([2, 2, len(SUBSCRIPTIONS)])]
        self.made = 0

    def step(self) -> None:
        members = sorted(self.tables.groups["g"].members) if "g" in self.tables.groups else []
        what = self.chance.random()
        if what < 0.3 or not members:
            self.enter()
        elif what < 0.5:
            member_id = self.chance.choice(members)
            self.say(member_id, self.group.current_of(member_id).epoch, instance_id=self._instance(member_id))
        elif what < 0.7:
            member_id = self.chance.choice(members)
            instance_id = self._instance(member_id)
            self.leave(member_id, -1 if instance_id is None else -2, instance_id=instance_id)
        elif what < 0.8:
            topic = self.chance.choice(list(self.topics.counts))
            self.topics.change(topic, self.topics.counts[topic] + 1)
        elif what < 0.9:
            self.fail_over()
        elif self.asked:
            self.resolve()

    def enter(self) -> None:
        self.made += 1
        self.say(f"m{self.made}", 0, instance_id=self.chance.choice([None, None, "i", "j"]))

    def say(self, member_id: str, epoch: int, instance_id: str | None) -> None:
        """It may be refused: its instance id may be in use, or the member away."""
        names, regex = self.chance.choice(self.kinds)
        changes = {"subscribed_topic_names": names, "subscribed_topic_regex": regex, "topic_partitions": ()}
        self.send(request(member_id, epoch, rebalance_timeout_ms=20_000, instance_id=instance_id, **changes))

    def _instance(self, member_id: str) -> str | None:
        return self.group.members[member_id].instance_id


def made_one_by_one(group: ConsumerGroup, topics: Topics, targets: dict[str, Assignment]) -> GroupSpec:
    subscribed: dict[str, dict[str, None]] = {}
    for member_id, value in group.members.items():
        resolved = group.regexes.get(value.subscribed_topic_regex or "")
        names = (*value.subscribed_topic_names, *(() if resolved is None else resolved.topics))
        subscribed[member_id] = {name: None for name in names if topics.find(name) is not None}
    said = {(value.subscribed_topic_names, value.subscribed_topic_regex or "") for value in group.members.values()}
    static = {member_id: value.instance_id for member_id, value in group.members.items()}
    found = {name: topics.find(name) for names in subscribed.values() for name in names}
    return GroupSpec(
        {member_id: tuple([_id(topics, name) for name in names]) for member_id, names in subscribed.items()},
        len(said) == 1 and not any(names and regex for names, regex in said),
        dict([each for each in found.values() if each is not None]),
        targets,
        {member_id: instance_id for member_id, instance_id in static.items() if instance_id is not None},
    )


def _id(topics: Topics, name: str) -> bytes:
    found = topics.find(name)
    assert found is not None
    return found[0]


@pytest.mark.parametrize("seed", range(30))
def test_target_is_that_of_a_specification_made_of_the_members_one_by_one(seed: int) -> None:
    h = Drawn(Random(seed))
    computed = 0
    for _ in range(60):
        known = h.tables.groups.get("g")
        targets = {} if known is None else dict(known.targets)
        static = {} if known is None else dict(known.static_members)
        h.last = type(h.last)()
        h.step()
        group = h.tables.groups.get("g")
        if group is None:
            continue
        assert group.subscriptions == Counter(map(subscription_of, group.members.values()))
        for instance_id, before in static.items():
            after = group.static_members.get(instance_id, before)
            if after != before:
                targets[after] = targets.pop(before)
        if TARGET_METADATA_TYPE in h.record_types and group.target_epoch > 1:
            spec = made_one_by_one(group, h.topics, {each: targets[each] for each in targets if each in group.members})
            assert group.targets == assign("uniform", spec)
            computed += 1
    assert computed > 5
