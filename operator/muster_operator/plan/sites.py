"""The condition of a cluster that is one of several sites, and may answer no client now."""

from __future__ import annotations

from muster_operator.api.conditions import Condition, ConditionType, Reason
from muster_operator.plan.observation import Observation
from muster_operator.plan.verdict import flag


def with_site(seen: Observation, conditions: tuple[Condition, ...], now: str) -> tuple[Condition, ...]:
    """Fenced: pods answer no client. Keeps what pods last said while none says anything."""
    assert seen.cluster is not None
    up = [pod for pod in seen.pods if pod.is_up]
    if not up:
        return conditions
    fenced = [f"pod {pod.name} answers no client: {pod.site_problem}" for pod in up if pod.site_problem]
    generation, kind = seen.cluster.metadata.generation, ConditionType.FENCED
    return flag(
        conditions, kind, bool(fenced), Reason.OTHER_SITE, "; ".join(fenced), generation, now, only_if_true=True
    )
