"""What a re-shard does to one partition: close it to clients, and open it again. Calls may come late, twice, or to a
pod that leads no more.

The steps are numbered 2n for "closed by re-shard n" and 2n + 1 for "opened by it": a history in which no answer may go
back (docs/resharding.md: what was opened in one re-shard is never closed in it again).
"""

from __future__ import annotations

from tests.simulation.cluster import Partition
from tests.simulation.history import Start
from tests.simulation.injected import Injected
from tests.simulation.store import Recorded

from muster_coordinator.records.control import Fence

__all__ = ["FenceClient"]

AGAIN_MS = 200
OPEN_AFTER_MS = 400


class FenceClient:
    def __init__(self, partition: Partition, store: Recorded) -> None:
        self.partition = partition
        self._world = partition.world
        self._store = store
        self._history = partition.fences
        self._step = 1  # the last one that was reached: opened by re-shard 0
        self._history.tries(1)
        self._history.acknowledged(1, self._history.start())
        self._world.every(self._world.options.fence_every_ms, self._begin)
        self._world.every(self._world.options.fence_every_ms, self._repeat)

    @property
    def is_closed(self) -> bool:
        return self._history.tried > self._step or self._step % 2 == 0

    def _begin(self) -> None:
        if not self.is_closed:
            self._history.tries(self._step + 1)
            self._reach(self._step + 1)

    def _reach(self, step: int) -> None:
        """Until it is reached: call whoever may lead. A loss that a person allowed may have taken the closing."""
        if self._step >= step:
            return
        if step % 2 and self.partition.checker.loss_accepted:
            self._call(step - 1)
        self._call(step)
        self._world.at(AGAIN_MS, lambda: self._reach(step))

    def _repeat(self) -> None:
        """A call of before, late."""
        self._call(self._world.random.randint(1, self._history.tried) + 1)

    def _call(self, step: int) -> None:
        world, replicas = self._world, self.partition.replicas
        leading = [one for one in replicas.values() if one.core is not None and one.core.leading_epoch >= 0]
        target = replicas[self._store.record.leader] if not leading else world.random.choice(leading)
        if step > self._history.tried:
            return

        def answered(answer: Fence | Exception) -> None:
            world.send(target.pod.name, "reshard", lambda: self._heard(answer, start))

        start = self._history.start()
        reshard, opens = divmod(step, 2)
        call = lambda: target.fence(reshard, close=not opens, answer=answered)  # noqa: E731
        world.send("reshard", target.pod.name, call)

    def _heard(self, answer: Fence | Exception, start: Start) -> None:
        """A refusal says nothing: who asks comes again."""
        if isinstance(answer, Exception):
            return
        step = 2 * answer.reshard + (not answer.closed)
        self._history.read(step, start)
        if step == self._step + 1:
            self._step = step
            self._world.injected[Injected.FENCED] += answer.closed
            self._world.log(f"partition {self.partition.index} is {'closed' if answer.closed else 'open'}: {step}")
            if answer.closed:
                self._world.at(self._world.random.randint(1, OPEN_AFTER_MS), self._open)

    def _open(self) -> None:
        self._history.tries(self._step + 1)
        self._reach(self._step + 1)
