"""What a run of attacks has found, as lines, and as the page docs/attacks.md."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.attacks.judging import MEMORY_MAX, RATIO_MAX, Verdict
from tests.attacks.members import MEMBERS

PAGE = Path(__file__).parents[2] / "docs" / "attacks.md"
TEXT = Path(__file__).with_name("page.md")
HEAD = (
    "| attack | what | errors | lost | forgotten | moved | p99 ms without | beside | times | neighbour | MiB "
    "| as before in s | |"
)


def row(verdict: Verdict) -> str:
    """Of the table."""
    name, what = verdict.attack.name, verdict.attack.what
    if not verdict.runs:
        return f"| {name} | {what} | | | | | | | | | | | {verdict.skipped or '; '.join(verdict.reasons)} |"
    run = verdict.middle
    calm = "-" if run.calm_s is None else f"{run.calm_s:.1f}"
    neighbour = "–" if verdict.neighbour is None else f"{verdict.neighbour:.1f}"
    return (
        f"| {name} | {what} | {sum(run.beside.errors.values())} | {run.after.lost} | {run.after.forgotten} "
        f"| {run.moved} | {run.without.p99:.1f} | {run.beside.p99:.1f} | {verdict.ratio:.1f} | {neighbour} "
        f"| {run.grown >> 20} | {calm} "
        f"| {'**misses**: ' + '; '.join(verdict.reasons) if verdict.reasons else 'keeps all'} |"
    )


def line(verdict: Verdict) -> str:
    """For a terminal."""
    if not verdict.runs:
        return f"{verdict.attack.name:<28} {verdict.skipped or '; '.join(verdict.reasons)}"
    run = verdict.middle
    neighbour = "" if verdict.neighbour is None else f"; a neighbour: {verdict.neighbour:.1f} ms"
    return (
        f"{verdict.attack.name:<28} p99 {run.without.p99:7.1f} -> {run.beside.p99:8.1f} ms ({verdict.ratio:5.1f} x), "
        f"+{run.grown >> 20:4} MiB  {'MISSES ' + '; '.join(verdict.reasons) if verdict.reasons else 'keeps all'}"
        f"{neighbour}"
    )


def summary(verdicts: Sequence[Verdict]) -> str:
    missing = [each for each in verdicts if each.reasons]
    skipped = [each for each in verdicts if each.skipped]
    kept = len(verdicts) - len(missing) - len(skipped)
    return f"{len(verdicts)} attacks: {kept} keep all bars, {len(missing)} miss one, {len(skipped)} were skipped"


def page(verdicts: Sequence[Verdict], seconds: float) -> str:
    """docs/attacks.md."""
    compiled = "compiled" if "/compiled/" in os.environ.get("PYTHONPATH", "") else "plain Python"
    how = (
        f"{os.cpu_count()} processors, Python {platform.python_version()}, {compiled}, {seconds:g} s of each attack; "
        f"a load of {os.getloadavg()[2]:.1f} on average of the last 15 minutes, with what else the machine did"
    )
    text = TEXT.read_text(encoding="utf-8").format(
        members=MEMBERS, ratio=f"{RATIO_MAX:g}", memory=MEMORY_MAX >> 20, how=how, summary=summary(verdicts)
    )
    rule = "|---|---|" + "---:|" * 10 + "---|"
    return "\n".join([text, HEAD, rule, *(row(each) for each in verdicts), ""])


def write_page(verdicts: Sequence[Verdict], seconds: float) -> None:
    PAGE.write_text(page(verdicts, seconds), encoding="utf-8")
    print(f"written to {PAGE}", file=sys.stderr)
