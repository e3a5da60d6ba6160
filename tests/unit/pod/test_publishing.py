"""A change of state is published at once, positions only now and then and only while somebody watches."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from muster_coordinator.pod import publishing
from muster_coordinator.pod.publishing import PartitionPublisher
from muster_coordinator.podapi.events import EventHub
from muster_coordinator.podapi.models import FollowerStatus, PartitionEvent, PodStatus, ReplicaStatus
from muster_coordinator.states import ReplicaRole, ShardState


class Watched:
    """One partition, and the publisher of its status; `published` are the end offsets that went out."""

    def __init__(self) -> None:
        self.status = ReplicaStatus(0, ShardState.ACTIVE, role=ReplicaRole.LEADER, followers=(FollowerStatus("f", 0),))
        self.asked = 0
        self.published: list[ReplicaStatus] = []
        self.hub = EventHub(lambda: PodStatus("pod-0", 0, "u", "b", "1", "h:1", True))
        publish = self.hub.publish
        self.hub.publish = lambda s: (self.published.append(s), publish(s))[1]  # type: ignore[method-assign]
        self.publisher = PartitionPublisher(self.hub, self._status, lambda: [0])

    def _status(self, partition: int) -> ReplicaStatus:
        self.asked += 1
        return self.status

    def grow(self, end: int) -> None:
        self.status = ReplicaStatus(
            0,
            ShardState.ACTIVE,
            role=ReplicaRole.LEADER,
            log_end_offset=end,
            high_watermark=end,
            groups=end,
            followers=(FollowerStatus("f", end),),
        )
        self.publisher.changed(0)


def test_positions_are_not_published_as_they_change() -> None:
    watched = Watched()
    for end in range(1000):
        watched.grow(end)
    assert [s.log_end_offset for s in watched.published] == [0]


@pytest.mark.parametrize(
    "changed",
    [
        ReplicaStatus(0, ShardState.FAILED),
        ReplicaStatus(
            0, ShardState.ACTIVE, role=ReplicaRole.LEADER, followers=(FollowerStatus("f", 0, rebuilding=True),)
        ),
        ReplicaStatus(0, ShardState.ACTIVE, role=ReplicaRole.LEADER, followers=(FollowerStatus("g", 0),)),
        ReplicaStatus(0, ShardState.ACTIVE, role=ReplicaRole.LEADER, followers=(FollowerStatus("f", -1),)),
        ReplicaStatus(0, ShardState.ACTIVE, role=ReplicaRole.LEADER, epoch=2, followers=(FollowerStatus("f", 0),)),
    ],
)
def test_change_of_state_is_published_at_once(changed: ReplicaStatus) -> None:
    watched = Watched()
    watched.grow(7)
    watched.status = changed
    watched.publisher.changed(0)
    assert watched.published[1:] == [changed]


async def test_positions_go_out_in_intervals_and_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "POSITIONS_S", 0.001)
    watched = Watched()
    watched.publisher.start()
    async with aclosing(watched.hub.subscribe()) as events:
        await anext(events)
        watched.grow(1)
        assert await anext(events) == PartitionEvent(watched.status)
        watched.grow(2)
        assert await anext(events) == PartitionEvent(watched.status)
        asked = watched.asked
        while watched.asked < asked + 5:
            await asyncio.sleep(0)
    watched.publisher.stop()
    assert [s.log_end_offset for s in watched.published] == [1, 2]


async def test_without_a_stream_no_position_is_even_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "POSITIONS_S", 0)
    watched = Watched()
    watched.publisher.start()
    for _ in range(20):
        await asyncio.sleep(0)
    watched.publisher.stop()
    assert watched.asked == 0
