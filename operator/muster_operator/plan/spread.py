"""Pods that were added take their share: which replica moves next, and which replica of a set is to lead.

Every move makes the numbers of two pods more equal, so moves come to an end, and none is taken back: a replica goes
from a pod that holds at least two more than the one that it goes to. What has begun is found in the record: a partition
that has all of its copies and a learner besides. So an operator that starts anew goes on.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from muster_operator.api.conditions import Reason
from muster_operator.api.models import OffsetsPartition, PartitionState
from muster_operator.plan.observation import PodView
from muster_operator.plan.verdict import Verdict

MOST_AT_ONCE = 2
"""Partitions that move a replica at the same time: each copies a log while everybody works."""


@dataclass(frozen=True, slots=True)
class Share:
    """A replica goes from one pod to another: a new one on `joins` takes the place of the one on `leaves`."""

    leaves: str
    joins: str


def shares(
    partitions: Mapping[int, OffsetsPartition], pods: Sequence[PodView], copies: Mapping[int, int], *, begin: bool
) -> Mapping[int, Share]:
    """The replicas that move now, by partition. `copies`: how many each is to have. `begin`: new moves may begin."""
    held = Counter({pod.name: 0 for pod in pods})
    held.update(each.pod for one in partitions.values() for each in one.status.replicas if each.pod in held)
    first = Counter(_first(one) for one in partitions.values())
    by_name = {pod.name: pod for pod in pods}
    found: dict[int, Share] = {}
    for index, one in sorted(partitions.items()):
        if _has_all(one, by_name, copies[index]) and len(one.status.learners) == 1:
            (learner,) = one.status.learners
            if learner.pod in by_name and (share := _best(one, by_name, held, first, [learner.pod])) is not None:
                found[index] = _taken(share, one, held, first)
    if begin and all(_has_all(one, by_name, copies[index]) for index, one in partitions.items()):
        free = {index: one for index, one in sorted(partitions.items()) if not one.status.learners}
        while len(found) < MOST_AT_ONCE and (best := _next(free, by_name, held, first)) is not None:
            index, share = best
            found[index] = _taken(share, free.pop(index), held, first)
    return found


def verdict_of_moves(
    moving: Mapping[int, Share], wanted: Mapping[int, Share], partitions: Mapping[int, OffsetsPartition]
) -> Verdict | None:
    """The verdict on replicas that move, or else on those that would if nothing else went on; None: there are none."""
    told = moving or wanted
    if not told:
        return None
    names = (f"{partitions[index].metadata.name} from {told[index].leaves} to {told[index].joins}" for index in told)
    text = f"a replica of {', '.join(names)}"
    if moving:
        return Verdict(Reason.MOVING_REPLICAS, f"moves now: {text}")
    waits = f"waits until pods and partitions are settled (spec.failover.rebalanceAfter); then moves first: {text}"
    return Verdict(Reason.REBALANCE_DEFERRED, waits)


def firsts(partitions: Mapping[int, OffsetsPartition], pods: Sequence[PodView]) -> Mapping[int, str]:
    """The other replica of its set by which each partition is to be led, so that every pod leads its share. All of it
    together makes one pod lead one less and another one more; {} when that can make nothing more equal.
    """
    led = Counter({pod.name: 0 for pod in pods})
    led.update(pod for one in partitions.values() if (pod := _first(one)) in led)
    free = {index: one for index, one in sorted(partitions.items()) if _may_lead_elsewhere(one)}
    for most, count in sorted(led.items(), key=lambda each: (-each[1], each[0])):
        path = _path(most, {pod for pod in led if led[pod] <= count - 2}, free, led)
        if path:
            return path
    return {}


def _path(
    start: str, ends: set[str], partitions: Mapping[int, OffsetsPartition], pods: Iterable[str]
) -> Mapping[int, str]:
    """The shortest chain of partitions that hand a leader on from `start` to one of `ends`."""
    known, queue = {start: dict[int, str]()}, deque([start])
    there = set(pods)
    while queue:
        pod = queue.popleft()
        if pod in ends:
            return known[pod]
        for index, one in partitions.items():
            if _first(one) != pod:
                continue
            for each in one.status.replicas[1:]:
                if each.pod in there and each.pod not in known:
                    known[each.pod] = {**known[pod], index: each.pod}
                    queue.append(each.pod)
    return {}


def _next(
    partitions: Mapping[int, OffsetsPartition], pods: Mapping[str, PodView], held: Counter[str], first: Counter[str]
) -> tuple[int, Share] | None:
    """The move that makes the greatest difference, of the lowest partition."""
    found = ((index, _best(one, pods, held, first, pods)) for index, one in partitions.items())
    best: tuple[int, Share] | None = None
    for index, share in found:
        if share is not None and (best is None or _gain(share, held) > _gain(best[1], held)):
            best = index, share
    return best


def _gain(share: Share, held: Counter[str]) -> int:
    return held[share.leaves] - held[share.joins]


def _best(
    one: OffsetsPartition, pods: Mapping[str, PodView], held: Counter[str], first: Counter[str], to: Iterable[str]
) -> Share | None:
    """The best move of this partition to one of these pods; None if none makes anything more equal."""
    if one.spec.replicas:
        return None
    leader = _first(one)

    def rank(share: Share) -> tuple[int, bool]:
        """A pod that leads more than the other gives its leader up with the replica."""
        leads_more = first[share.leaves] >= first[share.joins] + 2
        return _gain(share, held), (share.leaves == leader) == leads_more

    return max((each for each in _moves(one, pods, to) if _gain(each, held) >= 2), key=rank, default=None)


def _moves(one: OffsetsPartition, pods: Mapping[str, PodView], to: Iterable[str]) -> Iterator[Share]:
    names = [each.pod for each in one.status.replicas]
    spread = _spread(names, pods)
    for joins in to:
        for leaves in names if joins not in names else ():
            after = _spread([joins if name == leaves else name for name in names], pods)
            if leaves != one.spec.preferred_leader and all(now >= was for now, was in zip(after, spread, strict=True)):
                yield Share(leaves, joins)


def _spread(names: Iterable[str], pods: Mapping[str, PodView]) -> tuple[int, int]:
    """Over how many zones and nodes a set is spread."""
    there = [pods[name] for name in names if name in pods]
    return len({pod.zone for pod in there}), len({pod.node for pod in there})


def _taken(share: Share, one: OffsetsPartition, held: Counter[str], first: Counter[str]) -> Share:
    held.subtract([share.leaves])
    held.update([share.joins])
    if _first(one) == share.leaves:
        first.subtract([share.leaves])
        first.update([share.joins])
    return share


def _first(one: OffsetsPartition) -> str:
    return one.status.replicas[0].pod if one.status.replicas else ""


def _has_all(one: OffsetsPartition, pods: Mapping[str, PodView], copies: int) -> bool:
    """True if the partition is led and all of its copies follow, learners aside."""
    status = one.status
    whole = status.state is PartitionState.LED and status.following == len(status.replicas) and not status.left
    there = all(each.pod in pods and each.log_id for each in status.replicas)
    return whole and there and not status.previous_replicas and len(status.replicas) == copies


def _may_lead_elsewhere(one: OffsetsPartition) -> bool:
    status = one.status
    settled = not status.previous_replicas and not status.learners and bool(status.replicas)
    return settled and not one.spec.replicas and one.spec.preferred_leader is None
