"""The errors of the command, by exit code.

0: done, or stopped as asked. 1: it did not work, and the message says what and where. 2: wrong usage (as click has it).
"""

from __future__ import annotations

import click


class CliError(click.ClickException):
    """The command failed: a port or a data directory is in use, a file cannot be read, a pod does not start."""

    exit_code = 1


class CliUsageError(click.UsageError):
    """The options and arguments contradict each other or what they refer to."""
