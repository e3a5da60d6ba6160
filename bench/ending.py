"""How a measurement ends: SIGTERM, SIGHUP and Ctrl-C end what it started, too."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from types import FrameType

INTERRUPTED = 130


def exit_code(main: Callable[[], int]) -> int:
    """That of `main`; 130 when it was interrupted."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupted)
    try:
        return main()
    except KeyboardInterrupt:
        print("bench: interrupted; everything that was started has ended", file=sys.stderr)
        return INTERRUPTED


def _interrupted(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
