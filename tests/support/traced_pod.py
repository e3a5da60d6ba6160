"""The process of a pod that records which functions of the coordinator run, in order.

    python -m tests.support.traced_pod FILE OPTION...

SIGUSR1 begins a record, SIGUSR2 writes it to FILE: one line `thread<TAB>path of the module<TAB>function` per call, in
order, with paths relative to the package. The options are those of `muster-coordinator`.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import muster_coordinator
from muster_coordinator.process.main import main

PACKAGE = str(Path(muster_coordinator.__path__[0])) + os.sep


def trace_into(file: Path) -> None:
    """Record calls of all threads from SIGUSR1 to SIGUSR2: on a slow disk, a thread writes the journal."""
    calls: list[str] = []
    recording = False

    def called(frame: FrameType, event: str, _: Any) -> None:
        if recording and event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            module = frame.f_code.co_filename.removeprefix(PACKAGE)
            calls.append(f"{threading.current_thread().name}\t{module}\t{frame.f_code.co_name}")

    def begin(*_: Any) -> None:
        nonlocal recording
        calls.clear()
        recording = True

    def write(*_: Any) -> None:
        nonlocal recording
        recording = False
        making = file.with_suffix(".tmp")
        making.write_text("".join(f"{call}\n" for call in calls))
        making.rename(file)

    signal.signal(signal.SIGUSR1, begin)
    signal.signal(signal.SIGUSR2, write)
    threading.setprofile(called)
    sys.setprofile(called)


if __name__ == "__main__":
    trace_into(Path(sys.argv.pop(1)))
    sys.exit(main(sys.argv[1:]))
