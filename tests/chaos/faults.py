"""What was done and when, and what the groups saw of it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.figures import gaps_by_move, latencies, longest_gap, percentile, worst_lag
from tests.chaos.history import GroupHistory, History


@dataclass
class Fault:
    """``victims``: Kafka addresses of the pods whose groups are expected to be interrupted. The times are seconds of
    the monotonic clock; ``until``: when its effects were over, as far as the harness could see. ``planned``: leaders
    that live are moved; each move of a group is one interruption, and all other time of every group, the moved ones
    included, is elsewhere. ``stolen``: the largest share of the processors' time that went to other machines, of any
    half second; ``work_ms``: how long the machine took for a fixed piece of work before the fault."""

    what: str
    victims: tuple[str, ...]
    at: float
    until: float = 0.0
    planned: bool = False
    stolen: float = 0.0
    work_ms: float = 0.0


@dataclass(frozen=True)
class Bounds:
    """In ms; None: not bounded. ``interrupted``: percentiles over the longest gap of each group that a victim led, or
    over the moves; ``elsewhere``: over the longest other gap of each other group, or of each group; ``slowest``: p99 of
    the other groups' commit latencies."""

    interrupted_p50: float | None = None
    interrupted_max: float | None = None
    elsewhere_p99: float | None = None
    slowest_p99: float | None = None


@dataclass
class Figures:
    """Of all faults of one scenario together; times in seconds. ``stolen``, ``work_ms``: of the fault with most."""

    faults: int = 0
    interrupted: list[float] = field(default_factory=list)
    elsewhere: list[float] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    own_lag: float = 0.0
    stolen: float = 0.0
    work_ms: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """Milliseconds, and ``stolen`` in percent; None where there was no such group."""
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
            "stolen": round(self.stolen * 100, 1),
            "work": round(self.work_ms, 1),
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
        figures.stolen = max(figures.stolen, fault.stolen)
        figures.work_ms = max(figures.work_ms, fault.work_ms)
    return figures


def exceeded(figures: dict[str, Any], bounds: Bounds) -> list[str]:
    """A line for each bound that does not hold, or of which nothing was measured."""
    lines = []
    for name in ("interrupted_p50", "interrupted_max", "elsewhere_p99", "slowest_p99"):
        bound, value = getattr(bounds, name), figures[name]
        if bound is None:
            continue
        if value is None:
            lines.append(f"{name} was not measured, in no fault was there such a group; the bound is {bound:g} ms")
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
