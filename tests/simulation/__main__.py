"""`make simulate SEEDS=n [FIRST=k]`: many seeds; `make simulate SEED=k`: one again, with the end of its trace.

A failing seed prints itself, the commit, all drawn options, and the smallest options with which the same check fails;
`WITH="name=value ..."` runs a seed again with these. `FAULT="no seal"` plants one of ``faults.FAULTS``, to see what a
failure looks like. `ONLY=transactions` runs as many seeds of both coordinators, `ONLY=operators` of real operators,
`ONLY=consumers` of consumers of the new protocol, `ONLY=mixed` of groups with members of both.
"""

from __future__ import annotations

import argparse
import logging
import os
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from itertools import count, islice
from multiprocessing.pool import Pool

import structlog
from tests.simulation.faults import FAULTS
from tests.simulation.injected import Injected
from tests.simulation.minimise import minimise
from tests.simulation.options import Options
from tests.simulation.profiles import draw
from tests.simulation.simulator import Failure, Outcome, simulate

KINDS: dict[str, Callable[[int], bool]] = {
    "": lambda seed: True,
    "operators": lambda seed: draw(seed).operating,
    "transactions": lambda seed: draw(seed).coordinators > 0,
    "consumers": lambda seed: draw(seed).consumers > 0,
    "mixed": lambda seed: draw(seed).mixed > 0,
}
TRACE_LINES = 60
PROGRESS_EVERY = 500


def main() -> int:
    parser = argparse.ArgumentParser(prog="simulate", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many seeds")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="run this one alone, and print what it does")
    parser.add_argument("--with", dest="options", default="", help="name=value ...: other options than those drawn")
    parser.add_argument("--fault", choices=FAULTS, metavar="NAME", help="plant this one")
    parser.add_argument("--only", choices=KINDS, default="", help="count and run none but the seeds of this kind")
    parser.add_argument("--trace", default="", help="write all that happens in the run of --seed to this file")
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    fault: str = arguments.fault or ""
    sys.unraisablehook = lambda unraisable: None  # what killed processes were doing, when it is collected after a run
    print(f"commit {_commit()}")
    if arguments.seed is not None:
        return _run_one(fault, draw(arguments.seed).with_text(arguments.options), arguments.trace)
    if arguments.seeds < 1:
        parser.error("--seeds: at least 1")
    is_wanted = KINDS[arguments.only]
    seeds = list(islice(filter(is_wanted, count(arguments.first)), arguments.seeds))
    with Pool(arguments.processes, _hush) as pool:
        failed = _run_all(pool, fault, arguments.options, seeds)
    return _explain(fault, draw(failed).with_text(arguments.options)) if failed is not None else 0


def _hush() -> None:
    """What killed processes log when they are collected."""
    warnings.simplefilter("ignore")
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


def _simulate(fault: str, options: Options, write: Callable[[str], object] = lambda line: None) -> Outcome:
    """Raises Failure."""
    with FAULTS[fault].plant() if fault else nullcontext():
        return simulate(options, write)


def _run_all(pool: Pool, fault: str, changed: str, seeds: Sequence[int]) -> int | None:
    """The first seed that fails; all are run."""
    print(f"{len(seeds)} seeds from {seeds[0]} to {seeds[-1]}")
    started = time.monotonic()
    failed: list[int] = []
    outcomes: list[Outcome] = []
    for seed, result in pool.imap(partial(_run, fault, changed), seeds, chunksize=4):
        if isinstance(result, Outcome):
            outcomes.append(result)
        else:
            failed.append(seed)
            print(f"seed {seed} failed: {result}", flush=True)
        done = len(outcomes) + len(failed)
        if done % PROGRESS_EVERY == 0:
            print(f"{done} seeds, {len(failed)} failed, {time.monotonic() - started:.0f} s", flush=True)
    print(_summary(outcomes, failed, time.monotonic() - started))
    return failed[0] if failed else None


def _run(fault: str, changed: str, seed: int) -> tuple[int, Outcome | str]:
    try:
        return seed, _simulate(fault, draw(seed).with_text(changed))
    except Failure as failure:
        return seed, failure.reason


def _summary(outcomes: list[Outcome], failed: list[int], took_s: float) -> str:
    struck: Counter[Injected] = Counter()
    for outcome in outcomes:
        struck += outcome.injected
    return (
        f"{len(outcomes)} clean, {len(failed)} failed {failed or ''} in {took_s:.0f} s; "
        f"{sum(one.epochs for one in outcomes)} leaderships (up to epoch {_most(outcomes, 'highest_epoch')}), "
        f"{sum(one.committed for one in outcomes)} records committed, "
        f"{sum(one.answered for one in outcomes)} requests answered, "
        f"{sum(one.transactions_committed for one in outcomes)} transactions of producers committed and "
        f"{sum(one.transactions_aborted for one in outcomes)} aborted, "
        f"all well at most {_most(outcomes, 'healed_ms')} ms after the faults stopped\n"
        f"what failed: {', '.join(f'{kind.value} {struck[kind]}' for kind in Injected)}"
    )


def _most(outcomes: list[Outcome], name: str) -> int:
    return max((getattr(one, name) for one in outcomes), default=-1)


def _run_one(fault: str, options: Options, trace: str = "") -> int:
    print(f"options {options}", flush=True)
    with open(trace or os.devnull, "w") as file:
        try:
            outcome = _simulate(fault, options, lambda line: print(line, file=file))
        except Failure as failure:
            _print_failure(failure)
            return 1
        print(f"trace hash {outcome.trace_hash}", file=file)
    print(outcome)
    return 0


def _explain(fault: str, options: Options) -> int:
    smallest = minimise(options, partial(_simulate, fault))
    drawn = asdict(options)
    fewer = " ".join(f"{name}={value}" for name, value in asdict(smallest).items() if value != drawn[name])
    print(
        f'seed {options.seed} fails in the same way with fewer faults: make simulate SEED={options.seed} WITH="{fewer}"'
    )
    return _run_one(fault, smallest)


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
