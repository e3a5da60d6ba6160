"""Which bars an attack has to keep, and which it misses."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from tests.attacks.catalogue import Attack
from tests.attacks.measuring import Measured

RATIO_MAX = 5.0
MEMORY_MAX = 256 << 20
RETRIED = {"14", "15", "16"}
"""COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR: clients ask again, and nobody sees it."""


@dataclass
class Verdict:
    """`runs`: all that were made; more than one where the first had missed the bar of p99. `reasons`: of a miss.
    `neighbours`: where these miss it, p99 in ms of members while another pod or gateway is attacked, each time that it
    was measured."""

    attack: Attack
    runs: list[Measured] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    skipped: str = ""
    neighbours: list[float] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        return statistics.median(run.ratio for run in self.runs)

    @property
    def middle(self) -> Measured:
        """The run whose ratio is the median."""
        return sorted(self.runs, key=lambda run: run.ratio)[len(self.runs) // 2]

    @property
    def neighbour(self) -> float | None:
        """The p99 in ms that the machine alone costs; None: not measured."""
        return statistics.median(self.neighbours) if self.neighbours else None

    @property
    def above_neighbour(self) -> float | None:
        """p99 beside the attack, by that of members of a neighbour; None: not measured."""
        return None if self.neighbour is None else self.middle.beside.p99 / self.neighbour

    def judge_p99(self, control: Callable[[], float], most: int) -> None:
        """Add what the ratio of p99 has missed to the reasons. `control` measures a neighbour, which is asked where the
        machine may be the cause: once, and `most` times in all if the bar is missed by that, too."""
        if not slow(self.attack, self.ratio):
            return
        self.neighbours.append(control())
        if slow(self.attack, self.above_neighbour):
            self.neighbours += [control() for _ in range(most - 1)]
        if slow(self.attack, self.above_neighbour):
            self.reasons.append(f"p99 {self.ratio:.1f} times, {self.above_neighbour:.1f} times a neighbour's")

    def as_dict(self) -> dict[str, Any]:
        runs = [asdict(run) | {"ratio": round(run.ratio, 2)} for run in self.runs]
        found = {"attack": self.attack.name, "runs": runs, "reasons": self.reasons, "skipped": self.skipped}
        return found | {"neighbours": self.neighbours}


def missed(attack: Attack, run: Measured) -> list[str]:
    """What one run has missed, but for p99."""
    reasons = []
    errors = {code: n for code, n in run.beside.errors.items() if not (attack.disk and code in RETRIED)}
    if errors:
        reasons.append(f"errors: {_listed(errors)}")
    if run.after.errors:
        reasons.append(f"errors afterwards: {_listed(run.after.errors)}")
    if run.after.lost:
        reasons.append(f"{run.after.lost} members lost")
    if run.after.forgotten:
        reasons.append(f"acknowledged commits of {run.after.forgotten} members forgotten")
    if run.moved and not attack.disk:
        reasons.append(f"{run.moved} leaderships moved")
    if run.grown > MEMORY_MAX:
        reasons.append(f"+{run.grown >> 20} MiB")
    if run.calm_s is None:
        reasons.append("not as before afterwards")
    if not run.done:
        reasons.append("the attackers did nothing")
    return reasons


def slow(attack: Attack, ratio: float | None) -> bool:
    """True if a ratio of p99 misses the bar; none does where commits cannot succeed."""
    return ratio is not None and ratio > RATIO_MAX and not attack.disk


def _listed(errors: dict[str, int]) -> str:
    return ", ".join(f"{n} x {code}" for code, n in sorted(errors.items()))
