"""Pods in network namespaces of their own, on a bridge that the run makes: cuts, one-way cuts, delay and loss.

Namespaces, links and bridge are named after the run's process, so that what a killed run left behind is known and
removed by the next one. No firewall rule of this machine is touched: all rules are in the pods' namespaces.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.errors import HarnessError, Skipped

PREFIX = "mchaos"
NAMED = re.compile(rf"^{PREFIX}(\d+)(-\d+)?$")
SUBNETS = 256
TOOLS = {"ip": "iproute2", "nft": "nftables", "tc": "iproute2"}


@dataclass(frozen=True)
class Namespace:
    """Of one pod. `others`: the addresses of the other pods; `prefix`: what runs a command in it."""

    host: str
    others: tuple[str, ...]
    prefix: tuple[str, ...]

    def drop(self, *rules: str) -> None:
        """Drop what matches one of the rules, each `input MATCH` or `output MATCH` in nft's words."""
        lines = ["table inet chaos {"]
        for hook in ("input", "output"):
            lines.append(f"chain {hook} {{ type filter hook {hook} priority 0;")
            lines += [f"{rule.partition(' ')[2]} drop" for rule in rules if rule.startswith(hook)]
            lines.append("}")
        _run(*self.prefix, "nft", "-f", "-", stdin="\n".join([*lines, "}"]))

    def cut_from_pods(self, names: Sequence[str]) -> list[str]:
        """Rules for both ways between this pod and those addresses."""
        return self.deaf_to(names) + self.mute_to(names)

    def deaf_to(self, hosts: Sequence[str]) -> list[str]:
        return [f"input ip saddr {host}" for host in hosts]

    def mute_to(self, hosts: Sequence[str]) -> list[str]:
        return [f"output ip daddr {host}" for host in hosts]

    def delay_and_loss(self, delay_ms: int, jitter_ms: int, loss_percent: int) -> None:
        """Of everything that leaves the pod. Raises Skipped where the kernel has no netem."""
        netem = ["netem", "delay", f"{delay_ms}ms", f"{jitter_ms}ms", "loss", f"{loss_percent}%"]
        done = _try(*self.prefix, "tc", "qdisc", "replace", "dev", "eth0", "root", *netem)
        if done.returncode != 0:
            raise Skipped(f"delay needs a kernel with sch_netem: {done.stderr.strip()}")

    def slow(self, kilobits_per_second: int, queue_ms: int) -> None:
        """Of everything that leaves the pod: so little per second; what would wait longer than that is lost."""
        shaped = ["tbf", "rate", f"{kilobits_per_second}kbit", "burst", "16kb", "latency", f"{queue_ms}ms"]
        _run(*self.prefix, "tc", "qdisc", "replace", "dev", "eth0", "root", *shaped)

    def lose(self, percent: int) -> None:
        """Of what reaches the pod from other pods."""
        self.drop(*(f"input ip saddr {host} numgen random mod 100 < {percent}" for host in self.others))

    def heal(self) -> None:
        """Undo all of it."""
        _try(*self.prefix, "nft", "delete", "table", "inet", "chaos")
        _try(*self.prefix, "tc", "qdisc", "del", "dev", "eth0", "root")


@contextmanager
def namespaces(count: int) -> Iterator[list[Namespace]]:
    """So many namespaces, connected to one another and to this machine. Raises Skipped, HarnessError."""
    if os.geteuid() != 0:
        raise Skipped("network namespaces need root")
    missing = sorted({package for tool, package in TOOLS.items() if not shutil.which(tool)})
    if missing:
        raise Skipped(f"missing programs: apt-get install {' '.join(missing)}")
    remove_leftovers()
    name = f"{PREFIX}{os.getpid()}"
    try:
        subnet = _free_subnet()
        _run("ip", "link", "add", name, "type", "bridge")
        _run("ip", "address", "add", f"{subnet}.1/24", "dev", name)
        _run("ip", "link", "set", name, "up")
        hosts = [f"{subnet}.{10 + number}" for number in range(count)]
        yield [_add(name, number, host, hosts) for number, host in enumerate(hosts)]
    finally:
        _remove(name)


def _add(bridge: str, number: int, host: str, hosts: Sequence[str]) -> Namespace:
    name = f"{bridge}-{number}"
    _run("ip", "netns", "add", name)
    _run("ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
    _run("ip", "link", "set", name, "master", bridge, "up")
    for command in (["link", "set", "lo", "up"], ["address", "add", f"{host}/24", "dev", "eth0"]):
        _run("ip", "-n", name, *command)
    _run("ip", "-n", name, "link", "set", "eth0", "up")
    return Namespace(host, tuple(other for other in hosts if other != host), ("ip", "netns", "exec", name))


def remove_leftovers() -> None:
    """What runs left behind whose process is gone."""
    names = [line.split()[0] for line in _run("ip", "netns", "list").splitlines() if line.strip()]
    names += [path.name for path in Path("/sys/class/net").iterdir()]
    for match in filter(None, map(NAMED.match, names)):
        if not Path(f"/proc/{match[1]}").exists():
            _remove(f"{PREFIX}{match[1]}")


def _remove(name: str) -> None:
    """The bridge, and everything that is named after it. Processes in the namespaces are not ended here."""
    for line in _run("ip", "netns", "list").splitlines():
        namespace = line.split()[0]
        if namespace.startswith(f"{name}-"):
            _try("ip", "netns", "del", namespace)
            _try("ip", "link", "del", namespace)
    _try("ip", "link", "del", name)


def _free_subnet() -> str:
    """The first of 10.99.0.0/24, 10.99.1.0/24, ... that no route of this machine uses."""
    routes = _run("ip", "-4", "route", "show", "table", "all")
    for number in range(SUBNETS):
        if f" 10.99.{number}." not in f" {routes}":
            return f"10.99.{number}"
    raise HarnessError("no free subnet in 10.99.0.0/16")


def _run(*command: str, stdin: str = "") -> str:
    """Raises HarnessError with what the command said."""
    done = _try(*command, stdin=stdin)
    if done.returncode != 0:
        raise HarnessError(f"`{' '.join(command)}`: {done.stderr.strip()}")
    return done.stdout


def _try(*command: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
