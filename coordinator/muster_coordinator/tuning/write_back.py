"""Starting the write-back of a part of a file, which the `os` module cannot do (sync_file_range(2), Linux).

Why: a sync has less to do if the operating system began to write before. Without it, writes of the journal that share
the disk with a sync of segments take longer than 8 ms more often: 5 to 25 in a run of kills instead of 0 to 3, measured
together with the journal's O_DIRECT (ADR 15).
"""

from __future__ import annotations

import ctypes

from muster_coordinator.tuning.switch import is_on

_SYNC_FILE_RANGE = getattr(ctypes.CDLL(None), "sync_file_range", None) if is_on("write_back") else None
_WRITE = 2
"""SYNC_FILE_RANGE_WRITE, without the two flags that wait: those would take an error away from the next fdatasync."""


def begin_write_back(descriptor: int, position: int, size: int) -> None:
    """Have the operating system start writing `size` bytes at `position`. A hint: it does not wait and never fails.
    Switch: `write_back`.
    """
    if _SYNC_FILE_RANGE is not None:
        _SYNC_FILE_RANGE(descriptor, ctypes.c_int64(position), ctypes.c_int64(size), _WRITE)
