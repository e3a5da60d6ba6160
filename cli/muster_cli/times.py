"""Times as they are typed."""

from __future__ import annotations

from datetime import UTC, datetime

from muster_cli.errors import CliUsageError


def time_ms(option: str, text: str) -> int:
    """Milliseconds since 1970 of a time in ISO 8601, in UTC if it has no offset. Raises CliUsageError."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise CliUsageError(f"{option} {text}: no time as 2026-11-28T09:30:00Z") from error
    return int((found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp() * 1000)
