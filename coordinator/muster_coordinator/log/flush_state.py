"""Tells if a data directory may lack writes that only the page cache had (flush os).

File `muster.flush`: "running <boot id>" from the first write of a run under flush os on, "clean <boot id>" when a run
has synced everything at its end. A start that finds "running" of another boot (or host) must take it that the power was
lost. Source: replication.md, "Loss, rebuild, start-up".
"""

from __future__ import annotations

from pathlib import Path

from muster_coordinator.log.disk import Disk, read_whole_file, replace_file

NAME = "muster.flush"
RUNNING = "running"
CLEAN = "clean"


class FlushState:
    """State that the previous run left. All methods block and raise OSError."""

    def __init__(self, disk: Disk, data_dir: Path, boot_id: str) -> None:
        self._disk = disk
        self._data_dir = data_dir
        self._boot_id = boot_id
        self._state = self._found_boot = ""
        if NAME in disk.listdir(data_dir):
            self._state, _, self._found_boot = read_whole_file(disk, data_dir / NAME).decode().strip().partition(" ")

    @property
    def lost_power(self) -> bool:
        """The run before did not end in order, and the page cache that had its writes is gone."""
        return self._state == RUNNING and self._found_boot != self._boot_id

    @property
    def needs_end(self) -> bool:
        """Written bytes may be in the page cache only: sync them at the end of the run."""
        return self._state == RUNNING

    def running(self) -> None:
        """Is called before the first write under flush os, and once every replica has noted a power loss."""
        self._write(RUNNING)

    def ended(self) -> None:
        """Everything is synced."""
        if self._state == RUNNING:
            self._write(CLEAN)

    def _write(self, state: str) -> None:
        replace_file(self._disk, self._data_dir / NAME, f"{state} {self._boot_id}\n".encode())
        self._disk.fsync_dir(self._data_dir)
        self._state, self._found_boot = state, self._boot_id
