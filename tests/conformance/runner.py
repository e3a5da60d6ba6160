"""Runs scripts against both servers and sorts what differs into explained and unexplained."""

from __future__ import annotations

import asyncio
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.conformance.answers import Normaliser, compare
from tests.conformance.differences import Explanation
from tests.conformance.registry import Script
from tests.conformance.session import Server, Session

AT_ONCE = 12
"""Scripts that run at the same time; each waits most of its time."""


@dataclass
class Report:
    """What a run found. `steps` counts compared requests; `answers` are Kafka's, by script."""

    scripts: Counter[str] = field(default_factory=Counter)
    steps: int = 0
    unexplained: list[tuple[str, str, str, str]] = field(default_factory=list)
    broken: list[tuple[str, str]] = field(default_factory=list)
    answers: dict[str, dict[str, str]] = field(default_factory=dict)
    seconds: float = 0.0


async def run_all(
    scripts: Sequence[Script], servers: tuple[Server, Server], meant: Sequence[Explanation], report: Report
) -> None:
    """Area by area, with a line for each."""
    started = time.monotonic()
    for area in dict.fromkeys(script.area for script in scripts):
        begun = time.monotonic()
        of_area = [script for script in scripts if script.area == area]
        slots = asyncio.Semaphore(AT_ONCE)
        before = len(report.unexplained) + len(report.broken)
        await asyncio.gather(*(_run_in(slots, script, servers, meant, report) for script in of_area))
        found = len(report.unexplained) + len(report.broken) - before
        print(
            f"{area:<22} {len(of_area):>3} scripts, {found} unexplained, {time.monotonic() - begun:.0f} s", flush=True
        )
    report.seconds += time.monotonic() - started


async def _run_in(
    slots: asyncio.Semaphore,
    script: Script,
    servers: tuple[Server, Server],
    meant: Sequence[Explanation],
    report: Report,
) -> None:
    async with slots:
        sessions = [Session(server, script.name) for server in servers]
        outcomes = await asyncio.gather(*(s.run(script.run) for s in sessions), return_exceptions=True)
    report.scripts[script.area] += 1
    for session, outcome in zip(sessions, outcomes, strict=True):
        if isinstance(outcome, Exception):
            what = "".join(traceback.format_exception(outcome)[-3:])
            report.broken.append((script.name, f"against {session.server.kind}: {what.rstrip()}"))
        elif isinstance(outcome, BaseException):
            raise outcome
    report.steps += max(len(session.steps) for session in sessions)
    kafka, muster = (Normaliser(s.server, script.name).lines(s.steps) for s in sessions)
    report.answers[script.name] = kafka
    for where, kafka_value, muster_value in compare(kafka, muster):
        explained = next((e for e in meant if e.covers(script.name, where, kafka_value, muster_value)), None)
        if explained is not None:
            explained.uses += 1
        else:
            report.unexplained.append((script.name, where, kafka_value, muster_value))
