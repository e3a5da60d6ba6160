"""What ends an attack before its figures are known."""

from __future__ import annotations


class HarnessError(Exception):
    """The attack could not be run; the message says what did not happen."""


class Skipped(Exception):
    """This machine lacks something; the message says what would help."""
