"""The group coordinator of a replica, watched while the replica leads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.simulation.members import LiveGroups

from muster_coordinator.groups.coordinator import GroupCoordinator
from muster_coordinator.shard.shard import Shard
from muster_coordinator.state_machine import Operation, Result, TimerKey, Token

if TYPE_CHECKING:
    from tests.simulation.pods.process import HostedPod

__all__ = ["WatchedGroups"]


class WatchedGroups:
    """A `StateMachine`: the real one, whose operations and timers `LiveGroups` judges. What they did to members is
    known once their records are replayed: before the next of them, or at the end of the callback (`settle`).
    """

    def __init__(self, pod: HostedPod, coordinator: GroupCoordinator) -> None:
        self.coordinator = coordinator
        self._pod = pod
        self._shard: Shard | None = None
        self._live: LiveGroups | None = None
        self._pending: Callable[[], None] | None = None
        self.operations: Mapping[type, Operation] = {
            request: partial(self._operate, operation) for request, operation in coordinator.operations.items()
        }
        self.replay = coordinator.replay

    def __getattr__(self, name: str) -> Any:
        return getattr(self.coordinator, name)

    def monotonic_ms(self) -> int:
        return self._pod.clock.monotonic_ms()

    def on_loaded(self, now_ms: int) -> Result:
        shards = self._pod.manager.shards
        self._shard = next(one for one in shards.values() if one.machine is self)
        self._live = LiveGroups(self, self._pod.replica_of(self._shard.partition).partition.members)
        self._live.lead(self._shard.epoch)
        return self.coordinator.on_loaded(now_ms)

    def on_unloaded(self) -> tuple[Token, ...]:
        self.settle()
        self._live = None
        return self.coordinator.on_unloaded()

    def answers(self) -> None:
        """A client, perhaps by what was done in an earlier epoch of the same leader, which was elected again since."""
        if self._live is not None and self._shard is not None:
            self._live.lead_on(self._shard.epoch)

    def settle(self) -> None:
        pending, self._pending = self._pending, None
        if pending is not None:
            with self._pod.world.noting():
                pending()

    def _before(self, group_id: str) -> Any:
        self.settle()
        live, shard = self._live, self._shard
        assert live is not None, "an operation before the state was loaded"
        assert shard is not None
        live.lead_on(shard.epoch)
        return live, live.before(group_id)

    def _operate(self, operation: Operation, request: Any, token: Token, now_ms: int) -> Result:
        group_id = getattr(request, "group_id", "")
        live, was = self._before(group_id)
        result = operation(request, token, now_ms)
        live.heard(request, result.response)
        self._pending = partial(live.after, group_id, was, request, ())
        return result

    def on_timer(self, key: TimerKey, now_ms: int) -> Result:
        live, was = self._before(key[1])
        result = self.coordinator.on_timer(key, now_ms)
        self._pending = partial(live.after, key[1], was, None, key)
        return result
