"""The orderly end of a pod: it hands over what it leads before the process ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import structlog

from muster_coordinator.pod.replica_manager import ReplicaManager
from muster_coordinator.replication.epochs import NOBODY
from muster_coordinator.states import LEADING_STATES
from muster_coordinator.tuning.pacing import POLL_S

logger = structlog.get_logger(__name__)

OPERATOR_AWAY_S = 1.0
"""An operator that was heard within this time may still move partitions away. Its streams give a sign every 200 ms."""

LONGEST_DRAIN_S = 20.0
"""A drain whose moves go on ends after this time at the latest: Kubernetes leaves a pod 30 s."""

HAND_OVER_S = 1.0
"""A drained pod stays at most this long for new leaders that have not committed anything yet."""


class Drain:
    """`replicated`: partitions that other pods have replicas of. `changed` is called when the pod's status changes.

    `timeout_ms`: the drain goes on for as long as the next partition is moved away within this time.
    """

    def __init__(
        self,
        manager: ReplicaManager,
        replicated: Callable[[], Iterable[int]],
        changed: Callable[[], None],
        timeout_ms: int,
    ) -> None:
        self._manager = manager
        self._replicated = replicated
        self._changed = changed
        self._timeout_s = timeout_ms / 1000
        self._operator_heard_s: float | None = None  # on the loop's clock
        self._running: asyncio.Task[None] | None = None

    def operator_heard(self) -> None:
        self._operator_heard_s = asyncio.get_running_loop().time()

    async def run(self) -> None:
        """Return when this pod leads nothing any more. A second call waits for the first one's end."""
        if self._running is None:
            self._running = asyncio.create_task(self._run())
        await asyncio.shield(self._running)

    async def _run(self) -> None:
        """The pod gives up at once what has one replica, which has nowhere to go. It leads the other partitions until
        the operator has moved them away, so that their clients wait for one election and no longer. Then it stays until
        the new leaders have committed a record, because they may still fetch from this pod what their logs lack.
        """
        self._manager.start_draining()
        self._changed()  # first, so that no operator elects this pod for what it gives up now
        replicated = set(self._replicated()).intersection(led_partitions(self._manager))
        await resign_from(self._manager, set(led_partitions(self._manager)) - replicated)
        if not await self._moved_away(replicated):
            left = replicated.intersection(led_partitions(self._manager))
            logger.warning("drain_not_finished", partitions=sorted(left))
        await resign_from(self._manager, led_partitions(self._manager))
        await self._while_operator_is_near(lambda: all(self._led_elsewhere(p) for p in replicated), HAND_OVER_S)
        self._changed()

    async def _moved_away(self, partitions: set[int]) -> bool:
        """Wait until this pod leads none of them; False: the next one was not moved away in time."""
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + max(self._timeout_s, LONGEST_DRAIN_S)
        left = partitions

        def some_moved() -> bool:
            nonlocal left
            before, left = left, left.intersection(led_partitions(self._manager))
            return left != before

        while left:
            if not await self._while_operator_is_near(some_moved, min(self._timeout_s, ends_s - loop.time())):
                return False
        return True

    async def _while_operator_is_near(self, done: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until `done` returns True; False: the time is over, or no operator is heard any more."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        while not done():
            heard_s = self._operator_heard_s
            if heard_s is None or loop.time() - heard_s >= OPERATOR_AWAY_S or loop.time() >= deadline_s:
                return False
            await asyncio.sleep(POLL_S)
        return True

    def _led_elsewhere(self, partition: int) -> bool:
        """Another replica leads, and the replica here knows that a record of its epoch is committed."""
        host = self._manager.hosts.get(partition)
        core = host.core if host is not None else None
        if core is None:
            return True
        own_or_nobody = core.promise.leader in (core.log_id, NOBODY)
        return not own_or_nobody and core.log.epoch_before(core.commit_point) == core.promise.epoch


def led_partitions(manager: ReplicaManager) -> list[int]:
    """Partitions that this pod leads or is about to lead."""
    return [shard.partition for shard in manager.shards.values() if shard.state in LEADING_STATES]


async def resign_from(manager: ReplicaManager, partitions: Iterable[int]) -> None:
    """Promise the next epoch of each of them to no replica, durably."""
    replicas = manager.replicas
    await asyncio.gather(*(manager.resign(p, replicas[p].promised.epoch + 1) for p in partitions))
