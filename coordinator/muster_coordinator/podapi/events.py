"""Events of a pod for any number of watch streams.

A slow reader costs no memory: its stream holds at most one pending event per partition, the newest one. It misses
states in between, which does not matter to a reader that acts on states and not on their changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable

from muster_coordinator.podapi.models import PartitionEvent, PodStatus, ReplicaStatus, StatusEvent


class EventHub:
    """Publishes on the event loop's thread. Subscribers are independent of one another."""

    def __init__(self, status: Callable[[], PodStatus]) -> None:
        self._status = status
        self._streams: dict[_Stream, None] = {}  # in the order in which they were opened

    def __repr__(self) -> str:
        return f"EventHub(streams={len(self._streams)})"

    @property
    def has_streams(self) -> bool:
        """True if any stream is open."""
        return bool(self._streams)

    def publish(self, partition: ReplicaStatus) -> None:
        """The replica of a partition has changed in more than its positions, which move with every commit."""
        for stream in self._streams:
            stream.put(partition)

    def publish_status(self) -> None:
        """The pod has changed in something that is not of one partition, or in many partitions at once."""
        for stream in self._streams:
            stream.put_status()

    async def subscribe(self) -> AsyncGenerator[StatusEvent | PartitionEvent, None]:
        stream = _Stream()
        self._streams[stream] = None
        try:
            while True:
                await stream.wakeup.wait()
                for event in stream.take(self._status):
                    yield event
        finally:
            self._streams.pop(stream, None)


class _Stream:
    """The events that one subscriber has not read yet."""

    def __init__(self) -> None:
        self.wakeup = asyncio.Event()
        self._whole = True  # the first event is the whole status
        self._partitions: dict[int, ReplicaStatus] = {}
        self.wakeup.set()

    def put(self, partition: ReplicaStatus) -> None:
        if not self._whole:  # else the whole status, which is made when it is read, will hold this change
            self._partitions[partition.partition] = partition
        self.wakeup.set()

    def put_status(self) -> None:
        self._whole = True
        self._partitions.clear()
        self.wakeup.set()

    def take(self, status: Callable[[], PodStatus]) -> list[StatusEvent | PartitionEvent]:
        self.wakeup.clear()
        if self._whole:
            self._whole = False
            return [StatusEvent(status())]
        events: list[StatusEvent | PartitionEvent] = [PartitionEvent(p) for p in self._partitions.values()]
        self._partitions.clear()
        return events
