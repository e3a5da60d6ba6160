"""One measurement: the load generator against a server, and what the server's processes used meanwhile (from /proc)."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from builds import BenchError
from servers import TOPIC, Server

CLOCK_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Load:
    """The orders to the load generator; times in seconds."""

    connections: int
    partitions_per_commit: int
    warm_up_s: float
    duration_s: float
    operation: str = "commit"  # as the load generator names them
    members: int = 0  # of all connections together, for heartbeats
    rate: float = 0.0  # requests/s of all connections together; 0: as many as are answered
    samples: int = 1  # of an assembly, which takes as long as it takes


def measure(generator: Path, server: Server, load: Load) -> dict[str, Any]:
    """The generator's figures, with the server's: cpu_seconds, commits_per_cpu_second, rss_mb
    (of all its processes together). Raises BenchError."""
    command = [
        *(str(generator), "-bootstrap", server.bootstrap, "-topic", TOPIC),
        *("-connections", str(load.connections), "-partitions", str(load.partitions_per_commit)),
        *("-warm-up", f"{load.warm_up_s}s", "-duration", f"{load.duration_s}s"),
        *(("-login", server.login) if server.login else ()),
        *("-operation", load.operation, "-members", str(load.members), "-rate", str(load.rate)),
        *("-samples", str(load.samples)),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        assert running.stdout is not None
        used, said = 0.0, []
        for line in running.stderr:
            if line.strip() == "measuring":
                used -= sum(map(cpu_seconds, server.pids))
            elif line.strip() == "measured":
                used += sum(map(cpu_seconds, server.pids))
            else:
                said.append(line)
        output = running.stdout.read()
    if not output:
        raise BenchError(f"{server.name}: load generator failed: {''.join(said).strip()}")
    figures: dict[str, Any] = json.loads(output)
    return figures | {
        "server": server.name,
        "durability": server.durability,
        "cpu_seconds": round(used, 2),
        "commits_per_cpu_second": rate(figures["commits"] / used) if used > 0 else None,
        "rss_mb": round(sum(map(resident_bytes, server.pids)) / 1e6),
    }


def rate(value: float) -> float:
    """The rate, rounded, with decimals if it is small: a big group takes seconds to assemble."""
    return round(value) if value >= 100 else round(value, 3)


def cpu_seconds(pid: int) -> float:
    """User and system time of a process with all its threads."""
    # the name, in parentheses, may hold spaces: count fields behind it
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    user, system = int(fields[11]), int(fields[12])
    return (user + system) / CLOCK_TICKS_PER_SECOND


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * PAGE_BYTES


def peak_resident_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM:"))
