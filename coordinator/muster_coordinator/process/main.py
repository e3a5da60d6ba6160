"""The ``muster-coordinator`` process: options, logging, start, orderly end.

Every option can also be given as an environment variable (MUSTER_POD, MUSTER_NODE_ID, ...), which is how the
StatefulSet does it. Exit codes: 0 ended in order, 1 could not start or run, 2 wrong usage.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from typing import NoReturn

from muster_coordinator.tuning.descriptors import make_room_for_descriptors
from muster_coordinator.tuning.ending import exit_at_once
from muster_coordinator.tuning.scheduling import import_standing_back, run_in_short_slices

SWITCH_INTERVAL_S = 0.0005
"""How long the journal's thread may wait for the interpreter lock; Python's default of 5 ms would be a commit's whole
latency."""

GC_THRESHOLDS = (5_000, 4, 50)
"""Messages are not tracked, state lives long: a collection every 700 allocations finds nothing, at 3 % of the CPU."""

BOOT_ID = "/proc/sys/kernel/random/boot_id"


def run_and_exit() -> NoReturn:
    """Entry point of ``muster-coordinator``."""
    exit_at_once(main())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT; returns the exit code."""
    if sys.flags.optimize:
        print("muster-coordinator: must not run under -O: assertions guard its invariants", file=sys.stderr)
        return 2
    make_room_for_descriptors()
    # The imports take a quarter of a second, in which the pods that serve should not wait.
    import_standing_back("muster_coordinator.process.options")
    from muster_coordinator.process.options import UsageError, parse_options
    from muster_coordinator.settings import SettingsError

    try:
        options = parse_options(sys.argv[1:] if arguments is None else arguments)
    except (UsageError, SettingsError) as error:
        print(f"muster-coordinator: {error}", file=sys.stderr)
        return 2
    # after the options: wrong usage is told at once
    import_standing_back("importlib.metadata", "uvloop", "muster_coordinator.process.compose")
    import asyncio
    from importlib.metadata import version as package_version

    import uvloop

    from muster_coordinator.process.compose import NewProcessNeededError, StartError, run

    run_in_short_slices()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    keep_collections_short()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run(options, boot_id=read_boot_id(), version=package_version("muster")))
    except (StartError, NewProcessNeededError) as error:
        print(f"muster-coordinator: {error}", file=sys.stderr)
        return 1
    return 0


def keep_collections_short() -> None:
    """What has survived two collections is state of groups and stays: it is set aside and never looked at again.

    A collection of all objects takes 0.3 s with a hundred thousand groups, and every request waits for it; so none
    looks at more than some ten thousand. State has no reference cycles and is freed without a collector; so is a
    connection when it is closed.
    """
    gc.set_threshold(*GC_THRESHOLDS)
    gc.callbacks.append(_set_aside_survivors)


def _set_aside_survivors(phase: str, info: dict[str, int]) -> None:
    if phase == "stop" and info["generation"] > 0:
        gc.freeze()


def read_boot_id() -> str:
    """Identifies this start of the machine: the page cache survives a process, not a machine."""
    try:
        with open(BOOT_ID) as file:
            return file.read().strip()
    except OSError:
        return ""


if __name__ == "__main__":
    run_and_exit()
