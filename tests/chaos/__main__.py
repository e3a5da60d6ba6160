"""Faults under a committing load, with a checker: `make chaos [SCENARIO="NAME ..."] [SECONDS=n] [SEED=k]`.

Each scenario starts a cluster of its own, lets 100 groups commit every 10 ms, makes its fault again and again until its
seconds are over (at least once), and reads everything back. Printed per scenario: how long groups of the faulted pod
were without an acknowledged commit, the same for all other groups, and lost, reverted and invented commits.

A scenario fails at once when a commit was lost, reverted or invented. When only a bound of time was missed, it is
repeated twice, and fails if either repetition misses it too.

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
import traceback
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import FrameType

from tests.chaos.catalogue import GROUPS, SCENARIOS, AnyScenario, Clusters, Shape
from tests.chaos.errors import HarnessError, Skipped
from tests.chaos.figures import percentile
from tests.chaos.leftovers import end_leftovers
from tests.chaos.loading import LoadProcess
from tests.chaos.named import named_late
from tests.chaos.report import print_verdict, table
from tests.chaos.run import Run, Verdict, judge, tried
from tests.chaos.scenarios import INTERVAL_MS

SCENARIOS_DIRECTORY = Path(__file__).resolve().parents[2] / ".cache" / "chaos"
DEFAULT = "embedded"


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
    end_leftovers(SCENARIOS_DIRECTORY)
    print(f"seed {options.seed}", file=sys.stderr)
    verdicts: list[Verdict] = []
    try:
        with ExitStack() as session:
            clusters = Clusters(Shape(options.pods, options.partitions, options.replication_factor), session)
            for scenario in chosen:
                verdicts.append(tried(partial(run_one, scenario, options, clusters)))
                print_verdict(verdicts[-1])
    except KeyboardInterrupt:
        print("interrupted; everything that was started has ended", file=sys.stderr)
        return 130
    finally:
        if verdicts:
            print(json.dumps([each.as_dict() for each in verdicts]) if options.json else table(verdicts))
    return 1 if any(each.reasons for each in verdicts) else 0


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "scenarios", nargs="*", metavar="SCENARIO", help=f"names, or {', '.join(GROUPS)}; default {DEFAULT}"
    )
    parser.add_argument("--list", action="store_true", help="say what these scenarios do, and end")
    parser.add_argument("--seconds", type=float, default=5.0, help="of faults in each scenario; default 5")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1 << 31), help="of everything chosen at random")
    parser.add_argument("--groups", type=int, default=100, help="committing groups; default 100")
    parser.add_argument(
        "--interval-ms",
        type=float,
        default=INTERVAL_MS,
        help=f"between two commits of a group; default {INTERVAL_MS:g}",
    )
    parser.add_argument("--pods", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=50, help="of the offsets topic; default 50")
    parser.add_argument("--replication-factor", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser


def choose(names: list[str], parser: argparse.ArgumentParser) -> list[AnyScenario]:
    chosen: list[AnyScenario] = []
    for name in names or [DEFAULT]:
        if name not in SCENARIOS and name not in GROUPS:
            parser.error(f"no scenario {name}; there are: {', '.join([*GROUPS, *SCENARIOS])}")
        chosen += GROUPS.get(name) or (SCENARIOS[name],)
    return chosen


def run_one(scenario: AnyScenario, options: argparse.Namespace, clusters: Clusters) -> Verdict:
    """The verdict; its files stay when the scenario failed, and their place is among the reasons."""
    root = SCENARIOS_DIRECTORY / f"{scenario.name}-{os.getpid()}-{time.monotonic_ns()}"
    root.mkdir(parents=True)
    print(f"{scenario.name}: {scenario.what}", file=sys.stderr)
    keep = False
    try:
        verdict = measured(scenario, root, options, clusters)
        if verdict.reasons:
            keep = True
            (verdict.unsafe or verdict.slow).append(f"seed {options.seed}; logs and history: {root}")
        return verdict
    finally:
        if not keep:
            shutil.rmtree(root, ignore_errors=True)


def measured(scenario: AnyScenario, root: Path, options: argparse.Namespace, clusters: Clusters) -> Verdict:
    run = Run(random.Random(f"{options.seed} {scenario.name}"), options.seconds)
    try:
        with ExitStack() as stack:
            cluster, make_faults = clusters.prepare(scenario, run, root, stack)
            load = stack.enter_context(
                LoadProcess(cluster.bootstrap(), root, groups=options.groups, interval_ms=options.interval_ms)
            )
            load.wait_ready()
            run.begin()
            watch = stack.enter_context(cluster.leader_watch())
            make_faults()
            history = load.stop()
            verdict = judge(scenario.name, history, run, scenario.bounds)
            if watch is not None:
                late = named_late(history, run.faults, watch.seen, cluster.places(), cluster.partitions)
                verdict.figures["named_late"] = round(1000 * percentile(late, 0.5), 1) if late else None
            return verdict
    except Skipped as missing:
        return Verdict(scenario.name, {}, skipped=str(missing))
    except HarnessError as error:
        return Verdict(scenario.name, {}, faults=run.faults, unsafe=[str(error)])
    except Exception as error:  # a call that nobody expected to fail: the other scenarios are run all the same
        (root / "harness.log").write_text(traceback.format_exc(), encoding="utf-8")
        return Verdict(scenario.name, {}, faults=run.faults, unsafe=[f"{type(error).__name__}: {error}"])


def interrupted(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
