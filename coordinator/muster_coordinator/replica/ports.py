"""The protocols by which a replica uses the pod around it. Package `pod` implements them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from muster_coordinator.log.errors import DamagedLogError
from muster_coordinator.log.segments.copy import LogCopy
from muster_coordinator.log.writer import Pace
from muster_coordinator.replica.stored import StoredReplica
from muster_coordinator.replication.messages import Message
from muster_coordinator.tuning.pacing import Urgency


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


class InTurn(Protocol):
    """A replica that sends what was appended to the other replicas once per turn."""

    def end_turn(self) -> None: ...


class Turns(Protocol):
    """The pod's turns: all shards with work drain their queues, then one journal write follows."""

    def write(self, urgency: Urgency) -> None:
        """Something was staged for the journal. ELECTION: write it at once. COMMIT: it goes with the coming turn."""
        ...

    def next_write(self) -> asyncio.Future[bool]:
        """Done when the write that is on its way has ended, or the next one if there is none. False: the storage failed
        and has recovered, so what was staged is gone.
        """
        ...

    def end_turn_of(self, replica: InTurn) -> None:
        """Call `replica.end_turn` at the end of this turn, or of the next one."""
        ...


class Storage(Protocol):
    """The pod's data directory. The methods block, but `why_full`."""

    pace: Pace
    """The pace of the disk that has the journal and the promises."""

    def why_full(self) -> str:
        """The reason why no replica here should begin to lead, "" if there is room. Does not wait for the disk."""
        ...

    def begin_copy(self, replica: StoredReplica) -> LogCopy:
        """Returns an empty log beside that of `replica`. Raises OSError."""
        ...

    def swap(self, replica: StoredReplica, copy: LogCopy, horizon: int) -> None:
        """Put `copy` in place of the log, which no one may use meanwhile. Raises OSError, DamagedLogError."""
        ...


class StorageFailures(Protocol):
    """Learns that something on the pod's disk cannot be used."""

    def storage_failed(self, error: Exception) -> None:
        """A write failed: every replica of the pod gives up until the storage has recovered."""
        ...

    def log_damaged(self, partition: int, error: DamagedLogError) -> None:
        """The log of this replica must not be served any more. Its files stay as they are."""
        ...

    def replica_stopped(self, partition: int, reason: str) -> None:
        """This replica is stopped until people have looked at it: no core is made for it any more."""
        ...


class PartitionEvents(Protocol):
    """Learns of changes that the status of a replica shows."""

    def partition_changed(self, partition: int) -> None: ...
