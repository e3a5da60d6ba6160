"""Times without an acknowledged commit, from a history. Pure."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any

from tests.chaos.history import GroupHistory, History


def percentile(values: Sequence[float], share: float) -> float:
    """By nearest rank; 0 of none."""
    ordered = sorted(values)
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)] if ordered else 0.0


def longest_gap(group: GroupHistory, start: float, end: float) -> float:
    """Seconds of the longest time between two acknowledged commits that overlaps [start, end]; up to `end` when no
    commit was acknowledged after `start` any more."""
    return max(gap for gap, _ in _gaps(group, start, end))


def gaps_by_move(group: GroupHistory, start: float, end: float) -> tuple[list[float], float]:
    """The gaps over which the group's coordinator changed, and the longest of the others; seconds."""
    gaps = _gaps(group, start, end)
    return [gap for gap, moved in gaps if moved], max((gap for gap, moved in gaps if not moved), default=0.0)


def _gaps(group: GroupHistory, start: float, end: float) -> list[tuple[float, bool]]:
    """Each time between two acknowledged commits that overlaps the window, and whether another pod took the second."""
    first = max(bisect_left(group.acked, start) - 1, 0)
    last = bisect_right(group.acked, end) + 1
    moments, pods = group.acked[first:last], group.pods[first:last]
    gaps = [(moments[i] - moments[i - 1], pods[i] != pods[i - 1]) for i in range(1, len(moments))]
    if not moments or moments[-1] < end:
        gaps.append((end - max(moments[-1] if moments else start, start), False))
    return gaps


def back_at(group: GroupHistory, moment: float) -> float | None:
    """When the first commit that was sent after the moment was acknowledged; None: never."""
    index = bisect_left(group.sent, moment)
    return group.acked[index] if index < len(group.acked) else None


def latencies(group: GroupHistory, start: float, end: float) -> list[float]:
    """Seconds from sending to the answer of the acknowledged commits that were sent in [start, end]."""
    first, last = bisect_left(group.sent, start), bisect_right(group.sent, end)
    return [group.acked[index] - group.sent[index] for index in range(first, last)]


def worst_lag(history: History, start: float, end: float) -> float:
    """Seconds that the load itself was late in [start, end]."""
    return max((lag for at, lag in history.lags if start <= at <= end), default=0.0)


def overall(history: History) -> dict[str, Any]:
    """Commits, and percentiles over the groups of each group's longest gap in the whole run; times in ms."""
    gaps = [longest_gap(group, group.acked[0], group.acked[-1]) for group in history.groups if group.acked]
    waits = [late - early for group in history.groups for early, late in zip(group.sent, group.acked, strict=True)]
    return {
        "groups": len(history.groups),
        "commits": sum(len(group.offsets) for group in history.groups),
        "latency_p50_ms": 1000 * percentile(waits, 0.5),
        "latency_p99_ms": 1000 * percentile(waits, 0.99),
        "gap_p50_ms": 1000 * percentile(gaps, 0.5),
        "gap_p99_ms": 1000 * percentile(gaps, 0.99),
        "gap_max_ms": 1000 * max(gaps, default=0.0),
        "own_lag_max_ms": 1000 * max((lag for _, lag in history.lags), default=0.0),
    }


def milliseconds(value: float) -> str:
    """A figure for people: whole above 100, one decimal below."""
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"
