"""One scenario: a cluster, the load, faults, and the verdict."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.checker import Finding, check, counts, violations
from tests.chaos.faults import Bounds, Fault, exceeded, measure
from tests.chaos.history import History
from tests.chaos.machine import UNDISTURBED, Machine
from tests.chaos.observed import ObservedCluster

CALM_S = 1.0
"""How long the groups are watched on after a fault's effects seem to be over."""
HUSH_S = 0.5
"""How long, at least, the harness asks nothing of the cluster before a fault: what answers cost is no part of it."""
QUIET_S = 2.0
"""How long the groups are watched before the first fault: what this machine does to them by itself."""
AGAIN_S = 60.0
"""How much longer than asked for faults are made, until one is not disturbed."""
MAX_LINES = 20


@dataclass
class Run:
    """What a scenario gets: it makes faults while ``goes_on``."""

    random: random.Random
    seconds: float
    machine: Machine
    faults: list[Fault] = field(default_factory=list)
    quiet: Fault | None = None
    started: float = 0.0

    def begin(self) -> None:
        """Watch the groups for a while, and let the time for faults begin."""
        self._hush()
        self.quiet = Fault("nothing", (), time.monotonic())
        time.sleep(QUIET_S)
        self.quiet.until = self.started = time.monotonic()

    @property
    def goes_on(self) -> bool:
        """There is time for another fault; more of it as long as each was disturbed by what else this machine did."""
        seconds = self.seconds if self.undisturbed else self.seconds + AGAIN_S
        return time.monotonic() - self.started <= seconds

    @property
    def undisturbed(self) -> list[Fault]:
        """While they lasted, the machine had its processors to itself."""
        return [fault for fault in self.faults if fault.stolen <= UNDISTURBED]

    def _hush(self) -> None:
        """What was built, unpacked and deleted before is on the disk then, and not written in the middle of a fault."""
        os.sync()
        self.machine.wait_undisturbed(HUSH_S)

    @contextmanager
    def fault(self, cluster: ObservedCluster, what: str, *victims: str, planned: bool = False) -> Iterator[Fault]:
        """The block does the fault and waits until its effects are over. ``victims``: pods by name; ``planned``: see
        ``Fault``."""
        addresses = tuple(cluster.kafka_address(each) for each in victims)
        work_ms = self.machine.work_ms()
        self._hush()
        fault = Fault(what, addresses, time.monotonic(), planned=planned, work_ms=work_ms)
        self.faults.append(fault)
        try:
            yield fault
            time.sleep(CALM_S)
        finally:
            fault.until = time.monotonic()
            fault.stolen = self.machine.stolen(fault.at, fault.until)

    def rounds(self, cluster: ObservedCluster) -> Iterator[str]:
        """The pod that leads most, again and again while the run goes on; at least once."""
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
    """``reasons`` is empty when all is well. ``figures``: see Figures.as_dict, with the checker's counts and how many
    faults were ``disturbed``; ``each``: the same of each fault alone."""

    scenario: str
    figures: dict[str, Any]
    findings: list[Finding] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    each: list[dict[str, Any]] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    skipped: str = ""

    def as_dict(self) -> dict[str, Any]:
        return {
            "scenario": self.scenario,
            **self.figures,
            "each": self.each,
            "failed": self.reasons,
            "skipped": self.skipped,
        }

    def explain(self) -> Iterator[str]:
        """What was lost with group, offset, pod and time, beside what was done when."""
        yield from self.reasons
        for fault, seen in zip(self.faults, self.each, strict=False):
            hit = f"interrupted p50 {seen['interrupted_p50']}, max {seen['interrupted_max']} ms; "
            machine = f"stolen up to {seen['stolen']} %, a fixed piece of work took {seen['work']} ms"
            yield (
                f"{fault.at:.3f} to {fault.until:.3f}: {fault.what} ({', '.join(fault.victims) or 'no leader'}): "
                f"{hit if fault.victims else ''}elsewhere max {seen['elsewhere_max']} ms; {machine}"
            )
        for finding in violations(self.findings)[:MAX_LINES]:
            yield f"{finding.kind}: {finding.group}: {finding.commits} commits; {finding.text}"


def judge(scenario: str, history: History, run: Run, bounds: Bounds) -> Verdict:
    """Times are those of the undisturbed faults, or of all when there was none; nothing may be lost in any."""
    findings = check(history)
    quiet = measure(history, [run.quiet] if run.quiet else []).as_dict()
    figures = measure(history, run.undisturbed or run.faults).as_dict() | counts(findings)
    figures["quiet_p99"] = quiet["elsewhere_p99"]
    figures["disturbed"] = len(run.faults) - len(run.undisturbed)
    figures["commits"] = sum(len(group.offsets) for group in history.groups)
    reasons = exceeded(figures, bounds)
    if reasons and not run.undisturbed:
        reasons.append(
            f"up to {figures['stolen']} % of the processors' time went to other machines, in each fault: run it again"
        )
    bad = violations(findings)
    if bad:
        reasons.insert(0, f"{len(bad)} findings of the checker")
    each = [measure(history, [fault]).as_dict() for fault in run.faults]
    return Verdict(scenario, figures, findings, run.faults, each, reasons)
