"""The switch of what this package tunes: `MUSTER_TUNING_OFF`, names separated by commas."""

from __future__ import annotations

import os

VARIABLE = "MUSTER_TUNING_OFF"


def is_on(name: str) -> bool:
    """True if the tuning `name` is on: the environment can turn it off."""
    return name not in os.environ.get(VARIABLE, "").split(",")
