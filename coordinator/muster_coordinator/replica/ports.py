"""What a replica needs of the pod around it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from muster_coordinator.replication.messages import Message

__all__ = ["Peers", "Workers"]


class Workers(Protocol):
    """The pod's threads and background tasks."""

    async def blocking(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run `function` in a thread; returns or raises what it does."""
        ...

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task that is cancelled when the pod stops."""
        ...


class Peers(Protocol):
    """The way to the replicas in other pods. What they send is given to `ReplicaManager.receive`, and a connection that
    another pod has closed to `ReplicaManager.disconnected`.

    Messages may be lost, late or doubled. Between two pods they should arrive in order.
    """

    def send(self, partition: int, message: Message) -> None:
        """Queue `message` for the pod that has the replica `message.to` of `partition`. It is sent at the end of this
        turn of the event loop, or dropped if that pod is not known or too much is queued for it.
        """
        ...
