"""The facts that all decisions of one plan share: the pods, the declared limits, and counts for spreading the load."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from muster_operator.plan.observation import PodView
from muster_operator.plan.spread import Share


@dataclass(slots=True)
class Tally:
    """Counts that decisions update, so that each decision sees what the earlier decisions of the plan have taken.

    `moves`: how many more elections that interrupt a live leader may begin. `changes`: how many more changes of a
    replica set may begin. `led`: partitions by the pod that leads them or is about to. `held`: replicas by pod.
    """

    moves: int
    changes: int
    led: Counter[str]
    held: Counter[str]


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """One cluster at the time of one plan.

    `declared`: number of pods in the spec. `rebalance_after_s`, `replace_after_s`: spec.failover. `emptying`: name of
    the pod that a rollout restarts next, "" if there is none. `shares`: the replicas that move to pods that hold less,
    by partition. `epochs_above`: the epoch that elections have to be above, by partition that a re-shard makes.
    """

    pods: Mapping[str, PodView]
    replication_factor: int
    declared: int
    rebalance_after_s: float
    replace_after_s: float
    emptying: str
    tally: Tally
    shares: Mapping[int, Share] = field(default_factory=dict)
    epochs_above: Mapping[int, int] = field(default_factory=dict)

    def epoch_above(self, index: int) -> int:
        """The epoch that the next one of this partition has to be above; -1: any."""
        return self.epochs_above.get(index, -1)

    def shall_leave(self, pod: PodView) -> bool:
        """True if the pod's leaderships move to other pods, if another pod can lead."""
        return pod.cordoned or self.is_leaving(pod)

    def is_leaving(self, pod: PodView) -> bool:
        """True if the pod may lead nothing and is elected for nothing."""
        return pod.draining or pod.fenced or pod.name == self.emptying

    def is_young(self, pod: PodView | None) -> bool:
        """True if the pod came up a short time ago. Its replicas may still load, and a warm replica leads sooner."""
        return pod is not None and pod.steady_s < self.rebalance_after_s

    def is_away_for_long(self, pod: PodView) -> bool:
        """True if the operator gives the pod up and creates its replicas on other pods."""
        return not pod.is_up and 0 < self.replace_after_s <= pod.steady_s

    @property
    def all_answer(self) -> bool:
        """True if every declared pod shows what it has."""
        return len(self.pods) >= self.declared and all(pod.is_up for pod in self.pods.values())

    @property
    def is_restless(self) -> bool:
        """True if a pod is missing, is about to go, or came or went a short time ago."""
        pods = self.pods.values()
        return len(pods) < self.declared or any(pod.outdated or pod.draining or self.is_young(pod) for pod in pods)
