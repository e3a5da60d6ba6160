"""Options of the data source, parsed once. Unknown options are refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from muster_pipeline.decode.decoder import DEFAULT_MAX_BATCH_BYTES
from muster_pipeline.source.files import DEFAULT_SPLIT_BYTES, InputError
from muster_pipeline.source.follow import Positions, decode_positions

PERMISSIVE, FAILFAST = "PERMISSIVE", "FAILFAST"
FAIL, RESTART = "FAIL", "RESTART"
ALL, LAST = "ALL", "LAST"


@dataclass(frozen=True)
class SourceOptions:
    paths: tuple[str, ...]
    """`load(path)`; see `files.find_segments`."""
    fail_fast: bool = False
    """`mode`: PERMISSIVE gives damage as rows, FAILFAST fails on the first."""
    split_bytes: int = DEFAULT_SPLIT_BYTES
    """`splitBytes`: of a task, about."""
    max_batch_bytes: int = DEFAULT_MAX_BATCH_BYTES
    """`maxBatchBytes`: a larger batch, or one that decompresses to more, is a row that says so."""
    restart: bool = False
    """`onRewrittenLog` of a stream: FAIL ends it where a log was rewritten, RESTART gives a row that
    says so, and the log from its start."""
    last_only: bool = False
    """`keep`: ALL records, or of the commits and removals that replace each other the LAST one that a task reads."""
    between: tuple[Positions, Positions] | None = None
    """`startingPositions`, `endingPositions`: only what lies between, as `follow.encode_positions` has it in
    JSON."""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SourceOptions:
        """Parse options, whose names are case-insensitive as in Spark. Raises InputError."""
        given = {name.lower(): value for name, value in options.items()}
        paths = tuple(json.loads(given.pop("paths", "[]")))
        if "path" in given:
            paths = (given.pop("path"), *paths)
        mode = _one_of(given, "mode", PERMISSIVE, FAILFAST)
        rewritten = _one_of(given, "onRewrittenLog", FAIL, RESTART)
        if mode == FAILFAST and rewritten == RESTART:
            raise InputError("mode FAILFAST and onRewrittenLog RESTART contradict each other")
        keep = _one_of(given, "keep", ALL, LAST)
        split_bytes = _positive(given, "splitBytes", DEFAULT_SPLIT_BYTES)
        max_batch_bytes = _positive(given, "maxBatchBytes", DEFAULT_MAX_BATCH_BYTES)
        between = _positions(given)
        if given:
            raise InputError(
                f"no such options: {', '.join(sorted(given))}; there are mode, keep, splitBytes, maxBatchBytes, "
                "onRewrittenLog, startingPositions and endingPositions"
            )
        if not paths:
            raise InputError("nothing to read: load(path) names segments or a directory of them")
        return cls(paths, mode == FAILFAST, split_bytes, max_batch_bytes, rewritten == RESTART, keep == LAST, between)


def _one_of(given: dict[str, str], name: str, *values: str) -> str:
    """Return the option's value, by default the first of the allowed ones."""
    value = given.pop(name.lower(), values[0]).upper()
    if value not in values:
        raise InputError(f"option {name} is {value}, it can be {' or '.join(values)}")
    return value


def _positions(given: dict[str, str]) -> tuple[Positions, Positions] | None:
    start, end = given.pop("startingpositions", None), given.pop("endingpositions", None)
    if start is None and end is None:
        return None
    if start is None or end is None:
        raise InputError("startingPositions and endingPositions are given both or not at all")
    try:
        return decode_positions(json.loads(start)), decode_positions(json.loads(end))
    except (ValueError, TypeError, KeyError, AttributeError) as exc:
        raise InputError(f"startingPositions or endingPositions is no position: {exc}") from exc


def _positive(given: dict[str, str], name: str, default: int) -> int:
    text = given.pop(name.lower(), None)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise InputError(f"option {name} is {text!r}, it must be a positive number of bytes")
    return int(text)
