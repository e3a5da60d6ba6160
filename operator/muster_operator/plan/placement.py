"""The pods that are to hold a new partition: balanced, spread over nodes and zones, and deterministic.

A partition that has its pods keeps them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec.structs import replace

from muster_operator.api.conditions import Reason
from muster_operator.api.models import OffsetsPartition, OffsetsTopic, PartitionState, Replica
from muster_operator.plan.adopt import missing_pods
from muster_operator.plan.decision import Decision, stalled
from muster_operator.plan.hints import patch
from muster_operator.plan.observation import Observation, PodView, ordinal_of


def too_few_pods(seen: Observation, topic: OffsetsTopic) -> str:
    """The reason why the topic's partitions cannot have all their replicas; "" if they can."""
    assert seen.cluster is not None
    factor, pods = topic.spec.replication_factor, seen.cluster.spec.pods
    if factor <= pods:
        return ""
    more = patch("coordinatorcluster", seen.cluster.metadata, {"pods": factor})
    fewer = patch("offsetstopic", topic.metadata, {"replicationFactor": 3 if pods >= 3 else 1})
    return (
        f"replicationFactor {factor} needs {factor} pods, and CoordinatorCluster {seen.name} has {pods}. Have more"
        f" pods: {more}; or fewer copies: {fewer}"
    )


def absent_pods(seen: Observation) -> str:
    """Names a partition with pods that the cluster does not declare, with both ways out; "" if none does."""
    assert seen.cluster is not None
    meta, declared = seen.cluster.metadata, seen.cluster.spec.pods
    pods = {f"{seen.name}-{ordinal}" for ordinal in range(declared)}
    for each in seen.partitions:
        if absent := [name for name in each.spec.replicas if name not in pods]:
            there = [name for name in each.spec.replicas if name in pods]
            return (
                f"spec.replicas of OffsetsPartition {each.metadata.name} names pod {', '.join(absent)}, and"
                f" CoordinatorCluster {seen.name} has {declared} pods. Have more pods:"
                f" {patch('coordinatorcluster', meta, {'pods': 1 + max(map(ordinal_of, absent))})}; or place the"
                f" partition elsewhere: {patch('offsetspartition', each.metadata, {'replicas': there})}"
            )
    return ""


def place_new(
    seen: Observation, topic: OffsetsTopic, records: Mapping[int, OffsetsPartition]
) -> Mapping[int, Decision]:
    """Decide about the topic's partitions without replicas and without a used log on the pods that answer, by index.

    They wait until every declared pod answers: another volume can have the log of such a partition, and an empty log
    would lose what was committed. Of a partition that was restored from a backup that is known for sure: it waits for a
    person's word.
    """
    unplaced = [each for index, each in records.items() if not each.status.replicas and index in topic.numbers]
    placed = [each for each in records.values() if each.status.replicas]
    if too_few := too_few_pods(seen, topic):
        return {each.spec.index: stalled(each.status, Reason.TOO_FEW_PODS, too_few) for each in unplaced}
    if missing := missing_pods(seen):
        waiting = f"waits for {missing} before it gets its place"
        return {each.spec.index: _pending(each, waiting) for each in unplaced}
    staying = [pod for pod in seen.pods if not pod.cordoned] or seen.pods
    decisions = {each.spec.index: _lost_after_restore(seen, each) for each in unplaced if _was_restored(seen, each)}
    unplaced = [each for each in unplaced if each.spec.index not in decisions]
    places = place(unplaced, placed, staying, topic.spec.replication_factor)
    for each in unplaced:
        chosen = places[each.metadata.name]
        pending = replace(each.status, replicas=chosen, state=PartitionState.PENDING, reason=Reason.PLACING)
        decisions[each.spec.index] = Decision(pending, f"is placed on {', '.join(r.pod for r in chosen)}")
    return decisions


_WORD_IS_GIVEN = 0
"""The epoch that a person names in spec.allowDataLoss: the API server takes none above that of the status."""


def _was_restored(seen: Observation, partition: OffsetsPartition) -> bool:
    assert seen.cluster is not None
    restored = seen.cluster.status.restore
    return restored is not None and restored.has(partition.spec.index) and partition.spec.allow_data_loss is None


