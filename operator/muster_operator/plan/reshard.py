"""A re-shard: which partitions exist, when its next phase begins, and which partitions are closed and opened.

    phase       what happens in it                                        it ends when
    Preparing   new partitions: created, placed, elected, closed          all are closed, and all pods are up; of the
                                                                          groups' topic, no transaction is open
    Fencing     old partitions: closed                                    all are closed, their fence committed
    Copying     (`muster reshard` fills the new ones)                     all are complete
    Opening     clients are sent to the new ones; these are opened        all are open
    Aborting    old partitions: opened                                    none is closed

The operator records a phase by compare-and-swap before it acts on it, and acts only on the recorded phase. So an
operator that was overtaken, or starts anew, does nothing that a later phase forbids: once Opening is recorded no old
partition is opened, once Aborting is recorded no new one, and a pod refuses to close a partition that the same re-shard
has opened. Old and new partitions share no index, and neither do two re-shards.

A new partition opens in a leader epoch above those in which the old ones were closed. Groups remember
the epoch of the transaction coordinator that has marked a producer's offsets: they never see it go back.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from muster_coordinator.partition_numbers import INTERNAL_TOPICS
from muster_coordinator.podapi.models import FenceStatus, ReplicaStatus
from muster_coordinator.states import ShardState
from muster_operator.api.conditions import Reason
from muster_operator.api.models import LeadershipRecord, OffsetsTopic, OffsetsTopicStatus, ReshardPhase, ReshardStatus
from muster_operator.plan.actions import RemoveReplicas, SetFence, SetFences
from muster_operator.plan.observation import CallKind, Observation, PodView
from muster_operator.plan.open_transactions import open_transactions

REASONS = {
    ReshardPhase.PREPARING: Reason.RESHARD_PREPARING,
    ReshardPhase.FENCING: Reason.RESHARD_FENCING,
    ReshardPhase.COPYING: Reason.RESHARD_COPYING,
    ReshardPhase.OPENING: Reason.RESHARD_OPENING,
    ReshardPhase.ABORTING: Reason.RESHARD_ABORTING,
}
"""The reason in the topic's Ready condition while a re-shard is under way."""

_BEFORE_OPENING = (ReshardPhase.PREPARING, ReshardPhase.FENCING, ReshardPhase.COPYING)
_OPENS_NEW = (ReshardPhase.OPENING, ReshardPhase.DONE)
_OPENS_OLD = (ReshardPhase.ABORTING, ReshardPhase.ABORTED)


def indexes(topic: OffsetsTopic) -> tuple[int, ...]:
    """The indexes of the partitions that shall exist: those that serve, and those that a re-shard prepares."""
    reshard = topic.status.reshard
    new = reshard.layout.indexes if reshard is not None and reshard.phase in _BEFORE_OPENING else ()
    return (*topic.layout.indexes, *new)


def is_under_way(topic: OffsetsTopic) -> bool:
    """True if a re-shard has begun and has not ended."""
    reshard = topic.status.reshard
    return reshard is not None and reshard.phase not in (ReshardPhase.DONE, ReshardPhase.ABORTED)


def is_retired(topic: OffsetsTopic, index: int) -> bool:
    """True if the partition belonged to an earlier layout, or to a re-shard that was taken back."""
    return topic.numbers.start <= index < _first_free(topic) and index not in indexes(topic)


def _first_free(topic: OffsetsTopic) -> int:
    reshard = topic.status.reshard
    return max(topic.layout.indexes.stop, 0 if reshard is None else reshard.layout.indexes.stop)


# Phases


def next_phase(
    seen: Observation, topic: OffsetsTopic, topics: Collection[OffsetsTopic], now: str
) -> OffsetsTopicStatus | None:
    """The topic's status with the next phase, or with the progress of the present one; None if it does not change.
    `topics`: all that the cluster uses."""
    reshard = topic.status.reshard
    if reshard is None or reshard.phase in (ReshardPhase.DONE, ReshardPhase.ABORTED):
        begun = _begin(seen, topic, now)
        return None if begun is None else replace(topic.status, reshard=begun)
    named_by = INTERNAL_TOPICS[topic.spec.topic].named_by
    naming = next((each for each in topics if each.spec.topic == named_by), None)
    view = _ReshardView(seen, topic, reshard, naming)
    for phase, condition, following in _TRANSITIONS:
        if phase is reshard.phase and (why := condition(view)):
            ready, total = view.progress(following)
            epoch = view.last_epoch() if following is ReshardPhase.COPYING else reshard.epoch
            moved = replace(reshard, phase=following, message=why, ready=ready, total=total, epoch=epoch)
            layout = reshard.layout if following is ReshardPhase.OPENING else topic.status.layout
            return replace(topic.status, reshard=moved, layout=layout)
    ready, total = view.progress(reshard.phase)
    told = replace(reshard, ready=ready, total=total, message=view.waits_for(ready, total))
    return replace(topic.status, reshard=told) if told != reshard else None


