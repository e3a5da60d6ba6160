"""Faults on the processes of `muster local up`, each with the bounds that hold for three replicas."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.cluster import Cluster
from tests.chaos.errors import Skipped
from tests.chaos.faults import Bounds
from tests.chaos.observed import NetworkedCluster
from tests.chaos.run import Run

KILL = Bounds(interrupted_p50=300, interrupted_max=1000)
SILENCE = Bounds(interrupted_max=3000)
MOVE = Bounds(interrupted_p50=100)
NONE = Bounds()
"""Only safety is judged: nothing lost, reverted or invented."""

INTERVAL_MS = 10.0
"""Between two commits of a group."""
FROZEN_S = 5.0
OPERATOR_AWAY_S = 5.0
NOMINATION_AFTER_S = 2.0
SMALL_DISK_BYTES = 96 << 20


@dataclass(frozen=True)
class Scenario:
    """`prepare` sets up the data directory, before the cluster starts, for the time of the run; `in_namespaces`:
    each pod has a network of its own; `dying`: the operator can be made to die at a point."""

    name: str
    what: str
    bounds: Bounds
    body: Callable[[Run, Cluster], None]
    prepare: Callable[[Path], AbstractContextManager[None]] = lambda root: nullcontext()
    in_namespaces: bool = False
    config: tuple[str, ...] = ()
    dying: bool = False


def kill(run: Run, cluster: Cluster) -> None:
    for victim in run.rounds(cluster):
        with run.fault(cluster, f"SIGKILL of {victim}", victim):
            cluster.signal_process(victim, signal.SIGKILL)
            cluster.wait_led()


def terminate(run: Run, cluster: Cluster) -> None:
    for victim in run.rounds(cluster):
        with run.fault(cluster, f"SIGTERM of {victim}", victim, planned=True):
            _restart(cluster, victim)


def drain(run: Run, cluster: Cluster) -> None:
    for victim in run.rounds(cluster):
        with run.fault(cluster, f"drain of {victim}", victim, planned=True):
            cluster.drain(victim)
            cluster.wait_led(without=[victim])
        _restart(cluster, victim)


def freeze(run: Run, cluster: NetworkedCluster) -> None:
    for victim in run.rounds(cluster):
        with run.fault(cluster, f"SIGSTOP of {victim} for {FROZEN_S:g} s, SIGCONT", victim):
            cluster.signal_process(victim, signal.SIGSTOP)
            try:
                time.sleep(FROZEN_S)
            finally:
                cluster.signal_process(victim, signal.SIGCONT)
            cluster.wait_led()


def follower(run: Run, cluster: NetworkedCluster) -> None:
    """A drained pod leads nothing, and is a follower of every partition."""
    for victim in run.rounds(cluster):
        cluster.drain(victim)
        cluster.wait_led(without=[victim])
        with run.fault(cluster, f"SIGKILL of {victim}, which leads nothing"):
            cluster.signal_process(victim, signal.SIGKILL)


def everything(run: Run, cluster: Cluster) -> None:
    for _ in run.rounds(cluster):
        with run.fault(cluster, "SIGKILL of all pods", *cluster.names):
            for name in cluster.names:
                cluster.signal_process(name, signal.SIGKILL)
            cluster.wait_led()


def rolling(run: Run, cluster: Cluster) -> None:
    cluster.wait_settled()
    for victim in cluster.names:
        with run.fault(cluster, f"SIGTERM of {victim}", victim, planned=True):
            _restart(cluster, victim)
        cluster.wait_settled()


def operator_paused(run: Run, cluster: Cluster) -> None:
    for _ in run.rounds(cluster):
        with run.fault(cluster, f"SIGSTOP of the operator for {OPERATOR_AWAY_S:g} s, SIGCONT"):
            cluster.signal_operator(signal.SIGSTOP)
            time.sleep(OPERATOR_AWAY_S)
            cluster.signal_operator(signal.SIGCONT)


def operator_killed(run: Run, cluster: Cluster) -> None:
    """The pods serve on; the next operator replaces them, as their supervisor is gone too."""
    for _ in run.rounds(cluster):
        with run.fault(cluster, f"SIGKILL of the operator, away for {OPERATOR_AWAY_S:g} s"):
            cluster.kill_operator()
            time.sleep(OPERATOR_AWAY_S)
        cluster.start()


def nomination(run: Run, cluster: Cluster) -> None:
    """A leader dies while the operator is away: replicas nominate themselves."""
    for victim in run.rounds(cluster):
        cluster.kill_operator()
        time.sleep(NOMINATION_AFTER_S / 2)
        with run.fault(cluster, f"SIGKILL of {victim} without an operator", victim):
            cluster.signal_process(victim, signal.SIGKILL)
            cluster.wait_led(without=[victim])
        cluster.start()


def operator_and_leader(run: Run, cluster: Cluster) -> None:
    """Operator and a leader die together, at a moment of the failover that the seed chooses."""
    for victim in run.rounds(cluster):
        pause_s = run.random.uniform(0.0, 0.1)
        with run.fault(cluster, f"SIGKILL of {victim}, {pause_s * 1000:.0f} ms later of the operator", *cluster.names):
            cluster.signal_process(victim, signal.SIGKILL)
            time.sleep(pause_s)
            cluster.kill_operator()
            cluster.start()
            cluster.wait_led()


def disk_full(run: Run, cluster: Cluster) -> None:
    """The first pod has a small disk."""
    victim = cluster.names[0]
    filler = cluster.data.pod(victim) / "filler"
    for _ in run.rounds(cluster):
        with run.fault(cluster, f"disk of {victim} full", victim):
            _fill(filler)
            cluster.wait_led(without=[victim] if cluster.factor > 1 else [])
        with run.fault(cluster, f"disk of {victim} has room again"):
            filler.unlink()
            cluster.wait_settled()


def volume_lost(run: Run, cluster: Cluster) -> None:
    """Then another pod dies, so that the new replicas count."""
    for victim in run.rounds(cluster):
        with run.fault(cluster, f"SIGKILL of {victim}, and its volume lost", victim):
            cluster.lose_volume(victim)
            cluster.wait_led()
        cluster.wait_settled()
        other = run.random.choice([name for name in cluster.names if name != victim])
        with run.fault(cluster, f"SIGKILL of {other}", other):
            cluster.signal_process(other, signal.SIGKILL)
            cluster.wait_led()


def _restart(cluster: Cluster, victim: str) -> None:
    """SIGTERM, and wait until another process runs and every partition is led."""
    before = cluster.pod(victim).process
    cluster.signal_process(victim, signal.SIGTERM)
    cluster.wait(lambda: cluster.pod(victim).process not in (before, None), f"{victim} is started again")
    cluster.wait_led()


@contextmanager
def _small_disk(root: Path) -> Iterator[None]:
    """The first pod's data directory as a file system of its own, in memory. Raises Skipped without the right to."""
    directory = root / "data" / "pods" / "muster-0"
    directory.mkdir(parents=True)
    size = f"size={SMALL_DISK_BYTES}"
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", size, "muster-chaos", str(directory)], capture_output=True, text=True
    )
    if done.returncode != 0:
        raise Skipped(f"disk-full mounts a small file system, which needs root: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(directory)], check=False)


def _fill(filler: Path) -> None:
    """Write until nothing more fits."""
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1 << 16))
        except OSError:
            pass
    with filler.open("ab", buffering=0) as file:
        try:
            while True:
                file.write(bytes(512))
        except OSError:
            pass


