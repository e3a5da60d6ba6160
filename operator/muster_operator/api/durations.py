"""Durations and times as Kubernetes writes them: Go durations ("1s", "500ms", "1m30s") and RFC 3339 in UTC."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache

DURATION_PATTERN = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$"
"""The durations that the schema accepts: a subset of Go's time.ParseDuration that CEL's duration() reads too; no sign.
"""

_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


@lru_cache(maxsize=256)  # a few are declared, and read in every reconcile
def parse_duration(text: str) -> float:
    """Seconds of a duration; ValueError if it does not match DURATION_PATTERN."""
    if re.fullmatch(DURATION_PATTERN, text) is None:
        raise ValueError(f"not a duration: {text!r} (write for example 1s, 500ms, 1m30s)")
    return sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(text))


def format_time(seconds: float) -> str:
    """RFC 3339 in UTC, whole seconds (metav1.Time) of seconds since 1970."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text: str) -> float:
    """Seconds since 1970 of an RFC 3339 time, with or without fractions; ValueError for anything else."""
    return datetime.fromisoformat(text).timestamp()
