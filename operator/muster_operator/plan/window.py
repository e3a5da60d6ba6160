"""The times at which `spec.rollout.window` is open. Wall clocks of its time zone count, also when they are changed."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from muster_operator.api.cluster_parts import DAYS, Window

_A_WEEK_AND_A_DAY = range(-1, 8)
"""The days on which a window may begin that counts now: yesterday to a week from now."""


def opens(window: Window | None, now: float) -> str:
    """The next time at which the window opens, for people, in its own time zone; "" while it is open. `now`: seconds
    since 1970."""
    if window is None:
        return ""
    try:
        zone = ZoneInfo(window.time_zone)
    except (ZoneInfoNotFoundError, ValueError):
        return f"never: this operator does not know timeZone {window.time_zone}"
    today = datetime.fromtimestamp(now, zone).date()
    start, end = time.fromisoformat(window.start), time.fromisoformat(window.end)
    moment = datetime.fromtimestamp(now, UTC)
    for day in (today + timedelta(days=each) for each in _A_WEEK_AND_A_DAY):
        if window.days and DAYS[day.weekday()] not in window.days:
            continue
        begins = datetime.combine(day, start, zone)
        ends = datetime.combine(day + timedelta(days=end <= start), end, zone)
        if begins.astimezone(UTC) > moment:
            return f"{begins.isoformat(' ', 'minutes')} ({window.time_zone})"
        if moment < ends.astimezone(UTC):
            return ""
    raise AssertionError(f"no day of {window.days} within a week")
