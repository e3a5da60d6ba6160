"""When the window of a rollout is open, by the wall clock of its time zone."""

from __future__ import annotations

from datetime import datetime

import pytest

from muster_operator.api.cluster_parts import Window
from muster_operator.plan.window import opens

BERLIN = "Europe/Berlin"
NIGHTS = Window("22:00", "05:00", ("Sat", "Sun"), BERLIN)


def at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


@pytest.mark.parametrize(
    ("window", "now", "expected"),
    [
        (None, "2026-11-24T12:00+00:00", ""),
        (Window("10:00", "12:00"), "2026-11-24T09:59:59+00:00", "2026-11-24 10:00+00:00 (UTC)"),
        (Window("10:00", "12:00"), "2026-11-24T10:00+00:00", ""),
        (Window("10:00", "12:00"), "2026-11-24T11:59:59+00:00", ""),
        (Window("10:00", "12:00"), "2026-11-24T12:00+00:00", "2026-11-25 10:00+00:00 (UTC)"),
        (Window("00:00", "00:00"), "2026-11-24T12:00+00:00", ""),
        (NIGHTS, "2026-11-24T23:00+01:00", "2026-11-28 22:00+01:00 (Europe/Berlin)"),
        (NIGHTS, "2026-11-28T21:30+00:00", ""),
        (NIGHTS, "2026-11-30T04:59+01:00", ""),  # Monday morning is of Sunday's window
        (NIGHTS, "2026-11-30T05:00+01:00", "2026-12-05 22:00+01:00 (Europe/Berlin)"),
        (Window("01:00", "04:00", (), BERLIN), "2026-10-25T02:30+00:00", ""),  # 03:30, after clocks went back
        (Window("10:00", "12:00", ("Tue",)), "2026-11-24T12:00+00:00", "2026-12-01 10:00+00:00 (UTC)"),
    ],
)
def test_window_says_when_it_opens_next(window: Window | None, now: str, expected: str) -> None:
    assert opens(window, at(now)) == expected


def test_time_zone_that_this_machine_does_not_know_opens_never() -> None:
    window = Window("10:00", "12:00", (), "Mars/Olympus")
    assert opens(window, 0.0) == "never: this operator does not know timeZone Mars/Olympus"
