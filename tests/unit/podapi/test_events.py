"""The hub behind watch streams: nothing grows when a stream does not read."""

from __future__ import annotations

from contextlib import aclosing

from muster_coordinator.podapi.events import EventHub
from muster_coordinator.podapi.models import PartitionEvent, PodStatus, ReplicaStatus, StatusEvent
from muster_coordinator.states import ShardState


def status() -> PodStatus:
    return PodStatus("pod-0", 0, "uid", "boot", "1", "127.0.0.1:9092", True)


async def test_first_event_is_the_status_even_after_changes() -> None:
    hub = EventHub(status)
    async with aclosing(hub.subscribe()) as events:
        assert await anext(events) == StatusEvent(status())
        hub.publish(ReplicaStatus(0, ShardState.ACTIVE))
        assert await anext(events) == PartitionEvent(ReplicaStatus(0, ShardState.ACTIVE))


async def test_slow_stream_sees_only_the_newest_state_of_each_partition() -> None:
    hub = EventHub(status)
    async with aclosing(hub.subscribe()) as events:
        await anext(events)
        for end in range(1000):
            hub.publish(ReplicaStatus(0, ShardState.ACTIVE, log_end_offset=end))
        hub.publish(ReplicaStatus(1, ShardState.LOADING))
        first, second = await anext(events), await anext(events)
    assert isinstance(first, PartitionEvent)
    assert first.partition.log_end_offset == 999
    assert second == PartitionEvent(ReplicaStatus(1, ShardState.LOADING))


async def test_whole_status_replaces_pending_partition_events() -> None:
    hub = EventHub(status)
    async with aclosing(hub.subscribe()) as events:
        await anext(events)
        hub.publish(ReplicaStatus(0, ShardState.ACTIVE))
        hub.publish_status()
        hub.publish(ReplicaStatus(0, ShardState.FAILED))
        assert await anext(events) == StatusEvent(status())
        hub.publish(ReplicaStatus(0, ShardState.CLOSED))
        assert await anext(events) == PartitionEvent(ReplicaStatus(0, ShardState.CLOSED))


async def test_streams_are_independent() -> None:
    hub = EventHub(status)
    async with aclosing(hub.subscribe()) as one, aclosing(hub.subscribe()) as two:
        await anext(one)
        hub.publish(ReplicaStatus(0, ShardState.ACTIVE))
        assert isinstance(await anext(one), PartitionEvent)
        assert isinstance(await anext(two), StatusEvent)