def _begin(seen: Observation, topic: OffsetsTopic, now: str) -> ReshardStatus | None:
    """The status of a new re-shard, if the topic asks for one. One that was taken back begins again only after a change
    of the topic. Its partitions have numbers above all logs: the record of an earlier one can be lost.
    """
    wanted, before = topic.spec.reshard, topic.status.reshard
    if wanted is None or wanted.partitions == topic.layout.partitions:
        return None
    if before is not None and before.generation >= topic.metadata.generation:
        return None
    there = {index for pod in seen.pods for index in pod.replicas}
    return ReshardStatus(
        ReshardPhase.PREPARING,
        base=max([_first_free(topic), *(index + 1 for index in there if index in topic.numbers)]),
        partitions=wanted.partitions,
        generation=topic.metadata.generation,
        start_time=now,
        total=wanted.partitions,
        epoch=max((LeadershipRecord.parse(each).epoch for each in topic.status.leaderships.values()), default=0),
        message=f"from {topic.layout.partitions} to {wanted.partitions} partitions",
    )


def epochs_above(topic: OffsetsTopic) -> Mapping[int, int]:
    """The leader epoch of the old partitions above which that of each new partition has to be."""
    reshard = topic.status.reshard
    if reshard is None or reshard.phase not in _BEFORE_OPENING:
        return {}
    return dict.fromkeys(reshard.layout.indexes, reshard.epoch)


def hindrance(topic: OffsetsTopic, topics: Collection[OffsetsTopic]) -> str:
    """The reason why no re-shard of the topic begins now, beside the other one of `topics`; "": one may begin."""
    others = [each for each in topics if each is not topic]
    if is_under_way(topic) or not others:
        return ""
    if any(map(is_under_way, others)):
        return f"spec.reshard waits until {others[0].spec.topic} is re-sharded"
    return ""


def holds_transactions(seen: Observation, topics: Sequence[OffsetsTopic]) -> bool:
    """True if no transaction may begin, because the re-shard of the groups' topic is under way or only waits for open
    ones. `topics`: those that the cluster uses, the groups' first."""
    groups = topics[0]
    reshard = groups.status.reshard
    if len(topics) < 2 or reshard is None or reshard.phase not in _BEFORE_OPENING:
        return False
    return reshard.phase is not ReshardPhase.PREPARING or _ReshardView(seen, groups, reshard).is_prepared()


