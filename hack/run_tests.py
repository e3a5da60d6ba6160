#!/usr/bin/env python3
"""Run every test that can run on this machine, and say of the others what would enable them.

A stage that lacks something is skipped with one line that names what is missing and how to get it. The end is a
summary: passed, failed, skipped and seconds of each stage, then one line for each reason of a skip and for each
failure. Exit code: 0 when nothing failed, 1 otherwise, 130 after Ctrl-C.

Stages run one after the other, and the tests of a stage side by side, because most of their time is waiting. The stage
kubernetes has one cluster, and so one test at a time.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import kubernetes_machine as machine

REPOSITORY = Path(__file__).resolve().parent.parent
REPORTS = REPOSITORY / ".cache" / "test"
COMPILED = REPOSITORY / "hack" / "compiled"
WORKERS = min(8, 2 * (os.cpu_count() or 1))
"""Processes that run tests. Two for each processor: at any time about half of them wait."""
LONGEST_MESSAGE = 300
SIDE_BY_SIDE = ("-n", str(WORKERS))
FAST = ("tests/unit", "tests/golden")
BROWSER = REPOSITORY / ".cache" / "browser"
"""The environment of what drives a browser (`make test-browser`)."""
PROCESSES = ("tests/conformance", "tests/integration", "tests/chaos", "tests/security", "tests/attacks")
"""Tests of whole processes: they run what is shipped, with the hot modules compiled, where that can be done. The folder
with the longest test comes first.
"""
ALERTS = tuple(f"tests/kubernetes/test_alerts{name}.py" for name in ("", "_on_logs", "_of_sites", "_before_kafka"))
"""Those but the first are long, and no part of the stage kubernetes: their faults have tests without alerts, too."""
ON_NODES = "tests/kubernetes/test_nodes.py"
LONG_ON_KUBERNETES = tuple(
    f"tests/kubernetes/test_{name}.py" for name in ("two_operators", "moving_groups_on_kubernetes", "quiet")
)
INSTALLED_BY_OLM = "tests/kubernetes/test_olm.py"
OLDER_VERSIONS = ("1.32", "1.33")
"""The versions of Kubernetes that are supported, beside the one of the stage kubernetes."""
ON_OLDER_VERSIONS = tuple(
    f"tests/kubernetes/test_{name}.py"
    for name in ("crds_schema", "on_call", "driven", "roles_of_people", "end_to_end", "life_cycle", "whole_states")
)
COMPILED_AGAIN = (
    *(f"tests/unit/{name}" for name in ("groups", "listener", "log", "peers", "pod", "records", "replica")),
    *(f"tests/unit/{name}" for name in ("replication", "shard", "wire", "compiled")),
    "tests/golden",
    "tests/simulation",
)
"""Tests of what is compiled: they run in plain Python and once more compiled."""


@dataclass(frozen=True)
class Stage:
    """One group of tests: `missing()` names what the machine lacks for it, one instruction per line, or nothing.

    Without `by_default` it runs only when it is asked for by name.
    """

    name: str
    run: Callable[["Outcome"], None]
    missing: Callable[[], list[str]]
    by_default: bool = True


@dataclass
class Outcome:
    """The result of a stage. `skips` counts the reasons of skipped tests; `failures` has the first line of what each
    failed test said, by its name; `error` says why the stage failed.
    """

    name: str
    counts: Counter[str] = field(default_factory=Counter)
    skips: Counter[str] = field(default_factory=Counter)
    failures: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    error: str = ""
    ran: bool = False

    @property
    def failed(self) -> bool:
        return bool(self.error)

    def line(self) -> str:
        if not (self.ran or self.error):
            return f"{self.name:<12} skipped"
        numbers = ", ".join(f"{count} {kind}" for kind, count in sorted(self.counts.items()) if count)
        parts = [numbers, self.error, f"{self.seconds:.0f} s"]
        return f"{self.name:<12} {'FAILED' if self.failed else 'passed'}: {'; '.join(part for part in parts if part)}"


def pytest(outcome: Outcome, *arguments: str, environment: dict[str, str] | None = None) -> None:
    """Run pytest in this interpreter's environment; its output goes straight to ours. Compiled test modules are kept,
    whatever the environment says: each of the processes would compile all of them again.
    """
    REPORTS.mkdir(parents=True, exist_ok=True)
    report = REPORTS / f"{outcome.name}.xml"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "--durations=15", f"--junitxml={report}", *arguments]
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    code = run_to_its_end(command, REPOSITORY, inherited | (environment or {}))
    if report.exists():
        read_report(report, outcome)
    if code != 0:
        outcome.error = f"pytest ended with exit code {code}"


def run_to_its_end(command: list[str], folder: Path, environment: dict[str, str]) -> int:
    """Its exit code. Ctrl-C reaches the command, too: it has the time to end what it started."""
    with subprocess.Popen(command, cwd=folder, env=environment) as child:
        try:
            return child.wait()
        except KeyboardInterrupt:
            child.wait()
            raise


def read_report(report: Path, outcome: Outcome) -> None:
    """Add the numbers, the failures and the reasons of skips in a JUnit file to `outcome`."""
    for case in ElementTree.parse(report).iter("testcase"):
        skip = case.find("skipped")
        if skip is not None:
            outcome.counts["skipped"] += 1
            outcome.skips[skip.get("message", "no reason given")] += 1
        elif (found := next((each for each in case if each.tag in ("failure", "error")), None)) is not None:
            outcome.counts["failed"] += 1
            said = found.get("message", "").partition("\n")[0]
            outcome.failures[f"{case.get('classname')}::{case.get('name')}"] = said[:LONGEST_MESSAGE]
        else:
            outcome.counts["passed"] += 1


def run_fast(outcome: Outcome) -> None:
    """A part of the stage main, without the tests that are marked as long."""
    pytest(outcome, *SIDE_BY_SIDE, "-m", "not long", *FAST)


def run_main(outcome: Outcome) -> None:
    try:
        environment = machine.client_tools()
    except machine.ClusterError as error:
        print(f"without helm or kubectl: {error}", flush=True)  # the tests that need them are skipped, and say so
        environment = {}
    fetch_kafka()
    ignored = [f"--ignore={folder}" for folder in (*PROCESSES, "tests/browser")]
    pytest(outcome, *SIDE_BY_SIDE, "-m", "not kubernetes", *ignored, "tests", environment=environment)


def run_compiled(outcome: Outcome) -> None:
    environment = compiled()
    if environment:
        pytest(
            outcome, *SIDE_BY_SIDE, "-m", "not kubernetes and not interpreted", *COMPILED_AGAIN, environment=environment
        )
    else:
        outcome.error = "hack/compiled could not compile"


def run_processes(outcome: Outcome) -> None:
    fetch_kafka()
    pytest(outcome, *SIDE_BY_SIDE, "-m", "not kubernetes", *PROCESSES, environment=compiled())


@cache
def compiling() -> subprocess.Popen[str]:
    """Compiles from the first call on: a minute of one processor, for which the first stage need not wait."""
    return subprocess.Popen([COMPILED, "path"], stdout=subprocess.PIPE, text=True)


@cache
def compiled() -> dict[str, str]:
    """The environment with which Python imports the compiled modules; empty, with a message, if they do not compile."""
    output, _ = compiling().communicate()
    if compiling().returncode != 0:
        return {}
    folder = output.strip()
    return {"PYTHONPATH": folder, "MUSTER_TEST_COMPILED": folder}


def compiled_missing() -> list[str]:
    return subprocess.run([COMPILED, "missing"], stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()


def fetch_kafka() -> bool:
    """Kafka's jars, by Maven, the first time: without them the tests against a real broker are skipped, and say so.
    Whether it can run here."""
    command = [sys.executable, "-m", "tests.conformance", "--fetch", "--require-kafka"]
    return subprocess.run(command, cwd=REPOSITORY, check=False).returncode == 0


def run_browser(outcome: Outcome) -> None:
    """One after the other: each test watches a page while something happens to the one cluster."""
    (packages,) = BROWSER.glob("lib/python*/site-packages")
    pytest(outcome, "tests/browser", environment={"PYTHONPATH": str(packages)})


def browser_missing() -> list[str]:
    lacking = []
    if not any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))):
        lacking.append("the pages of `muster ui` need a browser: apt-get install chromium")
    if not (BROWSER / ".synced").exists():
        lacking.append("the pages of `muster ui` need what drives a browser: make .cache/browser/.synced")
    return lacking


def run_go(outcome: Outcome) -> None:
    """The load generator's own tests."""
    command = ["go", "test", "./..."]
    environment = os.environ | {"PATH": machine.SEARCH_PATH}
    if run_to_its_end(command, REPOSITORY / "bench" / "loadgen", environment) != 0:
        outcome.error = f"`{' '.join(command)}` failed"


