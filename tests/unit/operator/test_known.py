"""What is kept from one plan to the next saves work and changes nothing: the actions are those of a plan without it."""

from __future__ import annotations

from dataclasses import replace as with_fields
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.unit.operator.model import Model, Operator

from muster_coordinator.states import ReplicaRole, ShardState
from muster_operator.api.conditions import Reason
from muster_operator.api.models import Failover, PartitionState
from muster_operator.plan import planner
from muster_operator.plan.known import Known
from muster_operator.plan.observation import Attempt, Connection, Observation
from muster_operator.plan.planner import plan

FAILOVER = Failover(rebalance_after="10s", replace_after="20s")

POD_CHANGES: dict[str, st.SearchStrategy[Any]] = {
    "connection": st.sampled_from([*Connection, Connection.UP, Connection.UP]),
    "detail": st.sampled_from(["", "refused", "silent"]),
    "draining": st.booleans(),
    "cordoned": st.booleans(),
    "outdated": st.booleans(),
    "node_lost": st.booleans(),
    "lost_peers": st.frozensets(st.sampled_from(["c-0", "c-1", "c-2"])),
    "node": st.sampled_from(["", "a", "b"]),
    "kafka_address": st.sampled_from(["", "h:1"]),
    "ready": st.booleans(),
}
TIMES = {"steady_s": st.sampled_from([0.0, 9.0, 10.0, 19.0, 20.0, 60.0])}
VIEW_CHANGES: dict[str, st.SearchStrategy[Any]] = {
    "state": st.sampled_from([ShardState.ACTIVE, ShardState.LOADING, ShardState.FAILED, ShardState.INITIAL]),
    "epoch": st.integers(0, 3),
    "leader_epoch": st.integers(-1, 3),
    "log_id": st.sampled_from(["", "other"]),
    "log_end_offset": st.sampled_from([0, 5, 5000]),
    "leader": st.sampled_from(["", "other"]),
    "role": st.sampled_from(ReplicaRole),
    "rebuilding": st.booleans(),
    "needs_higher_epoch": st.booleans(),
    "sets_committed": st.booleans(),
    "followers": st.just(()),
}
STATUS_CHANGES: dict[str, st.SearchStrategy[Any]] = {
    "state": st.sampled_from(PartitionState),
    "leader": st.sampled_from([None, "c-0", "c-1"]),
    "epoch": st.integers(0, 3),
    "following": st.integers(0, 3),
    "learners": st.just(()),
    "conditions": st.just(()),
}
SPEC_CHANGES: dict[str, st.SearchStrategy[Any]] = {
    "preferred_leader": st.sampled_from([None, "c-1", "c-2"]),
    "replicas": st.sampled_from([(), ("c-1", "c-2", "c-3")]),
    "allow_data_loss": st.sampled_from([None, 0, 3]),
}
FAILOVER_CHANGES: dict[str, st.SearchStrategy[Any]] = {
    "rebalance_after": st.sampled_from(["0s", "10s", "15s"]),
    "replace_after": st.sampled_from(["0s", "20s", "1h"]),
}
ATTEMPTS = st.none() | st.builds(
    Attempt,
    in_flight=st.booleans(),
    held_back=st.booleans(),
    reason=st.sampled_from([None, Reason.NO_MAJORITY]),
    pod=st.sampled_from(["c-0", "c-1"]),
    refused=st.frozensets(st.sampled_from(["c-0", "c-1", "c-2"])),
)


