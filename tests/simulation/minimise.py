"""A failing run with as few kinds of faults as possible: options are switched off one by one while it still fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tests.simulation.options import Options
from tests.simulation.simulator import Failure, simulate

__all__ = ["minimise"]

QUIET: tuple[dict[str, int | float | bool | str], ...] = (
    {"disaster": False},
    {"restore_every_ms": 0},
    {"lose_status_every_ms": 0},
    {"two_leases": False},
    {"archive_every_ms": 0, "archive_errors": 0.0},
    {"errors_every_ms": 0},
    {"misdirect_every_ms": 0},
    {"slow_death_every_ms": 0},
    {"pipelines": 0},
    {"copy_volume_every_ms": 0},
    {"promise_every_ms": 0},
    {"old_duplicates": 0.0},
    {"old_copies": 0.0},
    {"corrupt": 0.0},
    {"slow_link_every_ms": 0},
    {"away_every_ms": 0},
    {"remove_every_ms": 0},
    {"fence_every_ms": 0},
    {"static": 0.0},
    {"coordinators": 0},
    {"twins_every_ms": 0},
    {"segment_bytes": 4_000},
    {"partitions": 1},
    {"consumers": 0},
    {"mixed": 0},
    {"policy": "bidirectional"},
    {"members": 0},
    {"transactions": 0.0},
    {"nomination_ms": 0},
    {"learn_every_ms": 0},
    {"jump_every_ms": 0},
    {"outage_every_ms": 0},
    {"lag_every_ms": 0},
    {"api_errors": 0.0},
    {"operator_crash_in_steps": 0.0},
    {"broken_every_ms": 0},
    {"clean_every_ms": 0},
    {"checkpoint_every_ms": 0},
    {"flip_every_ms": 0},
    {"wipe_every_ms": 0},
    {"full_every_ms": 0},
    {"slow_every_ms": 0},
    {"slow_files": "any"},
    {"freeze_every_ms": 0},
    {"partition_every_ms": 0},
    {"all_crash_every_ms": 0},
    {"crash_every_ms": 0},
    {"crash_in_effects": 0.0},
    {"move_every_ms": 0},
    {"resign_every_ms": 0},
    {"change_every_ms": 0},
    {"rogue_every_ms": 0},
    {"rogue_sets": 0.0},
    {"operator_crash_every_ms": 0},
    {"operators": 1},
    {"loss": 0.0},
    {"duplicates": 0.0},
    {"long_delay": 0.0},
    {"deletes": 0.0},
    {"flush_os": False},
    {"drift": 0.0},
    {"spares": 0},
    {"replicas": 3},
    {"groups": 1},
    {"clients": 1},
    {"safety_ms": 2_000},
    {"safety_ms": 1_000},
)


Run = Callable[[Options], object]
"""Raises Failure."""


def minimise(options: Options, run: Run = simulate) -> Options:
    """With every option off without which the same check fails. ``options`` must fail."""
    check = _failed_check(options, run)
    for quiet in QUIET:
        fewer = replace(options, **quiet)  # type: ignore[arg-type]  # the names are those of the fields
        if fewer != options and _failed_check(fewer, run) == check:
            options = fewer
    return options


def _failed_check(options: Options, run: Run) -> str:
    """ "" if none fails."""
    try:
        run(options)
    except Failure as failure:
        return failure.check
    return ""
