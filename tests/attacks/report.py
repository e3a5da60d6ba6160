"""What a run of attacks has found, as lines, and as the page docs/attacks.md."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.attacks.catalogue import ATTACKS
from tests.attacks.judging import MEMORY_MAX, RATIO_MAX, Verdict
from tests.attacks.members import MEMBERS

PAGE = Path(__file__).parents[2] / "docs" / "attacks.md"
TEXT = Path(__file__).with_name("page.md")
HEAD = (
    "| attack | what | errors | lost | forgotten | moved | p99 ms without | beside | times | neighbour | times that "
    "| MiB | as before in s | |"
)
COLUMNS = HEAD.count("|") - 1
HOW = "The last run: "
KEPT, MISSED = "keeps all", "**misses**"


def row(verdict: Verdict) -> str:
    """Of the table."""
    name, what = verdict.attack.name, verdict.attack.what
    if not verdict.runs:
        return f"| {name} | {what} {'| ' * (COLUMNS - 3)}| {_outcome(verdict)} |"
    run = verdict.middle
    calm = "-" if run.calm_s is None else f"{run.calm_s:.1f}"
    return (
        f"| {name} | {what} | {sum(run.beside.errors.values())} | {run.after.lost} | {run.after.forgotten} "
        f"| {run.moved} | {run.without.p99:.1f} | {run.beside.p99:.1f} | {verdict.ratio:.1f} "
        f"| {_measured(verdict.neighbour)} | {_measured(verdict.above_neighbour)} | {run.grown >> 20} | {calm} "
        f"| {_outcome(verdict)} |"
    )


def _outcome(verdict: Verdict) -> str:
    """The last cell, by which rows are counted."""
    return verdict.skipped or (f"{MISSED}: " + "; ".join(verdict.reasons) if verdict.reasons else KEPT)


def _measured(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"


def line(verdict: Verdict) -> str:
    """For a terminal."""
    if not verdict.runs:
        return f"{verdict.attack.name:<28} {verdict.skipped or '; '.join(verdict.reasons)}"
    run = verdict.middle
    neighbour = (
        ""
        if verdict.neighbour is None
        else (f"; a neighbour: {verdict.neighbour:.1f} ms ({verdict.above_neighbour:.1f} x)")
    )
    return (
        f"{verdict.attack.name:<28} p99 {run.without.p99:7.1f} -> {run.beside.p99:8.1f} ms ({verdict.ratio:5.1f} x), "
        f"+{run.grown >> 20:4} MiB  {'MISSES ' + '; '.join(verdict.reasons) if verdict.reasons else 'keeps all'}"
        f"{neighbour}"
    )


def summary(rows: Sequence[str]) -> str:
    """`rows`: of the table."""
    kept = sum(each.endswith(f"| {KEPT} |") for each in rows)
    missing = sum(f"| {MISSED}: " in each for each in rows)
    return f"{len(rows)} attacks: {kept} keep all bars, {missing} miss one, {len(rows) - kept - missing} were not made"


def page(rows: Sequence[str], how: str) -> str:
    """docs/attacks.md."""
    text = TEXT.read_text(encoding="utf-8").format(
        members=MEMBERS, ratio=f"{RATIO_MAX:g}", memory=MEMORY_MAX >> 20, how=HOW + how, summary=summary(rows)
    )
    rule = "|---|---|" + "---:|" * (COLUMNS - 3) + "---|"
    return "\n".join([text, HEAD, rule, *rows, ""])


def renewed(old: str, verdicts: Sequence[Verdict], how: str) -> str:
    """The page with these rows in place of those that it has of the same attacks. It says of which rows `how` is."""
    lines = old.splitlines()
    rows = {each.split(" ", 2)[1]: each for each in lines if each.startswith("| ") and each != HEAD}
    rows.update({each.attack.name: row(each) for each in verdicts})
    before = next(each for each in lines if each.startswith(HOW)).removeprefix(HOW).removesuffix(".")
    names = ", ".join(each.attack.name for each in verdicts)
    return page([rows[name] for name in ATTACKS if name in rows], f"{before}; again {names}: {how}")


def how_it_was_run(seconds: float) -> str:
    compiled = "compiled" if "/compiled/" in os.environ.get("PYTHONPATH", "") else "plain Python"
    return (
        f"{os.cpu_count()} processors, Python {platform.python_version()}, {compiled}, {seconds:g} s of each attack; "
        f"a load of {os.getloadavg()[2]:.1f} on average of the last 15 minutes, with what else the machine did"
    )


def write_page(verdicts: Sequence[Verdict], seconds: float, *, is_whole: bool) -> None:
    """`is_whole`: of all attacks."""
    how = how_it_was_run(seconds)
    made = page([*map(row, verdicts)], how) if is_whole else renewed(PAGE.read_text(encoding="utf-8"), verdicts, how)
    PAGE.write_text(made, encoding="utf-8")
    print(f"written to {PAGE}", file=sys.stderr)
