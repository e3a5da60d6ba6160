"""A client program in another process, which says line by line what it does."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Sequence


def speaking(
    command: Sequence[str], read: Callable[[], None], stdin: int = subprocess.DEVNULL
) -> tuple[subprocess.Popen[str], threading.Thread]:
    """The process, whose errors come with its output, and a thread that runs `read`. It is to be started when `read`
    can see the process."""
    process = subprocess.Popen(command, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return process, threading.Thread(target=read, daemon=True)
