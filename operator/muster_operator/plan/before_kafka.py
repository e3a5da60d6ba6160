"""Conditions of a cluster that stands before a Kafka cluster. None of them is a part of Ready, which is about what
Muster serves.
"""

from __future__ import annotations

from muster_operator.api.conditions import Condition, ConditionType, Reason, without_condition
from muster_operator.api.models import CoordinatorCluster, CoordinatorClusterSpec
from muster_operator.plan.hints import patch
from muster_operator.plan.observation import Observation, PodView
from muster_operator.plan.verdict import flag


def with_upstream(seen: Observation, conditions: tuple[Condition, ...], now: str) -> tuple[Condition, ...]:
    """Keeps what pods last said of the upstream while none says anything."""
    assert seen.cluster is not None
    conditions = _with_shared_user(seen.cluster, conditions, now)
    if seen.cluster.spec.upstream is None:
        return without_condition(without_condition(conditions, ConditionType.MIRRORED), ConditionType.BYPASSED)
    up = [pod for pod in seen.pods if pod.is_up]
    if not up:
        return conditions
    generation = seen.cluster.metadata.generation
    return _with_bypass(up, _with_mirror(up, conditions, generation, now), generation, now)


def _with_mirror(
    pods: list[PodView], conditions: tuple[Condition, ...], generation: int, now: str
) -> tuple[Condition, ...]:
    """Mirrored: pods can follow the upstream's groups."""
    troubled = [f"pod {pod.name}: {pod.mirror_problem}" for pod in pods if pod.mirror_problem]
    text = "; ".join(troubled) or "all pods follow the upstream"
    reason = Reason.UPSTREAM_NOT_FOLLOWED if troubled else Reason.UPSTREAM_FOLLOWED
    return flag(conditions, ConditionType.MIRRORED, not troubled, reason, text, generation, now)


def _with_bypass(
    pods: list[PodView], conditions: tuple[Condition, ...], generation: int, now: str
) -> tuple[Condition, ...]:
    """Bypassed: clients use groups of this cluster's at the upstream itself."""
    text = "used at the upstream itself: " + "; ".join(pod.mirror_bypassed for pod in pods if pod.mirror_bypassed)
    kind, there_is = ConditionType.BYPASSED, any(pod.mirror_bypassed for pod in pods)
    return flag(conditions, kind, there_is, Reason.USED_AT_UPSTREAM, text, generation, now, only_if_true=True)


def _with_shared_user(
    cluster: CoordinatorCluster, conditions: tuple[Condition, ...], now: str
) -> tuple[Condition, ...]:
    """ClientsShareUser: ACLs here cannot tell the gateway's clients apart, which is right where there are none."""
    meta, kind = cluster.metadata, ConditionType.CLIENTS_SHARE_USER
    text = (
        "clients of the gateway log in, and are all its own user here, whatever ACLs say of them; with a login of the"
        " gateway (spec.gateway.muster.sasl) that muster.gateway.users names: "
        + patch("coordinatorcluster", meta, {"gateway": {"muster": {"actForClients": True}}})
    )
    shared, reason = _share_user(cluster.spec), Reason.CLIENTS_SHARE_USER
    return flag(conditions, kind, shared, reason, text, meta.generation, now, only_if_true=True)


def _share_user(spec: CoordinatorClusterSpec) -> bool:
    gateway, upstream = spec.gateway, spec.upstream
    if gateway is None or upstream is None or not upstream.served_groups or gateway.muster.act_for_clients:
        return False
    asked = gateway.authentication is not None or (gateway.tls is not None and gateway.tls.client_auth == "required")
    return asked or upstream.sasl is not None
