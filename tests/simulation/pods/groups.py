"""The group coordinator of a replica, watched while the replica leads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.simulation.consuming.live import LiveConsumers
from tests.simulation.members import LiveGroups
from tests.simulation.pods.network import ClientAnswer

from muster_coordinator.groups.consumer.tables import ConsumerTables
from muster_coordinator.groups.coordinator import GroupCoordinator
from muster_coordinator.shard.shard import Shard
from muster_coordinator.state_machine import Operation, Result, TimerKey, Token

if TYPE_CHECKING:
    from tests.simulation.pods.process import HostedPod

__all__ = ["WatchedGroups"]


class WatchedGroups:
    """A `StateMachine`: the real one, whose operations and timers `LiveGroups` and `LiveConsumers` judge. What they
    did to members is known once their records are replayed: before the next of them, or at the end of the callback
    (`settle`).
    """

    def __init__(self, pod: HostedPod, coordinator: GroupCoordinator, consumers: ConsumerTables) -> None:
        self.coordinator = coordinator
        self.consumers = consumers
        self._pod = pod
        self._shard: Shard | None = None
        self._live: tuple[LiveGroups, LiveConsumers] | None = None
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
        partition = self._pod.replica_of(self._shard.partition).partition
        self._live = LiveGroups(self, partition.members), LiveConsumers(self, partition.consumers)
        self._lead_on()
        return self.coordinator.on_loaded(now_ms)

    def on_unloaded(self) -> tuple[Token, ...]:
        self.settle()
        self._live = None
        return self.coordinator.on_unloaded()

    def answers(self) -> None:
        """A client, perhaps by what was done in an earlier epoch of the same leader, which was elected again since."""
        self._lead_on()

    def _lead_on(self) -> None:
        if self._live is not None and self._shard is not None:
            for live in self._live:
                live.lead_on(self._shard.epoch)

    def settle(self) -> None:
        pending, self._pending = self._pending, None
        if pending is not None:
            with self._pod.world.noting():
                pending()

    def _judged(self, group_id: str, message: Any, timer: TimerKey, do: Callable[[], Result]) -> Result:
        """`do` handles `message` or `timer`; the other one is empty."""
        self.settle()
        assert self._live is not None, "an operation before the state was loaded"
        self._lead_on()
        classic, modern = self._live
        had, was = classic.before(group_id), modern.before(group_id)
        result = do()
        if message is not None:
            classic.heard(message, result.response)
            with self._pod.world.noting():
                modern.answered(was, message, result.response)

        def after() -> None:
            classic.after(group_id, had, message, timer, was)
            modern.after(group_id, was, message, timer)

        self._pending = after
        return result

    def _operate(self, operation: Operation, request: Any, token: Token, now_ms: int) -> Result:
        group_id = getattr(request, "group_id", "")
        if isinstance(token, ClientAnswer):
            group = self.coordinator.group(group_id)
            token.generation = -1 if group is None else group.generation
        return self._judged(group_id, request, (), lambda: operation(request, token, now_ms))

    def on_timer(self, key: TimerKey, now_ms: int) -> Result:
        return self._judged(key[1], None, key, lambda: self.coordinator.on_timer(key, now_ms))
