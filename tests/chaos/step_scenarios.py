"""The operator dies before and after each kind of action that a plan has, and another one goes on from there."""

from __future__ import annotations

import signal
from collections.abc import Callable

from tests.chaos.cluster import Cluster
from tests.chaos.kill_points import POINTS, Point
from tests.chaos.kube_cluster import KubeCluster
from tests.chaos.kube_operator import outside_operator
from tests.chaos.run import Run

from muster_operator.plan.actions import (
    AskResets,
    CreatePartitions,
    CreateReplicas,
    GiveAccess,
    MakeClaim,
    MarkClaims,
    RecordReshard,
    Refresh,
    RemoveReplicas,
    ReplaceVolume,
    RestartPod,
    SetFences,
    StartBackup,
    StartMoves,
    StartRestoreJob,
    WriteBackupStatus,
    WriteGroupStatus,
    WriteTopicStatus,
    WriteUserStatus,
)

FIRST_PARTITIONS = 8

NOT_EMBEDDED = frozenset({RestartPod.__name__, RemoveReplicas.__name__})
"""Nothing changes the template of pods or the number of replicas of `muster local up` while it runs."""
RESHARDS = frozenset({RecordReshard.__name__, SetFences.__name__})
"""tests/integration/test_live_reshard.py has the operator die at these."""
USERS = frozenset({GiveAccess.__name__, WriteUserStatus.__name__})
"""The clusters here have no MusterUsers; tests/unit/operator/test_users.py has operators and pods that begin anew."""
GROUPS = frozenset({StartMoves.__name__, AskResets.__name__, WriteGroupStatus.__name__})
"""The clusters here have no upstream; tests/unit/operator/test_groups.py has an operator that begins anew."""
BACKUPS = frozenset({StartBackup.__name__, WriteBackupStatus.__name__})
"""No backups are declared here."""
RESTORES = frozenset({StartRestoreJob.__name__, MakeClaim.__name__, MarkClaims.__name__})
"""The clusters here begin empty; tests/unit/kube/test_restores.py has operators end at any action of a restore."""

NODES = frozenset({ReplaceVolume.__name__})
"""No node is lost here; tests/unit/operator/test_gitops_storm.py has operators die at any moment of that."""
ELSEWHERE = RESHARDS | USERS | GROUPS | BACKUPS | RESTORES | NODES


def operator_steps(run: Run, cluster: Cluster) -> None:
    for point in (each for each in POINTS if each.action not in NOT_EMBEDDED | ELSEWHERE):
        [victim, other] = _victims(run, cluster)
        with run.fault(cluster, f"the operator dies {point}", *cluster.names):
            if point.action == CreatePartitions.__name__:
                _first_start(cluster, point)
                continue
            cluster.arm(point)
            if point.action in (CreateReplicas.__name__, Refresh.__name__):
                cluster.lose_volume(victim)
            else:
                cluster.signal_process(victim, signal.SIGKILL)
                if point.action == WriteTopicStatus.__name__:  # of two lost replicas the topic's status tells
                    cluster.signal_process(other, signal.SIGKILL)
            cluster.wait_operator_died()
            cluster.start()
            cluster.wait_led()
    cluster.wait_settled()


def _first_start(cluster: Cluster, point: Point) -> None:
    first = Cluster(
        cluster.data.root.parent / f"first-{point.when}", pods=1, partitions=FIRST_PARTITIONS, factor=1, dying=True
    )
    first.arm(point)
    first.begin()
    first.wait_operator_died()
    with first:
        first.wait_led()


def kube_operator_steps(run: Run, cluster: KubeCluster) -> None:
    """The operator runs on this machine, and not in a pod: the kubelet would wait longer before each restart."""
    with outside_operator() as operator:
        for point in (each for each in POINTS if each.action not in ELSEWHERE):
            [victim, other] = _victims(run, cluster)
            with run.fault(cluster, f"the operator dies {point}", *cluster.names):
                operator.arm(point)
                finish = _on_kubernetes(cluster, point, victim, other)
                operator.wait_died()
                operator.start()
                finish()
                cluster.wait_led()
        cluster.wait_settled()


def _on_kubernetes(cluster: KubeCluster, point: Point, victim: str, other: str) -> Callable[[], None]:
    """Does what makes the operator come to the point; what is returned waits until that is over."""
    before = {name: cluster.uid(name) for name in cluster.names}
    if point.action == CreatePartitions.__name__:
        return cluster.create_another(f"first-{point.when}", FIRST_PARTITIONS)
    if point.action == RemoveReplicas.__name__:
        cluster.change_factor(1)
        return lambda: cluster.change_factor(cluster.factor)
    if point.action == RestartPod.__name__:
        cluster.restart_all(str(point))
        return lambda: cluster.wait_replaced(before)
    if point.action in (CreateReplicas.__name__, Refresh.__name__):
        cluster.lose_volume(victim)
        return lambda: cluster.wait_replaced({victim: before[victim]})
    gone = [victim, other] if point.action == WriteTopicStatus.__name__ else [victim]
    for name in gone:
        cluster.delete(name, grace_s=0)
    return lambda: cluster.wait_replaced({name: before[name] for name in gone})


def _victims(run: Run, cluster: Cluster | KubeCluster) -> list[str]:
    """The pod that leads most, and another one."""
    cluster.wait_settled()
    leaders = cluster.leaders()
    first = max(sorted(leaders), key=lambda name: leaders[name])
    return [first, run.random.choice([name for name in cluster.names if name != first])]