def _lost_after_restore(seen: Observation, partition: OffsetsPartition) -> Decision:
    assert seen.cluster is not None
    restored = seen.cluster.status.restore
    assert restored is not None
    word = patch("offsetspartition", partition.metadata, {"allowDataLoss": _WORD_IS_GIVEN})
    text = (
        f"no volume has its log, which was restored from backup {restored.backup}: bring the volume back, or restore"
        f" into a new cluster. To begin it empty: {word}"
    )
    status = replace(partition.status, epoch=max(partition.status.epoch, _WORD_IS_GIVEN))
    return stalled(status, Reason.RESTORED_LOG_MISSING, text)


def _pending(partition: OffsetsPartition, message: str) -> Decision:
    return Decision(replace(partition.status, state=PartitionState.PENDING, reason=Reason.PLACING), message)


def place(
    unplaced: Sequence[OffsetsPartition],
    placed: Iterable[OffsetsPartition],
    pods: Sequence[PodView],
    replication_factor: int,
) -> Mapping[str, tuple[Replica, ...]]:
    """Choose the replicas of every unplaced partition, without log ids yet, by object name. The first one is to lead.

    A partition that names its replicas or its preferred leader gets those pods. The others, in the order of their
    index, get the pods that hold the fewest replicas, and of equal ones the first in `pods`: counts differ by one at
    most unless partitions name their pods, or nodes and zones differ in size. Leaders are spread in the same way.
    """
    by_name = {pod.name: pod for pod in pods}
    held, led = Counter(dict.fromkeys(by_name, 0)), Counter(dict.fromkeys(by_name, 0))
    for partition in placed:
        held.update(replica.pod for replica in partition.status.replicas)
        led.update(replica.pod for replica in partition.status.replicas[:1])
    named = {each.metadata.name: _named(each, by_name)[:replication_factor] for each in unplaced}
    for chosen in named.values():
        held.update(chosen)
        led.update(chosen[:1])
    places: dict[str, tuple[Replica, ...]] = {}
    for partition in sorted(unplaced, key=lambda each: each.spec.index):
        chosen = named[partition.metadata.name]
        there = [by_name[name] for name in chosen if name in by_name]
        free = [pod for pod in pods if pod.name not in chosen]
        added = [pod.name for pod in choose_pods(free, replication_factor - len(chosen), there, held)]
        held.update(added)
        if added and not chosen:
            leader = min(added, key=lambda name: led[name])
            led[leader] += 1
            added = [leader, *(name for name in added if name != leader)]
        places[partition.metadata.name] = tuple(Replica(pod) for pod in (*chosen, *added))
    return places


def choose_pods(
    free: Sequence[PodView],
    count: int,
    there: Sequence[PodView],
    held: Mapping[str, int],
    first: Collection[str] = (),
) -> list[PodView]:
    """Choose `count` of the `free` pods, or all if there are fewer.

    Pods named in `first` come first, then pods in the zones and on the nodes that `there` and the chosen pods use
    least, then pods that hold the fewest replicas (`held`).
    """
    chosen: list[PodView] = []
    left = list(free)
    while left and len(chosen) < count:
        company = [*there, *chosen]
        zones, nodes = Counter(pod.zone for pod in company), Counter(pod.node for pod in company)

        def rank(pod: PodView, zones: Counter[str] = zones, nodes: Counter[str] = nodes) -> tuple[bool | int, ...]:
            shared = (zones[pod.zone] if pod.zone else 0, nodes[pod.node] if pod.node else 0)
            return (pod.name not in first, *shared, held.get(pod.name, 0))

        best = min(left, key=rank)
        left.remove(best)
        chosen.append(best)
    return chosen


def _named(partition: OffsetsPartition, pods: Collection[str]) -> tuple[str, ...]:
    """The pods that the partition's spec names. A preferred leader that does not exist is left out."""
    if partition.spec.replicas:
        return partition.spec.replicas
    preferred = partition.spec.preferred_leader
    return (preferred,) if preferred is not None and preferred in pods else ()