def go_missing() -> list[str]:
    return [] if machine.has("go") else ["the load generator's tests need Go: https://go.dev/dl"]


def run_kubernetes(outcome: Outcome) -> None:
    try:
        with machine.running_cluster(kafka=fetch_kafka()) as environment:
            whole = {**environment, "MUSTER_TEST_WHOLE": "1"}
            elsewhere = (ON_NODES, *ALERTS[1:], INSTALLED_BY_OLM)
            left_out = [f"--ignore={each}" for each in elsewhere]
            pytest(outcome, "-m", "kubernetes", *left_out, "tests", environment=whole)
    except machine.ClusterError as error:
        outcome.error = str(error)


def run_alerts(outcome: Outcome) -> None:
    try:
        with machine.running_cluster(kafka=fetch_kafka(), later=True) as environment:
            pytest(outcome, *ALERTS, environment=environment)
    except machine.ClusterError as error:
        outcome.error = str(error)


def alerts_missing() -> list[str]:
    lacks = [] if shutil.which("prometheus") else ["rules need a Prometheus: apt-get install prometheus"]
    return [*machine.missing(), *lacks]


def run_kubernetes_nodes(outcome: Outcome) -> None:
    """A cluster of its own, with nodes that are lost."""
    try:
        with machine.cluster_of_nodes(3) as environment:
            pytest(outcome, ON_NODES, environment=environment)
    except machine.ClusterError as error:
        outcome.error = str(error)


