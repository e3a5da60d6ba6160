"""`muster explain`: where a partition lives, why it is as it is, and what happens next. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from muster_cli.oncall.seen import PodSeen, Seen, Unreachable
from muster_cli.oncall.verdict import LEADERLESS_PATIENCE_S, age_s, message_of
from muster_coordinator.partition_numbers import INTERNAL_TOPICS, OFFSETS, TRANSACTIONS
from muster_coordinator.records.partitioner import partition_for
from muster_operator.api.conditions import ConditionType, Reason, find_condition
from muster_operator.api.durations import parse_duration
from muster_operator.api.models import OffsetsPartition, OffsetsPartitionStatus, OffsetsTopic, PartitionState

Kind = Literal["auto", "group", "transactional-id"]

NEXT_BY_STATE = {
    PartitionState.PENDING: "The operator chooses pods for its replicas, creates them, and elects the first one.",
    PartitionState.ELECTING: "The pod that is called replays what it lacks of the log, and answers; else another one is"
    " called, in a higher epoch.",
    PartitionState.LED: "Nothing, as long as its leader lives.",
    PartitionState.LEADERLESS: "The operator goes on trying, and elects the replica with the best log as soon as most"
    " of the set can be reached.",
    PartitionState.STALLED: "Nothing by itself: a person has to act, as the message says.",
    PartitionState.RETIRED: "Nothing: a re-shard has replaced it. `muster reshard --drop-old` deletes its log.",
}
NEXT_BY_REASON: dict[str, str] = {
    Reason.POD_DOWN: "It waits for the pod that holds the log; it is led as soon as that one answers.",
    Reason.LEADER_LIVES: "The replicas hear a leader that the operator does not; it waits until it hears it as well, or"
    " until most replicas do not hear it any more.",
    Reason.CANNOT_WRITE: "The pod is called again when its storage takes writes; another replica is, if there is one.",
    Reason.LOAD_FAILED: "It is tried again in a higher epoch, on another replica if there is one.",
    Reason.ADOPTING: "The record is taken from the logs as soon as a majority of them is there.",
    Reason.TOO_FEW_PODS: "Its replicas are placed as soon as there are as many pods as replicationFactor asks for.",
    Reason.RESHARD_FENCING: "It closes for the re-shard that is under way, and opens when that is done or taken back.",
    Reason.RESHARD_COPYING: "It opens when `muster reshard` has filled the new partitions, or is taken back.",
}


class ReplicaLine(msgspec.Struct, frozen=True):
    """One replica of the set, or beside it. `role`: leader, replica, learner, leaving, or before the change."""

    pod: str
    role: str
    log_id: str
    node: str
    ready: bool


class Explanation(msgspec.Struct, frozen=True):
    """The object that `--json` prints. Its names stay compatible. `why` and `next`: sentences."""

    asked: str
    namespace: str
    cluster: str
    partition: str
    kafka_name: str
    state: str
    leader: str | None
    epoch: int
    since: str
    needs_person: bool
    where: tuple[str, ...]
    replicas: tuple[ReplicaLine, ...]
    why: tuple[str, ...]
    next: tuple[str, ...]


@dataclass(frozen=True)
class Found:
    """The subject of the question. `how`: why it is this partition, "" if it was named."""

    seen: Seen
    topic: OffsetsTopic
    partition: OffsetsPartition
    how: str = ""


def find(clusters: Sequence[Seen], asked: str, kind: Kind = "auto") -> tuple[Found, ...]:
    """The subjects that `asked` names, in each cluster that has it. A name or number of a partition comes before a
    group of that name. Raises Unreachable if there is nothing."""
    found = [one for seen in clusters for one in _in_cluster(seen, asked, kind)]
    if not found:
        raise Unreachable(f"no cluster there has a partition for {asked}")
    return tuple(found)


def _in_cluster(seen: Seen, asked: str, kind: Kind) -> Iterator[Found]:
    if kind == "auto" and (named := named_partition(seen, asked)) is not None:
        yield named
        return
    wanted = TRANSACTIONS if kind == "transactional-id" else OFFSETS
    for topic in seen.topics:
        if topic.spec.topic != wanted.name:
            continue
        number = partition_for(asked, topic.layout.partitions)
        word = "transactional id" if wanted is TRANSACTIONS else "group"
        how = f"The {word} {asked} hashes to number {number} of {topic.layout.partitions}."
        yield from _at(seen, topic, number, how)


def named_partition(seen: Seen, asked: str) -> Found | None:
    """Finds a partition by the name of the object, by Kafka's name, or by the number that clients know; `t3` is one of
    transactions.
    """
    topics = {topic.metadata.name: topic for topic in seen.topics}
    for partition in seen.partitions:
        if partition.metadata.name == asked:
            return Found(seen, topics[partition.spec.topic_ref.name], partition)
    kafka = re.fullmatch(rf"(?:({'|'.join(INTERNAL_TOPICS)})-|(t))?([0-9]{{1,6}})", asked)
    if kafka is None:
        return None
    internal = TRANSACTIONS.name if kafka[2] else kafka[1] or OFFSETS.name
    of_name = (topic for topic in seen.topics if topic.spec.topic == internal)
    return next((one for topic in of_name for one in _at(seen, topic, int(kafka[3]), "")), None)


def _at(seen: Seen, topic: OffsetsTopic, number: int, how: str) -> Iterator[Found]:
    wanted = (topic.metadata.name, topic.layout.base + number)
    for partition in seen.partitions:
        if (partition.spec.topic_ref.name, partition.spec.index) == wanted and number < topic.layout.partitions:
            yield Found(seen, topic, partition, how)


def explain(found: Found, asked: str, now: float) -> Explanation:
    """Explains it as it is at `now`, in seconds since 1970."""
    partition, status = found.partition, found.partition.status
    led = status.state is PartitionState.LED
    waits = status.state not in (PartitionState.LED, PartitionState.RETIRED, PartitionState.STALLED)
    lasts = age_s(status.last_transition_time, now) >= LEADERLESS_PATIENCE_S
    number = partition.spec.index - found.topic.layout.base
    return Explanation(
        asked=asked,
        namespace=partition.metadata.namespace,
        cluster=found.seen.cluster.metadata.name,
        partition=partition.metadata.name,
        kafka_name=f"{found.topic.spec.topic}-{number}" if number >= 0 else "",
        state=status.state.value,
        leader=status.leader if led else None,
        epoch=status.epoch,
        since=status.last_transition_time,
        needs_person=status.state is PartitionState.STALLED or (waits and lasts),
        where=tuple(_where(found)),
        replicas=tuple(_replicas(found)),
        why=tuple(_why(found)),
        next=tuple(_next(found, now)),
    )


def _where(found: Found) -> Iterator[str]:
    status = found.partition.status
    if found.how:
        yield found.how
    if status.state is PartitionState.LED:
        yield f"Pod {status.leader} leads it in epoch {status.epoch}."
    elif status.leader:
        yield f"No pod leads it. Pod {status.leader} led it last or is called to, in epoch {status.epoch}."
    else:
        yield "No pod leads it, and none has."


def _replicas(found: Found) -> Iterator[ReplicaLine]:
    status = found.partition.status
    pods = {pod.name: pod for pod in found.seen.pods}
    for role, replicas in (
        ("replica", status.replicas),
        ("before the change", status.previous_replicas),
        ("learner", status.learners),
        ("leaving", status.left),
    ):
        for each in replicas:
            if role == "before the change" and each in status.replicas:
                continue
            pod = pods.get(each.pod, PodSeen(each.pod, "", ready=False))
            leads = role == "replica" and status.state is PartitionState.LED and each.pod == status.leader
            yield ReplicaLine(each.pod, "leader" if leads else role, each.log_id, pod.node, pod.ready)


def _why(found: Found) -> Iterator[str]:
    partition, status = found.partition, found.partition.status
    message = message_of(partition)
    reason = status.reason or Reason.NOT_SEEN
    yield f"{reason}: {message}" if message else f"{reason}."
    for each in found.seen.cluster.status.last_failovers:
        if each.partition == partition.metadata.name:
            took = f", which took {each.duration_ms} ms" if each.duration_ms is not None else ""
            how = "moved" if each.planned else "went over"
            yield f"At {each.time} it {how} from {each.previous_leader or 'nobody'} to {each.leader}{took}."
            break
    ready = {pod.name for pod in found.seen.pods if pod.ready}
    away = [each.pod for each in status.replicas if each.pod not in ready]
    if away:
        yield f"Pods of its replicas that are not ready: {', '.join(away)}."
    if status.replicas and status.state is not PartitionState.LED:
        yield f"An election needs {len(status.replicas) // 2 + 1} of its {len(status.replicas)} replicas."
    if (damage := find_condition(status.conditions, ConditionType.DAMAGED)) is not None:
        yield f"Damaged: {damage.message}"


def _next(found: Found, now: float) -> Iterator[str]:
    cluster, status = found.seen.cluster, found.partition.status
    if cluster.spec.suspend:
        yield "Nothing: spec.suspend of the cluster is set, so the operator changes nothing and elects nobody."
        return
    if cluster.spec.hibernate and status.state is not PartitionState.RETIRED:
        yield "Nothing until spec.hibernate of the cluster is taken back: no pods run, and their volumes stay."
        return
    if found.seen.operator is not None and not found.seen.operator.acts(now):
        alone = cluster.spec.failover.nominate_after
        own = f" Its replicas elect one of themselves {alone} after they have heard no leader." if _on(alone) else ""
        yield f"No operator acts, so nothing is decided until one does.{own}"
        return
    changing = _changes(found)
    if status.state is not PartitionState.LED or not changing:
        yield NEXT_BY_REASON.get(status.reason, NEXT_BY_STATE[status.state])
    yield from changing


def _changes(found: Found) -> list[str]:
    """The operator's next steps with a partition that is led."""
    cluster, status, times = found.seen.cluster, found.partition.status, found.seen.cluster.spec.failover
    told = []
    if status.previous_replicas:
        told.append("Its set changes: it is committed by majorities of the old and the new one, and the old one goes.")
    if status.learners:
        names = ", ".join(each.pod for each in status.learners)
        told.append(f"{names} gets the log, and is in the next set when it has it.")
    if status.left:
        told.append(f"The log on {', '.join(each.pod for each in status.left)} is deleted.")
    preferred = preferred_leader(found.partition.spec.preferred_leader, status)
    if status.state is PartitionState.LED and preferred and status.leader != preferred and _on(times.rebalance_after):
        told.append(f"{preferred} shall lead it, and gets it when no pod has come or gone for {times.rebalance_after}.")
    away = {each.pod for each in status.replicas} - {pod.name for pod in found.seen.pods if pod.ready}
    if away and _on(times.replace_after) and len(status.replicas) < cluster.spec.pods:
        names = ", ".join(sorted(away))
        told.append(
            f"Replicas on {names} are replaced on another pod when they have been away for {times.replace_after}."
        )
    return told


def preferred_leader(named: str | None, status: OffsetsPartitionStatus) -> str:
    """The pod that shall lead when it can; "" if there is none yet."""
    return named or (status.replicas[0].pod if status.replicas else "")


def _on(duration: str) -> bool:
    return parse_duration(duration) > 0
