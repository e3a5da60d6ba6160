"""Free ports on loopback for the pods of embedded mode."""

from __future__ import annotations

import random
import socket
from pathlib import Path

from muster_cli.errors import CliError

LOOPBACK = "127.0.0.1"
_EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST_PORT = 10_000


def is_free(port: int) -> bool:
    """True if a server could listen on the port now. As for a pod, connections in TIME_WAIT do not matter."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
            probe.listen(1)
        except OSError:
            return False
    return True


def consecutive_ports(base_port: int, count: int) -> list[int]:
    """`count` ports from `base_port` on. Raises CliError that names every port that another process holds."""
    ports = list(range(base_port, base_port + count))
    if ports[-1] > 65_535:
        raise CliError(f"--base-port {base_port}: {count} pods need ports up to {ports[-1]}, and 65535 is the last")
    taken = [str(port) for port in ports if not is_free(port)]
    if taken:
        held = "port is" if len(taken) == 1 else "ports are"
        raise CliError(
            f"{held} already in use on {LOOPBACK}: {', '.join(taken)}. Choose others with --base-port, "
            "or let Muster choose with --base-port 0"
        )
    return ports


def free_ports(count: int, avoid: frozenset[int] = frozenset()) -> list[int]:
    """Ports on which no process listens now. Raises CliError.

    They lie below the kernel's ephemeral range where there is room. A client that reconnects to a dead pod on an
    ephemeral port can get that port as its own source, connect to itself, and so keep the pod from its port.
    """
    ephemeral_low = _ephemeral_low()
    high = ephemeral_low if ephemeral_low > _LOWEST_PORT + 10 * count else 65_536
    candidates = random.sample(range(_LOWEST_PORT, high), min(high - _LOWEST_PORT, 200 + 20 * count))
    found: list[int] = []
    for port in candidates:
        if port not in avoid and is_free(port):
            found.append(port)
            if len(found) == count:
                return found
    raise CliError(f"no {count} free ports between {_LOWEST_PORT} and {high} on {LOOPBACK}")


def _ephemeral_low() -> int:
    try:
        return int(_EPHEMERAL_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 32_768