class _ReshardView:
    """The old and the new partitions as the pods report them. `naming`: the topic whose records name the old ones."""

    def __init__(
        self, seen: Observation, topic: OffsetsTopic, reshard: ReshardStatus, naming: OffsetsTopic | None = None
    ) -> None:
        self._seen = seen
        self._wanted = topic.spec.reshard
        self._reshard = reshard
        self._naming = naming
        self._leaders = _leaders(seen.pods)
        self._old, self._new = topic.layout.indexes, reshard.layout.indexes

    # Conditions of a transition: each returns why it holds, or "" if it does not.

    def is_unwanted(self) -> str:
        if self._wanted is None:
            return "spec.reshard was taken back"
        if self._wanted.partitions != self._reshard.partitions:
            return f"spec.reshard asks for {self._wanted.partitions} partitions now"
        return ""

    def has_reopened(self) -> str:
        """A person may have allowed a loss of data, after which an old partition can serve although it was copied."""
        found = next((index for index in self._old if self._serves(index)), None)
        return "" if found is None else f"partition {found} has lost its fence: the copy may be too old"

    def may_fence(self) -> str:
        if not self.is_prepared() or self._open_transactions():
            return ""
        return "the new partitions wait for their logs"

    def is_fenced(self) -> str:
        return "all partitions are closed" if all(map(self._is_closed, self._old)) else ""

    def is_filled(self) -> str:
        """An election above the last epoch of the old partitions can still be to come; it takes no records with it."""
        if not all(self._is_complete(index) and self._epoch(index) > self._reshard.epoch for index in self._new):
            return ""
        return "the new partitions are complete"

    def is_open(self) -> str:
        return f"{len(self._new)} partitions serve" if all(map(self._is_opened, self._new)) else ""

    def is_restored(self) -> str:
        return "the old partitions serve" if all(map(self._serves, self._old)) else ""

    def is_prepared(self) -> bool:
        """True if nothing but open transactions keeps the old partitions from being closed."""
        return not self._pods_that_miss() and all(map(self._is_closed, self._new))

    def last_epoch(self) -> int:
        """The highest epoch in which an old partition was closed, or that the new ones are above already."""
        return max([self._reshard.epoch, *map(self._epoch, self._old)])

    # Progress

    def progress(self, phase: ReshardPhase) -> tuple[int, int]:
        """(partitions that have reached what the phase waits for, all partitions that it waits for)."""
        counted: dict[ReshardPhase, tuple[Callable[[int], bool], range]] = {
            ReshardPhase.PREPARING: (self._is_closed, self._new),
            ReshardPhase.FENCING: (self._is_closed, self._old),
            ReshardPhase.COPYING: (self._is_complete, self._new),
            ReshardPhase.OPENING: (self._is_opened, self._new),
            ReshardPhase.ABORTING: (self._serves, self._old),
        }
        if phase not in counted:
            return self._reshard.ready, self._reshard.total
        test, which = counted[phase]
        return sum(map(test, which)), len(which)

    def waits_for(self, ready: int, total: int) -> str:
        miss = ""
        if self._reshard.phase is ReshardPhase.PREPARING:
            miss = self._open_transactions() if self.is_prepared() else self._pods_that_miss()
        what = {
            ReshardPhase.PREPARING: "new partitions are prepared",
            ReshardPhase.FENCING: "partitions are closed",
            ReshardPhase.COPYING: "new partitions are complete; `muster reshard` fills them",
            ReshardPhase.OPENING: "new partitions are open",
            ReshardPhase.ABORTING: "partitions are open again",
        }[self._reshard.phase]
        return f"{ready} of {total} {what}" + (f"; waits for {miss}" if miss else "")

    def _open_transactions(self) -> str:
        return "" if self._naming is None else open_transactions(self._seen, self._naming)

    def _pods_that_miss(self) -> str:
        """The pods that the re-shard waits for: a pod of an older version could not close its partitions."""
        assert self._seen.cluster is not None
        missing = self._seen.cluster.spec.pods - len(self._seen.pods)
        if missing > 0:
            return f"{missing} more pods"
        return ", ".join(pod.name for pod in self._seen.pods if not pod.is_up or pod.outdated or pod.draining)

    # One partition

    def _fence(self, index: int) -> FenceStatus | None:
        """The fence of this re-shard that the leader reports; None if there is none."""
        _, view = self._leaders.get(index, (None, None))
        fence = view.fence if view is not None else None
        return fence if fence is not None and fence.reshard == self._reshard.base else None

    def _epoch(self, index: int) -> int:
        """The epoch in which the partition is led; -1: nobody reports that."""
        _, view = self._leaders.get(index, (None, None))
        return -1 if view is None else view.leader_epoch

    def _is_closed(self, index: int) -> bool:
        fence = self._fence(index)
        return fence is not None and fence.closed

    def _is_complete(self, index: int) -> bool:
        fence = self._fence(index)
        return fence is not None and fence.complete

    def _is_opened(self, index: int) -> bool:
        fence = self._fence(index)
        return fence is not None and not fence.closed

    def _serves(self, index: int) -> bool:
        """True if the leader itself reports that it serves: the answer to an election does not mention fences."""
        _, view = self._leaders.get(index, (None, None))
        return view is not None and view.state is ShardState.ACTIVE and bool(view.replicas)


