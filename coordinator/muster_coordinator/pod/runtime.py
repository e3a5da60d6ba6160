"""What the parts of a pod's shard runtime share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from muster_coordinator.pod.data_directory import Storage
from muster_coordinator.pod.turns import Turns
from muster_coordinator.replica.load_turns import LoadTurns
from muster_coordinator.replica.log_reads import LogReads
from muster_coordinator.replica.ports import Peers
from muster_coordinator.replica.role import ShardFactory
from muster_coordinator.replication.settings import ReplicationSettings
from muster_coordinator.shard.metrics import ShardMetrics
from muster_coordinator.shard.ports import Clock
from muster_coordinator.tuning.pacing import Urgency

if TYPE_CHECKING:
    from muster_coordinator.pod.opening import Opening
    from muster_coordinator.replica.host import ReplicaHost

__all__ = ["Runtime"]

STORAGE_THREADS = 8
"""Blocking calls at a time: promises of many partitions are synced side by side."""


@dataclass
class Runtime:
    """``nomination_ms``: see ``ReplicaCore``; 0: never.

    ``storage_failed`` hears of a failed write, ``partition_changed`` of everything that a status shows; ``is_failed``:
    the storage takes no writes.
    """

    clock: Clock
    peers: Peers
    storage: Storage
    turns: Turns
    metrics: ShardMetrics
    nomination_ms: int
    shard_factory: ShardFactory
    storage_failed: Callable[[Exception], None]
    is_failed: Callable[[], bool]
    partition_changed: Callable[[int], None]
    replication: ReplicationSettings = field(default_factory=ReplicationSettings)
    load_turns: LoadTurns = field(default_factory=LoadTurns)
    log_reads: LogReads = field(init=False)
    opening: Opening = field(init=False)
    hosts: dict[int, ReplicaHost] = field(default_factory=dict)
    _with_turn: list[ReplicaHost] = field(default_factory=list)
    _threads: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(max_workers=STORAGE_THREADS, thread_name_prefix="storage")
    )
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.log_reads = LogReads(self)

    def end_turn_of(self, host: ReplicaHost) -> None:
        """Call ``host.end_turn`` at the end of this turn, or of the next one."""
        self._with_turn.append(host)
        self.turns.write(Urgency.COMMIT)

    def end_turn(self) -> None:
        while self._with_turn:
            hosts, self._with_turn = self._with_turn, []
            for host in hosts:
                host.end_turn()

    async def blocking(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """``function`` in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """A task that ends with the pod."""
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    @property
    def is_idle(self) -> bool:
        """No task of ``spawn`` runs."""
        return not self._tasks

    def cancel_tasks(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()

    def close(self) -> None:
        """When nothing runs any more."""
        self._threads.shutdown(wait=True)
