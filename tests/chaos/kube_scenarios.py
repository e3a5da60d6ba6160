"""Faults on a real Kubernetes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.chaos.faults import Bounds
from tests.chaos.kube_cluster import KubeCluster, api_server_away, kubelet_frozen
from tests.chaos.network import Namespace
from tests.chaos.network_scenarios import FAULTS
from tests.chaos.run import Run
from tests.chaos.scenarios import FROZEN_S, KILL, MOVE, NONE, SILENCE, follower, freeze

API_SERVER_AWAY_S = 60.0
NODE_TIMEOUT_S = 120.0
API_CUT_S = 15.0
"""Longer than a Lease lasts: the operator knows that it does not act any more."""


@dataclass(frozen=True)
class KubeScenario:
    name: str
    what: str
    bounds: Bounds
    body: Callable[[Run, KubeCluster], None]


def delete(run: Run, cluster: KubeCluster) -> None:
    for victim in run.rounds(cluster):
        before = {victim: cluster.uid(victim)}
        with run.fault(cluster, f"pod {victim} deleted", victim, planned=True):
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
        process = cluster.process(victim)
        with run.fault(cluster, f"SIGKILL of the process of {victim}", victim):
            os.kill(process, signal.SIGKILL)
            cluster.wait_led(without=[victim] if cluster.factor > 1 else [])


def drain(run: Run, cluster: KubeCluster) -> None:
    """There is one node: the pod comes back when it takes pods again."""
    for victim in run.rounds(cluster):
        before = {victim: cluster.uid(victim)}
        cluster.cordon()
        try:
            with run.fault(cluster, f"node cordoned, {victim} evicted", victim, planned=True):
                cluster.evict(victim)
                cluster.wait_led(without=[victim] if cluster.factor > 1 else [])
        finally:
            cluster.uncordon()
        cluster.wait_replaced(before)


def operator(run: Run, cluster: KubeCluster) -> None:
    for _ in run.rounds(cluster):
        before = cluster.operators()
        with run.fault(cluster, "the operator's pods deleted by force"):
            cluster.delete_operators(before)
            cluster.wait_operators_replaced(before)


def api_down(run: Run, cluster: KubeCluster) -> None:
    cluster.wait_before_fault()
    with run.fault(cluster, f"API server away for {API_SERVER_AWAY_S:g} s"), api_server_away(cluster.api):
        time.sleep(API_SERVER_AWAY_S)
    cluster.wait_settled()


def node_lost(run: Run, cluster: KubeCluster) -> None:
    """The pods answer: what is said of their node moves no leader."""
    cluster.wait(cluster.nodes_are_ready, "the node is ready", NODE_TIMEOUT_S)
    cluster.wait_before_fault()
    with run.fault(cluster, "nothing is heard of the node, whose pods run on"), kubelet_frozen():
        cluster.wait(lambda: not cluster.nodes_are_ready(), "the node is not ready", NODE_TIMEOUT_S)
        time.sleep(FROZEN_S)
    cluster.wait(cluster.nodes_are_ready, "the node is ready", NODE_TIMEOUT_S)


def rolling(run: Run, cluster: KubeCluster) -> None:
    cluster.wait_before_fault()
    before = {name: cluster.uid(name) for name in cluster.names}
    with run.fault(cluster, "pod template changed: every pod replaced", planned=True):
        cluster.restart_all(str(run.random.random()))
        cluster.wait_replaced(before)


def volume_lost(run: Run, cluster: KubeCluster) -> None:
    for victim in run.rounds(cluster):
        before = {victim: cluster.uid(victim)}
        with run.fault(cluster, f"{victim} deleted by force with its volume", victim):
            cluster.lose_volume(victim)
            cluster.wait_led(without=[victim])
        cluster.wait_replaced(before)


@contextmanager
def _operator_without_api(cluster: KubeCluster, rules: Callable[[str], list[str]]) -> Iterator[Namespace]:
    operator = cluster.operator()
    operator.drop(*rules(cluster.api_server()))
    try:
        yield operator
    finally:
        operator.heal()


def _deaf(host: str) -> list[str]:
    """Requests reach the API server, and are carried out; the answers are lost."""
    return [f"input ip saddr {host}"]


def _both_ways(host: str) -> list[str]:
    return [*_deaf(host), f"output ip daddr {host}"]


def _api_cut(rules: Callable[[str], list[str]], what: str) -> Callable[[Run, KubeCluster], None]:
    """The operator reaches the pods, and not the API server."""

    def body(run: Run, cluster: KubeCluster) -> None:
        for _ in run.rounds(cluster):
            with run.fault(cluster, f"{what} for {API_CUT_S:g} s"), _operator_without_api(cluster, rules):
                time.sleep(API_CUT_S)

    return body


def api_cut_and_kill(run: Run, cluster: KubeCluster) -> None:
    """The operator sees that a leader dies, and can record nothing: the replicas help themselves."""
    for victim in run.rounds(cluster):
        process = cluster.process(victim)
        with _operator_without_api(cluster, _deaf):
            time.sleep(1.0)
            with run.fault(cluster, f"SIGKILL of {victim}, and the API server's answers are lost", victim):
                os.kill(process, signal.SIGKILL)
                cluster.wait_led()


KUBERNETES = (
    KubeScenario("kube-kill", "SIGKILL of a leader's container", KILL, kill),
    KubeScenario("kube-freeze", "SIGSTOP of a leader's container, later SIGCONT", SILENCE, freeze),
    KubeScenario("kube-delete", "a leader's pod is deleted", MOVE, delete),
    KubeScenario("kube-force-delete", "a leader's pod is deleted by force", KILL, force_delete),
    KubeScenario("kube-drain", "the node is cordoned, a leader's pod evicted", MOVE, drain),
    KubeScenario("kube-follower", "SIGKILL of a container that leads nothing", NONE, follower),
    KubeScenario("kube-operator", "the operator's pods are deleted", NONE, operator),
    KubeScenario("kube-api-down", "the API server is away for a minute", NONE, api_down),
    KubeScenario("kube-node-lost", "the kubelet is silent until the node is NotReady", NONE, node_lost),
    KubeScenario("kube-rolling", "every pod is replaced, one after the other", MOVE, rolling),
    KubeScenario("kube-volume-lost", "a leader's pod and its volume are lost", KILL, volume_lost),
    KubeScenario(
        "kube-cut-api",
        "the operator does not reach the API server",
        NONE,
        _api_cut(_both_ways, "operator cut from the API server"),
    ),
    KubeScenario(
        "kube-cut-api-deaf",
        "one-way: the API server's answers do not reach the operator",
        NONE,
        _api_cut(_deaf, "the API server's answers to the operator lost"),
    ),
    KubeScenario("kube-cut-api-kill", "the same, and a leader dies", NONE, api_cut_and_kill),
)
KUBE_NETWORK = tuple(KubeScenario(f"kube-{name}", what, bounds, body) for name, what, bounds, body in FAULTS)
