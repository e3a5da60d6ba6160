"""What every step gets: the observation, the ports, and what is remembered of a cluster between reconciles."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from muster_operator.api.models import FailoverRecord
from muster_operator.attempts import Attempts
from muster_operator.clock import Clock
from muster_operator.metrics import OperatorMetrics
from muster_operator.plan.observation import Image, ImageNumber, Observation
from muster_operator.pods.sessions import PodSessions
from muster_operator.store.port import ClusterKey, Store
from muster_operator.store.workload import Workload

__all__ = ["Context", "Memory", "Outcome"]

FAILOVERS_KEPT = 20
TELL_EVERY_S = 1.0
"""What is written for people only (counts, conditions) is written at most so often."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a step did, in one line. `code` is stable (CamelCase); NOTHING for a step that had nothing to do."""

    code: str
    text: str


@dataclass(slots=True)
class Memory:
    """Of one cluster. All of it can be lost: it saves calls, it never decides who leads."""

    attempts: Attempts
    image: Image | None = None
    image_number: ImageNumber = (-1, -1)
    busy: set[tuple[str, str]] = field(default_factory=set)
    runs: dict[str, int] = field(default_factory=dict)
    lost_at: dict[str, tuple[float, str | None, bool]] = field(default_factory=dict)
    """When a partition lost its leader (monotonic seconds), whom, and if that was planned; until it has one again."""
    back_at: dict[str, float] = field(default_factory=dict)
    """When a partition was seen led again (monotonic seconds), of those of which that is not recorded yet."""
    untold_since: float | None = None
    """Since when there is something to record for people only (monotonic seconds)."""
    steady_in_s: float | None = None
    """Seconds until a pod has been up, or away, for long enough to matter."""
    moves: dict[str, tuple[int, float]] = field(default_factory=dict)
    """Epoch of a planned move, and when it was recorded (monotonic seconds), until its leader is there."""
    rests_until: float = 0.0
    """No planned move begins before (monotonic seconds)."""
    told_at: dict[str, float] = field(default_factory=dict)
    """When a step that must not do so all the time last did its work (monotonic seconds)."""
    said: dict[str, str] = field(default_factory=dict)
    """The last line of each step: a line is logged when it is a new one."""
    failovers: deque[FailoverRecord] = field(default_factory=lambda: deque(maxlen=FAILOVERS_KEPT))

    def waits(self, left_s: float) -> bool:
        """Whether there is time left. If so, the cluster is looked at again when it is over."""
        if left_s > 0:
            self.steady_in_s = min(left_s, self.steady_in_s or left_s)
        return left_s > 0


@dataclass(frozen=True, slots=True)
class Context:
    """`spawn` runs a call in the background and has the cluster reconciled again when it is over."""

    key: ClusterKey
    seen: Observation
    memory: Memory
    store: Store
    workload: Workload
    pods: PodSessions
    clock: Clock
    metrics: OperatorMetrics
    spawn: Callable[[Coroutine[Any, Any, None]], None]

    def has_time_to_tell(self, step: str) -> bool:
        """Whether `step` may write what is for people only: not while elections are about to be answered, which such
        writes would delay, and not all the time. If not, the cluster is looked at again soon."""
        if self.memory.attempts.are_under_way(self.clock.monotonic()):
            return False  # the answers bring the next reconcile
        return self.has_turn(step, TELL_EVERY_S)

    def has_turn(self, step: str, every_s: float) -> bool:
        """Whether the last turn of `step` was so long ago. If not, the cluster is looked at again when it is."""
        now = self.clock.monotonic()
        if not self.waits(self.memory.told_at.get(step, -every_s) + every_s - now):
            self.memory.told_at[step] = now
            return True
        return False

    def waits(self, left_s: float) -> bool:
        """Whether there is time left. If so, the cluster is looked at again when it is over."""
        return self.memory.waits(left_s)
