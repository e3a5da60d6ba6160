"""Whether ACLs of a cluster can tell the clients of its gateway apart."""

from __future__ import annotations

from muster_operator.api.conditions import Condition, ConditionType, Reason
from muster_operator.api.models import CoordinatorCluster, CoordinatorClusterSpec
from muster_operator.plan.hints import patch
from muster_operator.plan.verdict import flag


def with_shared_user(cluster: CoordinatorCluster, conditions: tuple[Condition, ...], now: str) -> tuple[Condition, ...]:
    """ClientsShareUser: right where this cluster has no ACLs, and no part of Ready."""
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
