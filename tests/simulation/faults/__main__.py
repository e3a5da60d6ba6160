"""`make simulate-faults`: the first seed of `make simulate` that catches each planted fault. 0 if each is caught within
its number of seeds. A fault of operators is looked for in the seeds that have real ones, one of transactions in those
with transactional producers, one of consumers in those with the new protocol, one of groups of both protocols in those
that have some, any other one in all without real operators.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
import warnings
from multiprocessing.pool import Pool

import structlog
from tests.simulation.faults import CONSUMER_FAULTS, FAULTS, MIXED_FAULTS, OPERATOR_FAULTS, TRANSACTION_FAULTS
from tests.simulation.options import Options
from tests.simulation.profiles import draw
from tests.simulation.simulator import Failure, simulate

__all__ = ["first_seed"]


def first_seed(name: str) -> tuple[int, str]:
    """(seed that catches this fault, what is said of it); (-1, "") if none does within its number of seeds."""
    fault = FAULTS[name]
    with fault.plant():
        for options in map(draw, range(fault.seeds)):
            if _may_catch(name, options):
                try:
                    simulate(options)
                except Failure as failure:
                    return options.seed, failure.reason
    return -1, ""


def _may_catch(name: str, options: Options) -> bool:
    if name in MIXED_FAULTS:
        return options.mixed > 0
    if name in CONSUMER_FAULTS:
        return options.consumers > 0
    if name in TRANSACTION_FAULTS:
        return options.coordinators > 0
    return options.operating is (name in OPERATOR_FAULTS)


def _timed(name: str) -> tuple[str, int, str, float]:
    started_s = time.monotonic()
    seed, reason = first_seed(name)
    return name, seed, reason, time.monotonic() - started_s


def _hush() -> None:
    """What killed processes log when they are collected."""
    warnings.simplefilter("ignore")
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115


def main() -> int:
    parser = argparse.ArgumentParser(prog="simulate-faults", description=__doc__)
    parser.add_argument("names", nargs="*", help="these only")
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    missed = 0
    with Pool(arguments.processes, _hush, maxtasksperchild=1) as pool:
        for name, seed, reason, took_s in pool.imap(_timed, arguments.names or FAULTS):
            missed += seed < 0
            what = f"seed {seed}: {reason.splitlines()[0][:90]}" if seed >= 0 else "NOT CAUGHT"
            print(f"{name} (within {FAULTS[name].seeds}): {what} ({took_s:.0f} s)", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
