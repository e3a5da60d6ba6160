"""The `muster-coordinator` process: options, logging, start, orderly end.

Every option can also be given as an environment variable (MUSTER_POD, MUSTER_NODE_ID, ...), which is how the
StatefulSet does it. Exit codes: 0 ended in order, 1 could not start or run, 2 wrong usage.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from importlib.metadata import version as package_version

import uvloop

from muster_coordinator.process.compose import NewProcessNeededError, StartError, run
from muster_coordinator.process.options import UsageError, parse_options
from muster_coordinator.settings_by_name import SettingsError
from muster_coordinator.tuning.descriptors import raise_descriptor_limit
from muster_coordinator.tuning.interpreter import tune_interpreter

BOOT_ID = "/proc/sys/kernel/random/boot_id"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT; returns the exit code."""
    if sys.flags.optimize:
        print("muster-coordinator: must not run under -O: assertions guard its invariants", file=sys.stderr)
        return 2
    try:
        options = parse_options(sys.argv[1:] if arguments is None else arguments)
    except (UsageError, SettingsError) as error:
        print(f"muster-coordinator: {error}", file=sys.stderr)
        return 2
    raise_descriptor_limit()
    tune_interpreter()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run(options, boot_id=read_boot_id(), version=package_version("muster")))
    except (StartError, NewProcessNeededError) as error:
        print(f"muster-coordinator: {error}", file=sys.stderr)
        return 1
    return 0


def read_boot_id() -> str:
    """Identifies this start of the machine: the page cache survives a process, but not a reboot."""
    try:
        with open(BOOT_ID) as file:
            return file.read().strip()
    except OSError:
        return ""


if __name__ == "__main__":
    sys.exit(main())