_TRANSITIONS: tuple[tuple[ReshardPhase, Callable[[_ReshardView], str], ReshardPhase], ...] = (
    (ReshardPhase.PREPARING, _ReshardView.is_unwanted, ReshardPhase.ABORTING),
    (ReshardPhase.FENCING, _ReshardView.is_unwanted, ReshardPhase.ABORTING),
    (ReshardPhase.COPYING, _ReshardView.is_unwanted, ReshardPhase.ABORTING),
    (ReshardPhase.COPYING, _ReshardView.has_reopened, ReshardPhase.ABORTING),
    (ReshardPhase.PREPARING, _ReshardView.may_fence, ReshardPhase.FENCING),
    (ReshardPhase.FENCING, _ReshardView.is_fenced, ReshardPhase.COPYING),
    (ReshardPhase.COPYING, _ReshardView.is_filled, ReshardPhase.OPENING),
    (ReshardPhase.OPENING, _ReshardView.is_open, ReshardPhase.DONE),
    (ReshardPhase.ABORTING, _ReshardView.is_restored, ReshardPhase.ABORTED),
)
"""(phase, condition, next phase). The first transition whose condition holds is taken."""


# Fences


def set_fences(seen: Observation, topic: OffsetsTopic) -> Iterator[SetFences]:
    """The partitions to close and to open in the recorded phase, by the pod that leads them.

    Without any record of a re-shard, partitions that clients of every pod are sent to are opened: it is lost.
    """
    reshard = topic.status.reshard
    told = {next((each for each in pod.layouts if each.base in topic.numbers), None) for pod in seen.pods if pod.is_up}
    if reshard is None and told != {topic.layout}:
        return
    leaders = _leaders(seen.pods)
    by_pod: dict[str, list[SetFence]] = defaultdict(list)
    for index in indexes(topic):
        pod, view = leaders.get(index, (None, None))
        if pod is None or view is None or (CallKind.FENCE, pod.name) in seen.busy:
            continue
        fence = _wanted(index, view.fence, topic, reshard)
        if fence is not None:
            by_pod[pod.name].append(fence)
    for name, fences in sorted(by_pod.items()):
        yield SetFences(name, tuple(fences))


def _wanted(
    index: int, fence: FenceStatus | None, topic: OffsetsTopic, reshard: ReshardStatus | None
) -> SetFence | None:
    if reshard is None:
        return SetFence(index, fence.reshard, open=True) if fence is not None and fence.closed else None
    number, phase = reshard.base, reshard.phase
    was_here = fence is not None and fence.reshard >= number
    if phase in _BEFORE_OPENING and index in reshard.layout.indexes:
        return None if was_here else SetFence(index, number, importing=True)
    if phase is ReshardPhase.FENCING:
        return None if was_here else SetFence(index, number)
    if fence is None or not fence.closed:
        return None
    # A re-shard that is over closed it: this one, or an earlier one whose call arrived late.
    is_over = phase in (*_OPENS_OLD, *_OPENS_NEW) if fence.reshard == number else fence.reshard < number
    return SetFence(index, fence.reshard, open=True) if is_over else None


# Old logs


def dropped(seen: Observation, topic: OffsetsTopic) -> Iterator[RemoveReplicas]:
    """Delete the logs of retired partitions that no pod leads and whose objects a person has deleted.

    The call carries the epoch that the pod promised last: a higher one would count as a new election.
    """
    kept = {each.spec.index for each in seen.partitions if each.spec.topic_ref.name == topic.metadata.name}
    for pod in seen.pods:
        removals = tuple(
            (index, view.log_id, view.epoch)
            for index in sorted(pod.replicas.keys() - kept)
            if is_retired(topic, index) and (view := pod.replicas[index]).log_id and view.leader_epoch < 0
        )
        if removals and pod.is_up and (CallKind.REMOVE, pod.name) not in seen.busy:
            yield RemoveReplicas(pod.name, removals)


def _leaders(pods: Iterable[PodView]) -> Mapping[int, tuple[PodView, ReplicaStatus]]:
    """The pod that leads each partition in the highest epoch, of the pods that answer, with its replica."""
    found: dict[int, tuple[PodView, ReplicaStatus]] = {}
    for pod in pods:
        for index, view in pod.replicas.items() if pod.is_up else ():
            known = found.get(index)
            if view.is_active and (known is None or known[1].leader_epoch < view.leader_epoch):
                found[index] = (pod, view)
    return found
