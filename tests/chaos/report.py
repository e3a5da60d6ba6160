"""Verdicts for people."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tests.chaos.run import Verdict

COLUMNS = (
    ("scenario", ""),
    ("faults", "faults"),
    ("interrupted", "interrupted"),
    ("p50 ms", "interrupted_p50"),
    ("p99 ms", "interrupted_p99"),
    ("max ms", "interrupted_max"),
    ("elsewhere: gap p99", "elsewhere_p99"),
    ("max", "elsewhere_max"),
    ("commit p99", "slowest_p99"),
    ("quiet: gap p99", "quiet_p99"),
    ("max", "quiet_max"),
    ("commit p99", "quiet_slowest_p99"),
    ("load late", "own_lag_max"),
    ("named late", "named_late"),
    ("commits", "commits"),
    ("lost", "lost"),
    ("reverted", "reverted"),
    ("invented", "invented"),
    ("", "verdict"),
)


def table(verdicts: Sequence[Verdict]) -> str:
    """Render one row per scenario; times in ms."""
    rows = [[title for title, _ in COLUMNS]] + [_row(verdict) for verdict in verdicts]
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    lines = []
    for row in rows:
        cells = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join([row[0].ljust(widths[0]), *cells]).rstrip())
    return "\n".join(lines)


def print_verdict(verdict: Verdict) -> None:
    """Print on standard error why a scenario failed or was skipped, and which tries missed a bound of time."""
    if verdict.skipped:
        print(f"{verdict.scenario}: skipped: {verdict.skipped}", file=sys.stderr)
    for figures in verdict.missed:
        times = f"p50 {_cell(figures['interrupted_p50'])} ms, max {_cell(figures['interrupted_max'])} ms"
        print(f"{verdict.scenario}: a try missed a bound of time and was repeated: {times}", file=sys.stderr)
    if verdict.reasons:
        print(f"{verdict.scenario}: FAILED", file=sys.stderr)
        for line in verdict.explain():
            print(f"  {line}", file=sys.stderr)


def _row(verdict: Verdict) -> list[str]:
    outcome = "skipped" if verdict.skipped else "FAILED" if verdict.reasons else "ok"
    values = verdict.figures | {"verdict": outcome}
    return [verdict.scenario, *(_cell(values.get(key)) for _, key in COLUMNS[1:])]


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.0f}" if isinstance(value, float) else str(value)
