"""The value of `--at`: a moment of the log, as exact as the times of its records."""

from __future__ import annotations

from datetime import UTC, datetime

import click

MOMENT = click.DateTime(["%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%S.%f", "%Y-%m-%d"])


def milliseconds(at: datetime | None) -> int | None:
    """Since 1970, of a time in UTC."""
    return None if at is None else round(at.replace(tzinfo=UTC).timestamp() * 1000)