def run_kubernetes_versions(outcome: Outcome) -> None:
    try:
        for version in OLDER_VERSIONS:
            with machine.cluster_of_version(version) as environment:
                pytest(outcome, *ON_OLDER_VERSIONS, environment=environment)
    except machine.ClusterError as error:
        outcome.error = str(error)


def run_kubernetes_long(outcome: Outcome) -> None:
    """The tests that take their time only here: operators killed, also in 20 moves of a live group, and 11 minutes in
    which nothing happens."""
    try:
        with machine.running_cluster(kafka=fetch_kafka()) as environment:
            pytest(outcome, "-s", *LONG_ON_KUBERNETES, environment={**environment, "MUSTER_TEST_LONG": "1"})
    except machine.ClusterError as error:
        outcome.error = str(error)


def run_olm(outcome: Outcome) -> None:
    """The bundle, installed by the Operator Lifecycle Manager, which Helm brings onto the cluster."""
    try:
        machine.call(machine.HELM)
        with machine.running_cluster(olm=True) as environment:
            pytest(outcome, INSTALLED_BY_OLM, environment=environment)
    except machine.ClusterError as error:
        outcome.error = str(error)


def olm_missing() -> list[str]:
    lacks = [] if machine.has("go") else ["OLM and Helm are compiled from their Go modules: https://go.dev/dl"]
    return [*machine.missing(), *lacks]


def run_pipeline_kubernetes(outcome: Outcome) -> None:
    try:
        with machine.running_cluster(pipeline=True) as environment:
            pytest(outcome, "tests/kubernetes/test_pipeline_jobs.py", environment=environment)
    except machine.ClusterError as error:
        outcome.error = str(error)


STAGES = (
    Stage("fast", run_fast, list, by_default=False),
    Stage("main", run_main, list),
    Stage("compiled", run_compiled, compiled_missing),
    Stage("processes", run_processes, list),
    Stage("browser", run_browser, browser_missing),
    Stage("go", run_go, go_missing),
    Stage("kubernetes", run_kubernetes, machine.missing),
    Stage("alerts", run_alerts, alerts_missing, by_default=False),
    Stage("kubernetes-nodes", run_kubernetes_nodes, machine.localkube_missing),
    Stage("kubernetes-versions", run_kubernetes_versions, machine.localkube_missing, by_default=False),
    Stage("kubernetes-long", run_kubernetes_long, machine.missing, by_default=False),
    Stage("olm", run_olm, olm_missing, by_default=False),
    Stage("pipeline-kubernetes", run_pipeline_kubernetes, machine.missing, by_default=False),
)


def run(stage: Stage, required: bool) -> Outcome:
    """Run one stage; what is missing is an error only for a stage that was asked for by name."""
    outcome = Outcome(stage.name)
    missing = stage.missing()
    if missing:
        if required:
            outcome.error = "this machine lacks: " + "; ".join(missing)
        outcome.skips.update(missing)
        return outcome
    print(f"== {stage.name}", flush=True)
    outcome.ran = True
    started = time.monotonic()
    stage.run(outcome)
    outcome.seconds = time.monotonic() - started
    return outcome


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=[stage.name for stage in STAGES], help="run this stage and no other")
    only = parser.parse_args().only
    chosen = [stage for stage in STAGES if (stage.by_default if only is None else stage.name == only)]
    if any(stage.run in (run_compiled, run_processes) for stage in chosen) and not compiled_missing():
        compiling()
    try:
        outcomes = [run(stage, required=only is not None) for stage in chosen]
    except KeyboardInterrupt:
        print("\ninterrupted", flush=True)
        return 130
    print("\n== summary")
    for outcome in outcomes:
        print(outcome.line())
    for outcome in outcomes:
        for reason, count in outcome.skips.items():
            print(f"skipped in {outcome.name}: {reason}" + (f" ({count} tests)" if count > 1 else ""))
    for outcome in outcomes:
        for name, said in outcome.failures.items():
            print(f"failed in {outcome.name}: {name}: {said}")
    return 1 if any(outcome.failed for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
