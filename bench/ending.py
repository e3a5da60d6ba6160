"""The end of a measurement: errors are one line; SIGTERM, SIGHUP and Ctrl-C end what it started, too."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from types import FrameType

from builds import BenchError, MissingTool

INTERRUPTED = 130


def exit_code(main: Callable[[], int]) -> int:
    """The exit code of `main`; 1: the measurement could not be made, 2: a program is missing, 130: interrupted."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupted)
    try:
        return main()
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2 if isinstance(error, MissingTool) else 1
    except KeyboardInterrupt:
        print("bench: interrupted; everything that was started has ended", file=sys.stderr)
        return INTERRUPTED


def _interrupted(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
