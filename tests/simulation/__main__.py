"""`make simulate SEEDS=n [SEED=k]`: many seeds, or one again with the end of its trace.

A failing seed prints itself, the commit, all drawn options, and the smallest options with which it still fails.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from dataclasses import asdict
from multiprocessing import Pool

from tests.simulation.minimise import minimise
from tests.simulation.options import Options, draw_options
from tests.simulation.simulator import Failure, Outcome, simulate

TRACE_LINES = 60


def main() -> int:
    parser = argparse.ArgumentParser(prog="simulate", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many seeds")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="run this one alone, and print what it does")
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    print(f"commit {_commit()}")
    if arguments.seed is not None:
        return _run_one(draw_options(arguments.seed))
    started = time.monotonic()
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    print(f"seeds {seeds.start} to {seeds.stop - 1}")
    failed: list[int] = []
    outcomes: list[Outcome] = []
    with Pool(arguments.processes) as pool:
        for seed, result in pool.imap(_run, seeds, chunksize=4):
            if isinstance(result, Outcome):
                outcomes.append(result)
            else:
                failed.append(seed)
                print(f"seed {seed} failed: {result}", flush=True)
    print(_summary(outcomes, failed, time.monotonic() - started))
    if failed:
        return _explain(failed[0])
    return 0


def _run(seed: int) -> tuple[int, Outcome | str]:
    try:
        return seed, simulate(draw_options(seed))
    except Failure as failure:
        return seed, failure.reason


def _summary(outcomes: list[Outcome], failed: list[int], took_s: float) -> str:
    return (
        f"{len(outcomes)} clean, {len(failed)} failed {failed or ''} in {took_s:.0f} s; "
        f"{sum(one.epochs for one in outcomes)} leaderships (up to epoch {_most(outcomes, 'highest_epoch')}), "
        f"{sum(one.committed for one in outcomes)} records committed, "
        f"{sum(one.answered for one in outcomes)} requests answered, "
        f"all well at most {_most(outcomes, 'healed_ms')} ms after the faults stopped"
    )


def _most(outcomes: list[Outcome], name: str) -> int:
    return max((getattr(one, name) for one in outcomes), default=-1)


def _run_one(options: Options) -> int:
    print(f"options {options}", flush=True)
    try:
        print(simulate(options))
    except Failure as failure:
        _print_failure(failure)
        return 1
    return 0


def _explain(seed: int) -> int:
    options = draw_options(seed)
    smallest = minimise(options)
    drawn = asdict(options)
    print(f"seed {seed} fails with these options as well, and with fewer faults:")
    print("  " + " ".join(f"{name}={value}" for name, value in asdict(smallest).items() if value != drawn[name]))
    return _run_one(smallest)


def _print_failure(failure: Failure) -> None:
    print("\n".join(failure.trace[-TRACE_LINES:]))
    print(f"commit {_commit()}")
    print(f"options {failure.options}")
    print(f"seed {failure.options.seed} failed: {failure.reason}")
    print(f"again: make simulate SEED={failure.options.seed}")


def _commit() -> str:
    result = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    return result.stdout.strip() or "unknown"


if __name__ == "__main__":
    sys.exit(main())
