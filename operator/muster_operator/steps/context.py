"""The context of every step: the observation, the ports, and what is remembered of a cluster between reconciles."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from muster_coordinator.podapi.image import MetadataImage
from muster_operator.attempts import Attempts
from muster_operator.clock import Clock
from muster_operator.failovers import Failovers
from muster_operator.metrics import OperatorMetrics
from muster_operator.phases import Phases
from muster_operator.plan.actions import WritePartitionStatus
from muster_operator.plan.group_facts import GroupMemory
from muster_operator.plan.observation import CallKind, Observation
from muster_operator.plan.reset_facts import ResetMemory
from muster_operator.pods.sessions import PodSessions
from muster_operator.store.port import ClusterKey, Store
from muster_operator.store.workload import Workload
from muster_operator.traces import Traces

RETRY_S = 0.5
"""The time from a background call to a pod or the store that failed to the next one of its kind, in seconds."""
PAUSE_S = 0.1
"""The time from one call of a kind that many events ask for to the next one, in seconds: one call answers them
together.
"""
TELL_EVERY_S = 1.0
"""The shortest time between two writes of counts and conditions of a cluster or topic, in seconds."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a step, in one line. `code` is stable (CamelCase)."""

    code: str
    text: str


@dataclass(slots=True)
class Memory:
    """The operator's memory of one cluster. All of it can be lost: it saves calls, it never decides who leads."""

    attempts: Attempts
    failovers: Failovers
    phases: Phases
    traces: Traces | None = None
    """None: nobody collects spans."""
    groups: GroupMemory = field(default_factory=GroupMemory)
    resets: ResetMemory = field(default_factory=ResetMemory)
    image: MetadataImage | None = None
    token: int = -1
    """Fencing token of the last calls; it only rises."""
    busy: set[tuple[CallKind, str]] = field(default_factory=set)
    runs: dict[str, int] = field(default_factory=dict)
    to_show: dict[str, WritePartitionStatus] = field(default_factory=dict)
    """Statuses of the last plan that are still to be written, by name, in that order."""
    showing: set[str] | None = None
    """The partitions whose statuses are being written; None while no pass is under way."""
    calm: Observation | None = None
    """The observation of the last plan, if that had no actions; None: it had some, or time alone may change the next
    one.
    """
    steady_in_s: float | None = None
    """Seconds until a pod has been up, or away, for long enough to matter."""
    idle_since: dict[str, float] = field(default_factory=dict)
    """Since when fenced pods have led nothing (monotonic seconds)."""
    leaderless: tuple[int, float] = (0, 0.0)
    """The number of partitions without an active leader at the last look, and the time of that look (monotonic
    seconds)."""
    told_at: dict[str, float] = field(default_factory=dict)
    """The last time (monotonic seconds) of each step that must not do its work in every cycle."""
    said: dict[str, str] = field(default_factory=dict)
    """The last line of each step: a line is logged when it is a new one."""

    def recorded(self, now: float) -> None:
        """Leaders and epochs of the plan are in the store."""
        self.phases.recorded(now)
        if self.traces is not None:
            self.traces.recorded()

    def called(self, now: float) -> None:
        """The pods of the plan are called."""
        self.phases.called(now)
        if self.traces is not None:
            self.traces.called()

    def led(self, partition: str, now: float) -> None:
        """The partition has an active leader."""
        self.phases.led(partition, now)
        if self.traces is not None:
            self.traces.led(partition)


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
        """True if `step` may write counts and conditions: not while elections are about to be answered, which such
        writes would delay, and not more often than each TELL_EVERY_S. If not, the cluster is looked at again soon."""
        if self.memory.attempts.are_under_way(self.clock.monotonic()):
            return False  # the answers bring the next reconcile
        return self.has_turn(step, TELL_EVERY_S)

    def has_turn(self, step: str, every_s: float) -> bool:
        """True if the last turn of `step` is at least `every_s` ago. If not, the cluster is looked at again then."""
        now = self.clock.monotonic()
        if not self._waits(self.memory.told_at.get(step, -every_s) + every_s - now):
            self.memory.told_at[step] = now
            return True
        return False

    def _waits(self, left_s: float) -> bool:
        """True if a wait goes on. If so, the cluster is looked at again at its end."""
        memory = self.memory
        if left_s > 0:
            memory.steady_in_s = min(left_s, memory.steady_in_s or left_s)
        return left_s > 0
