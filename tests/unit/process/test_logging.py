"""Logs that cannot be written."""

from __future__ import annotations

import errno
import io
import json

from muster_coordinator.process.logging import LogFile


class Disk(io.StringIO):
    """`full`: takes nothing."""

    full = False

    def write(self, text: str) -> int:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(text)


def test_log_on_a_full_disk_harms_nobody_and_says_later_how_much_is_missing() -> None:
    disk = Disk()
    log = LogFile(disk)
    log.write("first\n")
    disk.full = True
    log.write("second\n")
    log.write("third\n")
    disk.full = False
    log.write("fourth\n")
    first, lost, fourth = disk.getvalue().splitlines()
    assert (first, fourth) == ("first", "fourth")
    assert json.loads(lost) == {"event": "log_lines_lost", "level": "error", "count": 2}
