"""Faults on a real Kubernetes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from tests.chaos.faults import Bounds
from tests.chaos.kube_cluster import KubeCluster, api_server_away
from tests.chaos.run import Run
from tests.chaos.scenarios import KILL, MOVE, UNSEEN

API_SERVER_AWAY_S = 60.0


@dataclass(frozen=True)
class KubeScenario:
    name: str
    what: str
    bounds: Bounds
    body: Callable[[Run, KubeCluster], None]


def delete(run: Run, cluster: KubeCluster) -> None:
    for victim in run.rounds(cluster):
        before = {victim: cluster.uid(victim)}
        with run.fault(cluster, f"pod {victim} deleted", victim):
            cluster.delete(victim)
            cluster.wait_replaced(before)


def force_delete(run: Run, cluster: KubeCluster) -> None:
    for victim in run.rounds(cluster):
        before = {victim: cluster.uid(victim)}
        with run.fault(cluster, f"pod {victim} deleted by force", victim):
            cluster.delete(victim, grace_s=0)
            cluster.wait_replaced(before)


def kill(run: Run, cluster: KubeCluster) -> None:
    for victim in run.rounds(cluster):
        with run.fault(cluster, f"SIGKILL of the process of {victim}", victim):
            cluster.kill_process(victim)
            cluster.wait_led(without=[victim] if cluster.factor > 1 else [])


def drain(run: Run, cluster: KubeCluster) -> None:
    """There is one node: the pod comes back when it takes pods again."""
    for victim in run.rounds(cluster):
        before = {victim: cluster.uid(victim)}
        cluster.cordon()
        try:
            with run.fault(cluster, f"node cordoned, {victim} evicted", victim):
                cluster.evict(victim)
                cluster.wait_led(without=[victim] if cluster.factor > 1 else [])
        finally:
            cluster.uncordon()
        cluster.wait_replaced(before)


def operator(run: Run, cluster: KubeCluster) -> None:
    for _ in run.rounds(cluster):
        with run.fault(cluster, "the operator's pods deleted by force"):
            cluster.delete_operator()
            cluster.wait_operator()


def api_down(run: Run, cluster: KubeCluster) -> None:
    cluster.wait_settled()
    with run.fault(cluster, f"API server away for {API_SERVER_AWAY_S:g} s"), api_server_away():
        time.sleep(API_SERVER_AWAY_S)
    cluster.wait_settled()


def rolling(run: Run, cluster: KubeCluster) -> None:
    cluster.wait_settled()
    before = {name: cluster.uid(name) for name in cluster.names}
    with run.fault(cluster, "pod template changed: every pod replaced", *cluster.names):
        cluster.restart_all(str(run.random.random()))
        cluster.wait_replaced(before)


def volume_lost(run: Run, cluster: KubeCluster) -> None:
    for victim in run.rounds(cluster):
        before = {victim: cluster.uid(victim)}
        with run.fault(cluster, f"{victim} deleted by force with its volume", victim):
            cluster.lose_volume(victim)
            cluster.wait_led(without=[victim])
        cluster.wait_replaced(before)


KUBERNETES = (
    KubeScenario("kube-kill", "SIGKILL of a leader's container", KILL, kill),
    KubeScenario("kube-delete", "a leader's pod is deleted", MOVE, delete),
    KubeScenario("kube-force-delete", "a leader's pod is deleted by force", KILL, force_delete),
    KubeScenario("kube-drain", "the node is cordoned, a leader's pod evicted", MOVE, drain),
    KubeScenario("kube-operator", "the operator's pods are deleted", UNSEEN, operator),
    KubeScenario("kube-api-down", "the API server is away for a minute", UNSEEN, api_down),
    KubeScenario("kube-rolling", "every pod is replaced, one after the other", MOVE, rolling),
    KubeScenario("kube-volume-lost", "a leader's pod and its volume are lost", KILL, volume_lost),
)
