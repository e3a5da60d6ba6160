"""Tells which process is connected to which port of this machine."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

_CONNECTED = {"01", "02"}  # ESTABLISHED, SYN_SENT


def ports_connected_to(pid: int, ports: Collection[int]) -> set[int]:
    """Those of `ports` to which the process has a connection now."""
    inodes = {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            remote = int(fields[2].rpartition(":")[2], 16)
            if remote in ports and fields[3] in _CONNECTED:
                inodes[f"socket:[{fields[9]}]"] = remote
    return {inodes[each] for each in _descriptors(pid) if each in inodes}


def _descriptors(pid: int) -> list[str]:
    found = []
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            found.append(os.readlink(f"/proc/{pid}/fd/{name}"))
        except OSError:
            continue  # closed meanwhile
    return found
