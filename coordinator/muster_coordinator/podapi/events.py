"""Events of a pod for any number of watch streams.

A stream that reads slowly costs no memory: it holds at most one pending event per partition, always the newest one.
What is between two states is lost to it, which is fine for a reader that acts on levels.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable

from muster_coordinator.podapi.models import PartitionEvent, PodStatus, ReplicaStatus, StatusEvent

__all__ = ["EventHub"]


class EventHub:
    """Publishes on the event loop's thread; subscribers are independent of each other."""

    def __init__(self, status: Callable[[], PodStatus]) -> None:
        self._status = status
        self._streams: set[_Stream] = set()

    def __repr__(self) -> str:
        return f"EventHub(streams={len(self._streams)})"

    @property
    def has_streams(self) -> bool:
        """Whether anybody watches."""
        return bool(self._streams)

    def publish(self, partition: ReplicaStatus) -> None:
        """A partition changed its state, role, epoch, log id or reason. (Not for every commit.)"""
        for stream in self._streams:
            stream.put(partition)

    def publish_status(self) -> None:
        """Something of the whole pod changed, or many partitions at once."""
        for stream in self._streams:
            stream.put_status()

    async def subscribe(self) -> AsyncGenerator[StatusEvent | PartitionEvent, None]:
        stream = _Stream()
        self._streams.add(stream)
        try:
            while True:
                await stream.wakeup.wait()
                for event in stream.take(self._status):
                    yield event
        finally:
            self._streams.discard(stream)


class _Stream:
    """What one subscriber has not read yet."""

    def __init__(self) -> None:
        self.wakeup = asyncio.Event()
        self._whole = True  # the first event is the whole status
        self._partitions: dict[int, ReplicaStatus] = {}
        self.wakeup.set()

    def put(self, partition: ReplicaStatus) -> None:
        if not self._whole:  # the whole status is made when it is read, and holds this change then
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
