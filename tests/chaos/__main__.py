"""Faults under a committing load, with a checker: `make chaos [SCENARIO="NAME ..."] [SECONDS=n] [SEED=k]`.

Each scenario starts a cluster of its own, lets 100 groups commit every 10 ms, makes its fault again and again until its
seconds are over (at least once), and reads everything back. Printed per scenario: how long groups of the faulted pod
were without an acknowledged commit, the same for all other groups, and lost, reverted and invented commits.

Exit codes: 0 all bounds hold and nothing was lost; 1 not so; 2 wrong usage; 130 interrupted.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import secrets
import shutil
import signal
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache, partial
from pathlib import Path
from types import FrameType

from tests.chaos.cluster import Cluster
from tests.chaos.errors import HarnessError, Skipped
from tests.chaos.kube_cluster import KubeCluster, kube_cluster
from tests.chaos.kube_scenarios import KUBERNETES, KubeScenario
from tests.chaos.loading import LoadProcess
from tests.chaos.network import namespaces
from tests.chaos.network_scenarios import NETWORK
from tests.chaos.observed import ObservedCluster
from tests.chaos.report import print_skipped, print_verdict, table
from tests.chaos.run import Run, Verdict, judge
from tests.chaos.scenarios import PROCESSES, Scenario

REPOSITORY = Path(__file__).resolve().parents[2]
AnyScenario = Scenario | KubeScenario
Kubernetes = Callable[[], KubeCluster]
"""The one cluster of all scenarios on Kubernetes, started by the first of them."""
GROUPS: dict[str, tuple[AnyScenario, ...]] = {
    "processes": PROCESSES,
    "network": NETWORK,
    "embedded": (*PROCESSES, *NETWORK),
    "kubernetes": KUBERNETES,
}


def main() -> int:
    parser = arguments()
    options = parser.parse_args()
    chosen = choose(options.scenarios, parser)
    if options.list:
        for scenario in chosen:
            print(f"{scenario.name:<20} {scenario.what}")
        return 0
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupted)
    print(f"seed {options.seed}", file=sys.stderr)
    verdicts: list[Verdict] = []
    try:
        with ExitStack() as stack:
            kubernetes = cache(lambda: stack.enter_context(kube_cluster(**shape(options))))
            run_all(chosen, options, kubernetes, verdicts)
    except KeyboardInterrupt:
        print("interrupted; everything that was started has ended", file=sys.stderr)
        return 130
    finally:
        if verdicts:
            print(json.dumps([each.as_dict() for each in verdicts]) if options.json else table(verdicts))
    return 1 if any(each.reasons for each in verdicts) else 0


def run_all(
    chosen: list[AnyScenario], options: argparse.Namespace, kubernetes: Kubernetes, verdicts: list[Verdict]
) -> None:
    for scenario in chosen:
        verdict = run_one(scenario, options, kubernetes)
        (print_skipped if verdict.skipped else print_verdict)(verdict)
        verdicts.append(verdict)


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "scenarios", nargs="*", metavar="SCENARIO", help="names, or processes, network, embedded (both, the default)"
    )
    parser.add_argument("--list", action="store_true", help="say what there is")
    parser.add_argument("--seconds", type=float, default=12.0, help="of faults in each scenario; default 12")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1 << 31), help="of everything chosen at random")
    parser.add_argument("--groups", type=int, default=100, help="committing groups; default 100")
    parser.add_argument("--interval-ms", type=float, default=10.0, help="between two commits of a group; default 10")
    parser.add_argument("--pods", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=50, help="of the offsets topic; default 50")
    parser.add_argument("--replication-factor", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser


def choose(names: list[str], parser: argparse.ArgumentParser) -> list[AnyScenario]:
    known = {scenario.name: scenario for group in GROUPS.values() for scenario in group}
    chosen: list[AnyScenario] = []
    for name in names or ["embedded"]:
        if name not in known and name not in GROUPS:
            parser.error(f"no scenario {name}; there are: {', '.join([*GROUPS, *known])}")
        chosen += GROUPS.get(name) or (known[name],)
    return chosen


def run_one(scenario: AnyScenario, options: argparse.Namespace, kubernetes: Kubernetes) -> Verdict:
    """The verdict; its files stay when the scenario failed, and their place is among the reasons."""
    root = REPOSITORY / ".cache" / "chaos" / f"{scenario.name}-{os.getpid()}-{time.monotonic_ns()}"
    root.mkdir(parents=True)
    print(f"{scenario.name}: {scenario.what}", file=sys.stderr)
    keep = False
    try:
        verdict = measured(scenario, root, options, kubernetes)
        if verdict.reasons:
            keep = True
            verdict.reasons.append(f"seed {options.seed}; logs and history: {root}")
        return verdict
    finally:
        if not keep:
            shutil.rmtree(root, ignore_errors=True)


def measured(scenario: AnyScenario, root: Path, options: argparse.Namespace, kubernetes: Kubernetes) -> Verdict:
    run = Run(random.Random(f"{options.seed} {scenario.name}"), options.seconds)
    try:
        with ExitStack() as stack:
            cluster: ObservedCluster
            if isinstance(scenario, KubeScenario):
                cluster, body = kubernetes(), partial(scenario.body, run, kubernetes())
            else:
                cluster = pods = local(scenario, root, options, stack)
                body = partial(scenario.body, run, pods)
            load = LoadProcess(cluster.bootstrap(), root, groups=options.groups, interval_ms=options.interval_ms)
            with load:
                load.wait_ready()
                run.started = time.monotonic()
                body()
                return judge(scenario.name, load.stop(), run.faults, scenario.bounds)
    except Skipped as missing:
        return Verdict(scenario.name, {}, skipped=str(missing))
    except HarnessError as error:
        return Verdict(scenario.name, {}, faults=run.faults, reasons=[str(error)])


def shape(options: argparse.Namespace) -> dict[str, int]:
    return {"pods": options.pods, "partitions": options.partitions, "factor": options.replication_factor}


def local(scenario: Scenario, root: Path, options: argparse.Namespace, stack: ExitStack) -> Cluster:
    """A cluster of its own, which ends with the stack."""
    stack.enter_context(scenario.prepare(root))
    places = stack.enter_context(namespaces(options.pods)) if scenario.in_namespaces else []
    return stack.enter_context(Cluster(root, namespaces=places, config=scenario.config, **shape(options)))


def interrupted(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
