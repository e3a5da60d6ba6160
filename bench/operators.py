"""Measures the cost of many clusters for one operator: CPU and memory with 20 clusters of 50 partitions, and with one.

The API server and the pods are doubles in this process (`tests.support.fake_kubernetes`), the operator is a process of
its own. For each number of clusters: until all are ready, then a while in which nothing changes.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from ending import exit_code
from measure import cpu_seconds, resident_bytes
from tests.support.fake_kubernetes import FakeKubernetes, OperatorProcess, fake_kubernetes

MOST = 4.0
"""The most that all clusters may cost, in multiples of the CPU and memory of one."""
READY_S = 300.0
MIB = 1024 * 1024


@dataclass(frozen=True)
class Cost:
    """CPU in seconds, memory in bytes; `requests` of the API server while nothing changed."""

    clusters: int
    starting_cpu: float
    calm_cpu: float
    memory: int
    requests: Counter[tuple[str, str]]


async def cost_of(clusters: int, partitions: int, calm_s: float) -> Cost:
    with tempfile.TemporaryDirectory() as directory:
        async with fake_kubernetes(Path(directory)) as (kubernetes, kubeconfig):
            names = [f"c{number}" for number in range(clusters)]
            for name in names:
                kubernetes.declare("ns", name, partitions=partitions)
            operator = await OperatorProcess.start(kubeconfig, "operators", "operator", Path(directory) / "log")
            try:
                return await _measured(kubernetes, operator, names, calm_s)
            finally:
                await operator.end(signal.SIGTERM)


async def _measured(kubernetes: FakeKubernetes, operator: OperatorProcess, names: list[str], calm_s: float) -> Cost:
    pid = operator.child.pid

    def all_ready() -> bool:
        return all(kubernetes.is_ready("ns", each) for each in names)

    await kubernetes.until(all_ready, "every cluster is ready", READY_S)
    starting = cpu_seconds(pid)
    await asyncio.sleep(12)  # until leaders are where they shall be: rebalanceAfter is 10 s
    kubernetes.requests.clear()
    before = cpu_seconds(pid)
    await asyncio.sleep(calm_s)
    calm = cpu_seconds(pid) - before
    return Cost(len(names), starting, calm, resident_bytes(pid), Counter(kubernetes.requests))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clusters", type=int, default=20)
    parser.add_argument("--partitions", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long nothing changes")
    options = parser.parse_args()
    found = [asyncio.run(cost_of(each, options.partitions, options.seconds)) for each in (1, options.clusters)]
    print(f"{'clusters':>8} {'CPU to ready':>13} {'CPU calm':>9} {'memory':>8}")
    for each in found:
        calm = f"{each.calm_cpu / options.seconds:.1%}"
        print(f"{each.clusters:>8} {each.starting_cpu:>11.2f} s {calm:>9} {each.memory / MIB:>4.0f} MiB")
        for (verb, plural), count in sorted(each.requests.items()):
            print(f"{'':8} {verb:6} {plural:24} {count}")
    one, many = found
    ratios = {"CPU": many.calm_cpu / one.calm_cpu, "memory": many.memory / one.memory}
    print(", ".join(f"{what} {ratio:.1f} times that of one cluster" for what, ratio in ratios.items()))
    return 0 if max(ratios.values()) <= MOST else 1


if __name__ == "__main__":
    raise SystemExit(exit_code(main))
