"""One scenario: a cluster, the load, faults, and the verdict."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.checker import Finding, check, counts, violations
from tests.chaos.faults import Bounds, Fault, exceeded, measure
from tests.chaos.history import History
from tests.chaos.observed import ObservedCluster

CALM_S = 1.0
"""Watch the groups for this long after the effects of a fault seem to be over."""
HUSH_S = 0.5
"""Ask the cluster nothing for this long before a fault, so that the fault does not include the cost of answers."""
QUIET_S = 5.0
"""Watch the groups for this long before the first fault: their gaps then are the machine's own."""
REPETITIONS = 2
"""A scenario that misses a bound of time holds it if it does in this many repetitions: a stall is no verdict."""
MAX_LINES = 20


@dataclass
class Run:
    """What a scenario gets: it makes faults while `goes_on` is true."""

    random: random.Random
    seconds: float
    faults: list[Fault] = field(default_factory=list)
    quiet: Fault | None = None
    started: float = 0.0

    def begin(self) -> None:
        """Watch the groups without a fault, then start the time for faults."""
        self._hush()
        self.quiet = Fault("nothing", (), time.monotonic())
        time.sleep(QUIET_S)
        self.quiet.until = self.started = time.monotonic()

    @property
    def goes_on(self) -> bool:
        """There is time for another fault."""
        return time.monotonic() - self.started <= self.seconds

    def _hush(self) -> None:
        """Write out what builds and earlier clusters left in the page cache, so that no fault waits for that disk."""
        os.sync()
        time.sleep(HUSH_S)

    @contextmanager
    def fault(self, cluster: ObservedCluster, what: str, *victims: str, planned: bool = False) -> Iterator[Fault]:
        """Record a fault on the pods `victims`. The block makes it and waits until its effects are over."""
        addresses = tuple(cluster.kafka_address(each) for each in victims)
        self._hush()
        fault = Fault(what, addresses, time.monotonic(), planned=planned)
        self.faults.append(fault)
        try:
            yield fault
            time.sleep(CALM_S)
        finally:
            fault.until = time.monotonic()

    def rounds(self, cluster: ObservedCluster) -> Iterator[str]:
        """Yield the pod that leads most partitions, once and then for as long as the run goes on."""
        first = True
        while first or self.goes_on:
            first = False
            cluster.wait_before_fault()
            leaders = cluster.leaders()
            most = max(leaders.values())
            yield self.random.choice(sorted(name for name, count in leaders.items() if count == most))
        cluster.wait_settled()


@dataclass
class Verdict:
    """The outcome of a scenario.

    `figures` are those of `Figures.as_dict` with the checker's counts; `each` has them per fault. `unsafe` says what
    was lost, reverted, invented or could not be carried out; `slow` says which bounds of time were missed. Both are
    empty when all is well. `missed` has the figures of earlier tries of this scenario that were only slow.
    """

    scenario: str
    figures: dict[str, Any]
    findings: list[Finding] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    each: list[dict[str, Any]] = field(default_factory=list)
    unsafe: list[str] = field(default_factory=list)
    slow: list[str] = field(default_factory=list)
    missed: list[dict[str, Any]] = field(default_factory=list)
    skipped: str = ""

    @property
    def reasons(self) -> list[str]:
        """Why the scenario failed."""
        return self.unsafe + self.slow

    def as_dict(self) -> dict[str, Any]:
        return {
            "scenario": self.scenario,
            **self.figures,
            "each": self.each,
            "failed": self.reasons,
            "missed": self.missed,
            "skipped": self.skipped,
        }

    def explain(self) -> Iterator[str]:
        """Yield the reasons, the faults with their times, and what was lost with group, offset, pod and time."""
        yield from self.reasons
        for fault, seen in zip(self.faults, self.each, strict=False):
            hit = f"interrupted p50 {seen['interrupted_p50']}, max {seen['interrupted_max']} ms; "
            yield (
                f"{fault.at:.3f} to {fault.until:.3f}: {fault.what} ({', '.join(fault.victims) or 'no leader'}): "
                f"{hit if fault.victims else ''}elsewhere max {seen['elsewhere_max']} ms"
            )
        for finding in violations(self.findings)[:MAX_LINES]:
            yield f"{finding.kind}: {finding.group}: {finding.commits} commits; {finding.text}"


def tried(try_once: Callable[[], Verdict]) -> Verdict:
    """Return the verdict of a scenario, repeated when it missed a bound of time and was safe.

    It then holds if every repetition does. A scenario that lost something is never repeated.
    """
    verdict = try_once()
    if verdict.unsafe or not verdict.slow:
        return verdict
    missed = [verdict.figures]
    for _ in range(REPETITIONS):
        verdict = try_once()
        verdict.missed = missed
        if verdict.reasons:
            break
    return verdict


def judge(scenario: str, history: History, run: Run, bounds: Bounds) -> Verdict:
    """Check the history against the faults: nothing may be lost, and the bounds hold for the interrupted groups.

    What other groups saw is reported beside the quiet part of the same run (`quiet_*`), and not judged: on a machine
    that also runs clients and the control plane it measures the machine.
    """
    findings = check(history)
    quiet = measure(history, [run.quiet] if run.quiet else []).as_dict()
    figures = measure(history, run.faults).as_dict() | counts(findings)
    figures |= {f"quiet_{name}": quiet[f"elsewhere_{name}"] for name in ("p99", "max")}
    figures["quiet_slowest_p99"] = quiet["slowest_p99"]
    figures["commits"] = sum(len(group.offsets) for group in history.groups)
    bad = violations(findings)
    each = [measure(history, [fault]).as_dict() for fault in run.faults]
    unsafe = [f"{len(bad)} findings of the checker"] if bad else []
    return Verdict(scenario, figures, findings, run.faults, each, unsafe, exceeded(figures, bounds))
