"""Faults of the network between pods, operator and clients."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.chaos.faults import Bounds
from tests.chaos.network import Namespace
from tests.chaos.observed import NetworkedCluster, OperatorRules
from tests.chaos.run import Run
from tests.chaos.scenarios import NONE, SILENCE, Scenario

CUT_S = 5.0
LOSSY_S = 6.0
SLOW_KBIT, QUEUE_MS = 3000, 100
DELAY_MS, JITTER_MS, LOSS_PERCENT = 20, 5, 3

Rules = Callable[[Namespace, OperatorRules], list[str]]
"""The rules of a cut of a pod's namespace."""
Body = Callable[[Run, NetworkedCluster], None]


def _to_operator(_: Namespace, operator: OperatorRules) -> list[str]:
    return [operator.heard, operator.said]


def _to_pods_and_operator(namespace: Namespace, operator: OperatorRules) -> list[str]:
    return [*namespace.cut_from_pods(namespace.others), operator.heard, operator.said]


def _everything(namespace: Namespace, _: OperatorRules) -> list[str]:
    return ["input ip saddr 0.0.0.0/0", "output ip daddr 0.0.0.0/0"]


def _deaf(namespace: Namespace, operator: OperatorRules) -> list[str]:
    return [*namespace.deaf_to(namespace.others), operator.heard]


def _mute(namespace: Namespace, operator: OperatorRules) -> list[str]:
    return [*namespace.mute_to(namespace.others), operator.said]


def _one_other_pod(namespace: Namespace, _: OperatorRules) -> list[str]:
    return namespace.cut_from_pods(namespace.others[:1])


def _leader_cut(rules: Rules, what: str) -> Body:
    """A leader pod is cut so that others have to take over, and healed."""

    def body(run: Run, cluster: NetworkedCluster) -> None:
        for victim in run.rounds(cluster):
            namespace = cluster.namespace(victim)
            with run.fault(cluster, f"{victim} {what} for {CUT_S:g} s", victim):
                namespace.drop(*rules(namespace, cluster.operator_rules(victim)))
                time.sleep(CUT_S)
                namespace.heal()
                cluster.wait_led()

    return body


def _unseen_cut(rules: Rules, what: str) -> Body:
    """A cut that no client is to notice."""

    def body(run: Run, cluster: NetworkedCluster) -> None:
        for victim in run.rounds(cluster):
            namespace = cluster.namespace(victim)
            with run.fault(cluster, f"{victim} {what} for {CUT_S:g} s"):
                namespace.drop(*rules(namespace, cluster.operator_rules(victim)))
                time.sleep(CUT_S)
            with run.fault(cluster, f"{victim} {what}: healed"):
                namespace.heal()

    return body


def _lossy(run: Run, cluster: NetworkedCluster) -> None:
    for victim in run.rounds(cluster):
        namespace = cluster.namespace(victim)
        with run.fault(cluster, f"{victim} loses {LOSS_PERCENT} % of what other pods send, for {LOSSY_S:g} s", victim):
            namespace.lose(LOSS_PERCENT)
            time.sleep(LOSSY_S)
            namespace.heal()
            cluster.wait_led()


def _slow(run: Run, cluster: NetworkedCluster) -> None:
    for victim in run.rounds(cluster):
        namespace = cluster.namespace(victim)
        what = f"{victim} sends {SLOW_KBIT} kbit/s at most, with a queue of {QUEUE_MS} ms, for {LOSSY_S:g} s"
        with run.fault(cluster, what, victim):
            namespace.slow(SLOW_KBIT, QUEUE_MS)
            time.sleep(LOSSY_S)
            namespace.heal()
            cluster.wait_led()


def _delayed(run: Run, cluster: NetworkedCluster) -> None:
    for victim in run.rounds(cluster):
        namespace = cluster.namespace(victim)
        what = f"{victim} sends {DELAY_MS} ms late, +-{JITTER_MS} ms, and loses {LOSS_PERCENT} %, for {LOSSY_S:g} s"
        with run.fault(cluster, what, victim):
            namespace.delay_and_loss(DELAY_MS, JITTER_MS, LOSS_PERCENT)
            time.sleep(LOSSY_S)
            namespace.heal()
            cluster.wait_led()


FAULTS: tuple[tuple[str, str, Bounds, Body], ...] = (
    ("cut-node", "a leader pod is cut off from everything", SILENCE, _leader_cut(_everything, "cut off")),
    (
        "cut-pod",
        "a leader pod is cut off from pods and operator; clients reach it",
        SILENCE,
        _leader_cut(_to_pods_and_operator, "cut from pods and operator"),
    ),
    ("cut-deaf", "one-way: a leader pod hears no pod and no operator", SILENCE, _leader_cut(_deaf, "deaf")),
    ("cut-mute", "one-way: no pod and no operator hears a leader pod", SILENCE, _leader_cut(_mute, "mute")),
    ("cut-pair", "two pods do not hear one another", NONE, _unseen_cut(_one_other_pod, "cut from one pod")),
    ("cut-operator", "operator and a pod are cut", NONE, _unseen_cut(_to_operator, "cut from the operator")),
    ("loss", "packets between pods are lost", NONE, _lossy),
    ("slow", "a pod's link is slow, its queue long and too short (tc tbf)", NONE, _slow),
    ("delay", "packets of a pod are late and lost (tc netem)", NONE, _delayed),
)
NETWORK = tuple(Scenario(name, what, bounds, body, in_namespaces=True) for name, what, bounds, body in FAULTS)
