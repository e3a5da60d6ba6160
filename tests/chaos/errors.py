"""What ends a scenario before its figures are known."""

from __future__ import annotations


class HarnessError(Exception):
    """The scenario could not be run, or the cluster did not come back; the message says what was waited for."""


class Skipped(Exception):
    """This machine lacks something; the message says what would help."""
