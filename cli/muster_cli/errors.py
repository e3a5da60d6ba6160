"""The command's errors and exit codes.

0: done, or stopped as asked. 1: it did not work; the message says what and where. 2: wrong usage (click's own).
"""

from __future__ import annotations

import click


class CliError(click.ClickException):
    """Something outside the command's control: a port in use, a data directory in use, a pod that does not come up."""

    exit_code = 1


class CliUsageError(click.UsageError):
    """The command line cannot be carried out as written."""