PROCESSES = (
    Scenario("kill", "SIGKILL of the pod that leads most", KILL, kill),
    Scenario("terminate", "SIGTERM of a leader pod: its leaders move first", MOVE, terminate),
    Scenario("drain", "planned moves: a pod hands over everything that it leads", MOVE, drain),
    Scenario("freeze", "SIGSTOP of a leader pod, later SIGCONT", SILENCE, freeze),
    Scenario("follower", "SIGKILL of a pod that leads nothing", NONE, follower),
    Scenario("all", "SIGKILL of all pods at once", NONE, everything),
    Scenario("rolling", "SIGTERM of one pod after the other", MOVE, rolling),
    Scenario("operator-paused", "the operator is stopped and goes on", NONE, operator_paused),
    Scenario("operator-killed", "the operator dies; the pods serve on", NONE, operator_killed),
    Scenario(
        "nomination",
        "a leader dies while the operator is away",
        NONE,
        nomination,
        config=(f"muster.self.nomination.after.ms={NOMINATION_AFTER_S * 1000:.0f}",),
    ),
    Scenario("operator-and-leader", "the operator dies during a failover", NONE, operator_and_leader),
    Scenario("disk-full", "a pod's disk is full, and has room again", NONE, disk_full, _small_disk),
    Scenario("volume-lost", "a pod dies and its volume is gone; later another pod dies", KILL, volume_lost),
)
