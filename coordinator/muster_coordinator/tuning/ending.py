"""The end of a process whose work is done: everything is written, closed and told."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import NoReturn

__all__ = ["exit_at_once"]


def exit_at_once(status: int) -> NoReturn:
    """End the process with ``status`` once what it printed is written out.

    The interpreter's own end takes every module and object apart: a tenth of a second of a processor, for memory that
    the system takes back whole, while groups of other pods on the machine wait. Threads and ``atexit`` are not waited
    for: who calls has ended what must end in order.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # nobody reads it any more; it is closed
            stream.flush()
    os._exit(status)
