"""Facts about resets of offsets, as pods tell them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from muster_coordinator.podapi.resets import PlanAnswer, PlannedOffset, ResetAnswer
from muster_operator.plan.group_facts import AGAIN_S

ResetKey = tuple[str, str]
"""The uid of a ConsumerGroup, and the id of its reset."""


@dataclass(frozen=True, slots=True)
class ResetFacts:
    """`plan`: what the reset would do; it counts when it is in the status. `outcome`: of carrying out what is there.
    `obstacle`: what stood in the way last. `is_due`: a pod may be asked now."""

    plan: tuple[PlannedOffset, ...] = ()
    outcome: ResetAnswer | None = None
    obstacle: str = ""
    is_due: bool = True


@dataclass(slots=True)
class _Known:
    plan: tuple[PlannedOffset, ...] = ()
    planned_s: float = 0.0
    outcome: ResetAnswer | None = None
    obstacle: str = ""
    due_s: float = 0.0


class ResetMemory:
    """The memory of the resets of one cluster. All of it can be lost: pods say it again. Times are monotonic
    (seconds)."""

    def __init__(self) -> None:
        self._known: dict[ResetKey, _Known] = {}

    def planned(self, key: ResetKey, answer: PlanAnswer, now_s: float) -> None:
        """A pod was asked what the reset would do."""
        known = self._known.setdefault(key, _Known())
        known.obstacle = "; ".join(answer.obstacles)
        known.plan, known.planned_s = (() if answer.obstacles else answer.offsets), now_s
        known.due_s = now_s + AGAIN_S if answer.obstacles else now_s

    def carried_out(self, key: ResetKey, answer: ResetAnswer, now_s: float) -> None:
        """A pod was asked to do what the status has."""
        known = self._known.setdefault(key, _Known())
        known.obstacle = answer.why if answer.outcome == "Refused" else ""
        known.outcome = None if answer.outcome == "Refused" else answer
        known.due_s = now_s + AGAIN_S if answer.outcome == "Refused" else now_s

    def failed(self, key: ResetKey, why: str, now_s: float) -> None:
        """A pod has not answered with either."""
        known = self._known.setdefault(key, _Known())
        known.obstacle, known.due_s = why, now_s + AGAIN_S

    def view(self, keys: Iterable[ResetKey], now_s: float) -> Mapping[ResetKey, ResetFacts]:
        """The facts known of these resets; all others are forgotten."""
        self._known = {key: self._known[key] for key in keys if key in self._known}
        return {key: _facts(each, now_s) for key, each in self._known.items()}


def _facts(known: _Known, now_s: float) -> ResetFacts:
    """A plan that does not get into the status in time is made anew: consumers may have gone on."""
    plan = known.plan if now_s < known.planned_s + AGAIN_S else ()
    return ResetFacts(plan, known.outcome, known.obstacle, now_s >= known.due_s)
