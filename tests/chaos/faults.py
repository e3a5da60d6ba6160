"""What was done and when, and what the groups saw of it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.figures import gaps_by_move, latencies, longest_gap, percentile, worst_lag
from tests.chaos.history import GroupHistory, History


@dataclass
class Fault:
    """One fault. Times are seconds of the monotonic clock.

    `victims` are the Kafka addresses of the pods whose groups the fault interrupts. `until` is when the harness saw
    the end of its effects. `planned`: live leaders are moved. Then each move of a group is one interruption, and all
    other time of every group, moved or not, counts as elsewhere.
    """

    what: str
    victims: tuple[str, ...]
    at: float
    until: float = 0.0
    planned: bool = False


@dataclass(frozen=True)
class Bounds:
    """Limits in ms for the groups that a fault interrupts; None: no limit.

    Percentiles are over the longest gap of each group that a victim led, or over the moves of a planned fault.
    """

    interrupted_p50: float | None = None
    interrupted_max: float | None = None


@dataclass
class Figures:
    """What the groups saw during all faults of one scenario; times in seconds."""

    faults: int = 0
    interrupted: list[float] = field(default_factory=list)
    elsewhere: list[float] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    own_lag: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """Figures in milliseconds; None where no group was of that kind."""
        return {
            "faults": self.faults,
            "interrupted": len(self.interrupted),
            "interrupted_p50": _ms(self.interrupted, 0.5),
            "interrupted_p99": _ms(self.interrupted, 0.99),
            "interrupted_max": _ms(self.interrupted, 1.0),
            "elsewhere": len(self.elsewhere),
            "elsewhere_p99": _ms(self.elsewhere, 0.99),
            "elsewhere_max": _ms(self.elsewhere, 1.0),
            "slowest_p99": _ms(self.waits, 0.99),
            "own_lag_max": round(self.own_lag * 1000, 1),
        }


def measure(history: History, faults: Sequence[Fault]) -> Figures:
    figures = Figures(faults=len(faults))
    for fault in faults:
        hit, spared = _split(history, fault)
        if fault.planned:
            for group in history.groups:
                moves, other = gaps_by_move(group, fault.at, fault.until)
                figures.interrupted += moves
                figures.elsewhere.append(other)
        else:
            figures.interrupted += [longest_gap(group, fault.at, fault.until) for group in hit]
            figures.elsewhere += [longest_gap(group, fault.at, fault.until) for group in spared]
        figures.waits += [each for group in spared for each in latencies(group, fault.at, fault.until)]
        figures.own_lag = max(figures.own_lag, worst_lag(history, fault.at, fault.until))
    return figures


def exceeded(figures: dict[str, Any], bounds: Bounds) -> list[str]:
    """One line for each bound that was missed or could not be measured."""
    lines = []
    for name in ("interrupted_p50", "interrupted_max"):
        bound, value = getattr(bounds, name), figures[name]
        if bound is None:
            continue
        if value is None:
            lines.append(f"{name} was not measured: no fault interrupted a group; the bound is {bound:g} ms")
        elif value > bound:
            lines.append(f"{name} is {value:g} ms, the bound is {bound:g} ms")
    return lines


def _split(history: History, fault: Fault) -> tuple[list[GroupHistory], list[GroupHistory]]:
    victims = {history.pods.index(address) for address in fault.victims if address in history.pods}
    hit: list[GroupHistory] = []
    spared: list[GroupHistory] = []
    for group in history.groups:
        (hit if group.coordinator_at(fault.at) in victims else spared).append(group)
    return hit, spared


def _ms(values: Sequence[float], share: float) -> float | None:
    return round(percentile(values, share) * 1000, 1) if values else None