def one_of(kind: str, changes: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[tuple[str, int, int, str, Any]]:
    """(kind, number of a pod, index of a partition, field, value)"""
    pods, indexes = st.integers(0, 3), st.integers(0, 3)
    return st.one_of(
        *(st.tuples(st.just(kind), pods, indexes, st.just(name), value) for name, value in changes.items())
    )


CHANGES = st.one_of(
    one_of("pod", TIMES),
    one_of("pod", POD_CHANGES),
    one_of("view", VIEW_CHANGES),
    one_of("status", STATUS_CHANGES),
    one_of("spec", SPEC_CHANGES),
    one_of("failover", FAILOVER_CHANGES),
    one_of("attempt", {"": ATTEMPTS}),
    one_of("later", {"": st.sampled_from([0.3, 1.0])}),
    one_of("again", {"": st.none()}),
)


def changed(seen: Observation, change: tuple[str, int, int, str, Any]) -> Observation:
    kind, number, index, name, value = change
    pods, partitions, cluster = [*seen.pods], [*seen.partitions], seen.cluster
    pod, partition = pods[number], partitions[index]
    assert cluster is not None
    if kind == "pod":
        pods[number] = with_fields(pod, **{name: value})
    elif kind == "view" and index in pod.replicas:
        view = replace(pod.replicas[index], **{name: value})
        pods[number] = with_fields(pod, replicas={**pod.replicas, index: view})
    elif kind == "status":
        partitions[index] = replace(partition, status=replace(partition.status, **{name: value}))
    elif kind == "spec":
        partitions[index] = replace(partition, spec=replace(partition.spec, **{name: value}))
    elif kind == "failover":
        failover = replace(cluster.spec.failover, **{name: value})
        cluster = replace(cluster, spec=replace(cluster.spec, failover=failover))
    elif kind == "attempt":
        rest = {each: known for each, known in seen.attempts.items() if each != partition.metadata.name}
        attempts = rest if value is None else {**rest, partition.metadata.name: value}
        return with_fields(seen, attempts=attempts)
    elif kind == "again":  # read anew: equal, and not the same objects
        partitions = [replace(each, status=replace(each.status)) for each in partitions]
        pods = [with_fields(each, replicas={at: replace(view) for at, view in each.replicas.items()}) for each in pods]
    return with_fields(seen, cluster=cluster, pods=tuple(pods), partitions=tuple(partitions))


def situations() -> tuple[Observation, ...]:
    """All is well; a pod has died; others lead in its place, and could get its replicas; it has come back."""
    model = Model(pods=4, partitions=4, replication_factor=3, steady_s=9.0)
    model.cluster = replace(model.cluster, spec=replace(model.cluster.spec, failover=FAILOVER))
    operator = Operator(model)
    operator.settle()
    well = operator.observe()
    model.stop("c-0")
    dead = operator.observe()
    operator.settle()
    replaced = operator.observe()
    model.restart("c-0")
    operator.settle()
    model.steady_s = 60.0
    return well, dead, replaced, operator.observe()


SITUATIONS = situations()


@settings(max_examples=600, deadline=None)
@given(st.sampled_from(SITUATIONS), st.lists(CHANGES, max_size=6))
def test_plan_with_what_is_known_of_the_last_one_is_the_plan_without_it(
    seen: Observation, changes: list[tuple[str, int, int, str, Any]]
) -> None:
    now, known = 100.0, Known()
    plan(seen, now, known)
    for change in changes:
        seen = changed(seen, change)
        now += change[-1] if change[0] == "later" else 0.0
        assert plan(seen, now, known) == plan(seen, now)


@pytest.fixture
def decided(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Indexes of the partitions that were decided, in their order."""
    decided: list[int] = []

    def decide(partition: Any, *rest: Any) -> Any:
        decided.append(partition.spec.index)
        return real(partition, *rest)

    real = planner.decide
    monkeypatch.setattr(planner, "decide", decide)
    return decided


def test_only_partitions_of_which_something_is_new_are_decided_anew(decided: list[int]) -> None:
    seen, known = SITUATIONS[0], Known()
    plan(seen, 100.0, known)
    assert sorted(decided) == [0, 1, 2, 3]
    decided.clear()
    plan(changed(seen, ("again", 0, 0, "", None)), 100.5, known)
    assert decided == []
    holder = next(number for number, pod in enumerate(seen.pods) if 2 in pod.replicas)
    plan(changed(seen, ("view", holder, 2, "rebuilding", True)), 100.5, known)
    assert decided == [2]
    decided.clear()
    plan(changed(seen, ("pod", 0, 0, "cordoned", True)), 100.5, known)
    assert sorted(decided) == [0, 1, 2, 3]


WAITING = Attempt(in_flight=True, held_back=False, pod="c-1")


@pytest.mark.parametrize(
    ("situation", "before", "after"),
    [
        (2, ("pod", 0, 0, "steady_s", 19.0), ("pod", 0, 0, "steady_s", 20.0)),  # away for long: replaced
        (3, ("pod", 0, 0, "steady_s", 9.0), ("pod", 0, 0, "steady_s", 10.0)),  # back for long enough: leads again
        (3, ("failover", 0, 0, "rebalance_after", "0s"), ("failover", 0, 0, "rebalance_after", "5s")),
        (1, ("attempt", 0, 0, "", WAITING), ("attempt", 0, 0, "", None)),
        (0, ("again", 0, 0, "", None), ("pod", 0, 0, "draining", True)),
        (2, ("later", 0, 0, "", 0.3), ("status", 0, 0, "conditions", ())),
    ],
)
def test_change_is_planned_for_at_once(
    situation: int, before: tuple[str, int, int, str, Any], after: tuple[str, int, int, str, Any]
) -> None:
    known, first = Known(), changed(SITUATIONS[situation], before)
    planned = plan(first, 100.0, known)
    then = changed(first, after)
    assert plan(then, 100.0, known) == plan(then, 100.0) != planned


@pytest.mark.parametrize(("connection", "counts"), [(Connection.DOWN, False), (Connection.SUSPECT, True)])
def test_what_pods_hear_of_one_another_counts_while_one_is_silent(
    decided: list[int], connection: Connection, counts: bool
) -> None:
    """The peers of a pod that died tell of it one after the other, while elections are to be called."""
    seen, known = changed(SITUATIONS[0], ("pod", 0, 0, "connection", connection)), Known()
    plan(seen, 100.0, known)
    decided.clear()
    plan(seen, 100.0, known)
    always = sorted(decided)  # what is without a leader depends on how many each pod leads
    assert len(always) < len(seen.partitions)
    for number in (1, 2, 3):
        seen = changed(seen, ("pod", number, 0, "lost_peers", frozenset({"c-0"})))
        decided.clear()
        planned = plan(seen, 100.0, known)
        assert sorted(decided) == ([0, 1, 2, 3] if counts else always)
        assert planned == plan(seen, 100.0)
