"""Formats numbers, durations, times and names for people."""

from __future__ import annotations

from datetime import UTC, datetime

_UNITS = [(1e9, "G"), (1e6, "M"), (1e3, "k")]
_LATEST_MS = 253_402_300_800_000  # the year 10000
_SPANS = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s")]
MAX_NAME_CHARS = 60


def amount(value: float | None) -> str:
    """Format a number: in full up to 9,999, then three digits and a unit (12.3k, 4.56M)."""
    if value is None:
        return "–"
    if abs(value) < 10_000:
        return f"{value:,.0f}" if value == int(value) else f"{value:,.2f}".rstrip("0").rstrip(".")
    for size, letter in _UNITS:
        if abs(value) >= size * 0.9995:
            return f"{value / size:.3g}{letter}"
    raise AssertionError("10,000 is above every unit's start")


def rate(per_second: float | None) -> str:
    """Format a rate per second, minute or hour: the first unit in which it is 1 or more."""
    if per_second is None:
        return "–"
    for factor, unit in ((1, "s"), (60, "min")):
        if per_second * factor >= 1:
            return f"{amount(float(f'{per_second * factor:.3g}'))}/{unit}"
    return f"{amount(float(f'{per_second * 3600:.2g}'))}/h"


def percent(share: float | None) -> str:
    if share is None:
        return "–"
    return "<1%" if 0 < share < 0.01 else f"{share:.0%}"


def duration(value_ms: float | None) -> str:
    """Format milliseconds in their two largest units: 2d 3h, 4min 5s, 1.5s, 30ms."""
    if value_ms is None:
        return "–"
    if value_ms < 0:
        return f"-{duration(-value_ms)}"
    if value_ms < 1000:
        return f"{value_ms:.0f}ms"
    if value_ms < 10_000:
        return f"{value_ms / 1000:.1f}s".replace(".0s", "s")
    total = round(value_ms / 1000) * 1000
    parts: list[str] = []
    for size, unit in _SPANS:
        count, total = divmod(total, size)
        if count or parts:
            parts.append(f"{count:.0f}{unit}" if count else "")
        if len(parts) == 2:
            break
    return " ".join(part for part in parts if part)


def instant(value_ms: float | None, *, seconds: bool = True) -> str:
    """Format a time (ms since 1970) in UTC. The page names the time zone once."""
    if value_ms is None or not 0 <= value_ms < _LATEST_MS:
        return "–"
    return datetime.fromtimestamp(value_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S" if seconds else "%Y-%m-%d %H:%M")


def name(text: str | None, limit: int = MAX_NAME_CHARS) -> str:
    """Format a name that a client chose: escape what does not print, and cut a long name in its middle."""
    if text is None:
        return "–"
    shown = "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
    if not shown.strip():
        return f"'{shown}'"
    if len(shown) <= limit:
        return shown
    return f"{shown[: limit // 2]}…{shown[len(shown) - (limit - 1 - limit // 2) :]}"


def plural(count: int, noun: str) -> str:
    """Format a count with its noun: 1 group, 2 groups, 12.3k groups."""
    return f"{amount(count)} {noun}" + ("" if count == 1 else "s")
