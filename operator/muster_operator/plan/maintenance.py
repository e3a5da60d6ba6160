"""The requests of a person for single pods: to lead nothing for a while, to serve no client, to be replaced."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from dataclasses import replace

from muster_operator.api.durations import parse_duration
from muster_operator.api.models import CoordinatorCluster
from muster_operator.plan.observation import PodView


def as_asked(
    cluster: CoordinatorCluster, pods: tuple[PodView, ...], idle_since: MutableMapping[str, float], now: float
) -> tuple[PodView, ...]:
    """The pods as spec.maintenance and spec.rollout.restart have them. `idle_since`: since when fenced pods have led
    nothing, kept from one call to the next, like `now` in monotonic seconds.
    """
    fenced = {name for name, asked in cluster.spec.maintenance.items() if asked == "Fenced"}
    idle = {pod.name for pod in pods if pod.name in fenced and not any(view.leads for view in pod.replicas.values())}
    for name in [name for name in idle_since if name not in idle]:
        del idle_since[name]
    for name in idle:
        idle_since.setdefault(name, now)
    hidden = {name for name, since in idle_since.items() if now - since >= _told_s(cluster)}
    return tuple(
        replace(
            pod,
            cordoned=pod.cordoned or pod.name in cluster.spec.maintenance,
            fenced=pod.name in fenced,
            hidden=pod.name in hidden,
            outdated=pod.outdated or (pod.uid != "" and cluster.spec.rollout.restart.get(pod.name) == pod.uid),
        )
        for pod in pods
    )


def hides_in(cluster: CoordinatorCluster, idle_since: MutableMapping[str, float], now: float) -> Iterator[float]:
    """Seconds until clients are not told any more of each fenced pod that they are told of."""
    lefts = (since + _told_s(cluster) - now for since in idle_since.values())
    return (left for left in lefts if left > 0)


def _told_s(cluster: CoordinatorCluster) -> float:
    """The seconds for which clients are told of a pod that leads nothing: as for a pod that is down, and for the same
    reason. A client of librdkafka has to ask at its former coordinator before Metadata stops to name that pod."""
    return parse_duration(cluster.spec.failover.rebalance_after)
