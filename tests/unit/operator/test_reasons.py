"""Every reason says what it means, is in the docs, and is reached by a test."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import replace as with_fields
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.unit.operator.model import Model, Operator

from muster_coordinator.states import ShardState
from muster_operator.api.conditions import ConditionType, Reason
from muster_operator.api.models import ObjectMeta, OffsetsPartition, OffsetsPartitionSpec, TopicRef
from muster_operator.plan.actions import Elect, WriteClusterStatus, WritePartitionStatus, WriteTopicStatus
from muster_operator.plan.observation import Attempt, Connection
from muster_operator.plan.planner import plan

ROOT = Path(__file__).parents[3]


def rendered() -> tuple[dict[str, str], dict[str, str], str]:
    """(conditions and reasons with their meaning, the page) as hack/render_reasons.py has them."""
    spec = importlib.util.spec_from_file_location("render_reasons", ROOT / "hack" / "render_reasons.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.meanings("ConditionType"), module.reasons(), module.page()


def test_page_is_what_the_code_says_and_every_reason_has_a_meaning() -> None:
    conditions, reasons, page = rendered()
    assert {*conditions} == {each.value for each in ConditionType}
    assert {*reasons} == {each.value for each in Reason}
    assert [word for word, text in {**conditions, **reasons}.items() if not text] == []
    assert (ROOT / "docs" / "reasons.md").read_text(encoding="utf-8") == page, "hack/render_reasons.py --write"


def named(node: ast.AST) -> Iterator[str]:
    """Reasons in an expression: their words, or members of the enum."""
    for each in ast.walk(node):
        if isinstance(each, ast.Constant) and isinstance(each.value, str):
            yield each.value
        elif isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name) and each.value.id == "Reason":
            yield Reason[each.attr]


def asserted(test: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    """What a test asserts or waits for, also by its parameters. A reason that is only given to something counts not."""
    for each in (*test.decorator_list, *ast.walk(test)):
        waits = isinstance(each, ast.Call) and getattr(each.func, "attr", "") == "wait_for_reason"
        if waits or isinstance(each, ast.Assert | ast.Compare) or each in test.decorator_list:
            yield from named(each)


def test_every_reason_is_reached_by_a_test() -> None:
    found: dict[str, set[str]] = {each.value: {"a scenario"} for each in SCENARIOS}
    for file in (ROOT / "tests").rglob("test_*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                for word in asserted(node):
                    found.setdefault(word, set()).add(node.name)
    assert {each.value: sorted(found.get(each.value, ())) for each in Reason if each.value not in found} == {}


class Watched:
    """All reasons that operators write or call with."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.reasons: set[str] = set()
        self._operators = 1

    def settle(self, rounds: int = 40) -> Watched:
        """A new operator, until it is done."""
        self._operators += 1
        operator = Operator(self.model, token=self._operators)
        for _ in range(rounds):
            if not operator.replan():
                break
            while operator.todo:
                self.note(operator.todo[0])
                operator.act()
        return self

    def note(self, action: object) -> None:
        if isinstance(action, Elect):
            self.reasons.add(action.reason)
        if isinstance(action, WriteClusterStatus | WriteTopicStatus | WritePartitionStatus):
            self.reasons |= {each.reason for each in action.status.conditions}

    def look(self, **changes: object) -> Watched:
        """One plan of what an operator would see with these `changes` of the observation."""
        seen = with_fields(Operator(self.model, token=99).observe(), **changes)  # type: ignore[arg-type]
        for action in plan(seen, 1.0):
            self.note(action)
        return self


def served(pods: int = 3, partitions: int = 2) -> Watched:
    return Watched(Model(pods=pods, partitions=partitions, replication_factor=3)).settle()


def first_start() -> Watched:
    watched = Watched(Model(partitions=2, replication_factor=3))
    return watched.look(pods=()).settle()


def partition_of_no_topic() -> Watched:
    watched = served()
    lost = OffsetsPartition(ObjectMeta("x-0", "ns", "x"), OffsetsPartitionSpec(TopicRef("nobody"), 0))
    partitions = (*Operator(watched.model).observe().partitions, lost)
    return watched.look(partitions=partitions)


def partition_twice_and_out_of_range() -> Watched:
    watched = served()
    twice = OffsetsPartition(
        ObjectMeta("t-twice", "ns", "y", creation_timestamp="2030"), OffsetsPartitionSpec(TopicRef("t"), 0)
    )
    beyond = OffsetsPartition(ObjectMeta("t-9", "ns", "z"), OffsetsPartitionSpec(TopicRef("t"), 9))
    return watched.look(partitions=(*Operator(watched.model).observe().partitions, twice, beyond))


def nominated_and_loading() -> Watched:
    """A replica has nominated itself, and no operator knows the epoch."""
    watched = served(partitions=1)
    model = watched.model
    status = model.objects["t-0"].status
    other = next(replica.pod for replica in status.replicas if replica.pod != status.leader)
    model.running[other].slow.add(0)
    Operator(model, token=2)._elect(
        Elect("t-0", 0, other, 5, tuple(replica.log_id for replica in status.replicas), force=True)
    )
    return watched.settle()


def another_factor() -> Watched:
    watched = served()
    watched.model.topic = replace(watched.model.topic, spec=replace(watched.model.topic.spec, replication_factor=1))
    return watched.settle(60)


def promised_elsewhere() -> Watched:
    watched = served(partitions=1)
    model = watched.model
    leader = model.objects["t-0"].status.leader
    other = next(name for name in model.running if name != leader)
    model.running[other].promise_elsewhere(0, 7)
    return watched.settle()


def stale_epoch() -> Watched:
    """No event has told of the promise of a replica that is asked."""
    watched = served(partitions=1)
    model = watched.model
    leader = model.objects["t-0"].status.leader or ""
    model.stop(leader)
    operator = Operator(model, token=9)
    operator.replan()
    for name, pod in model.running.items():
        if name != leader:
            pod.promise_elsewhere(0, 7)
    while operator.todo:
        operator.act()
    watched.reasons |= {each.reason for each in operator.attempts.values() if each.reason is not None}
    return watched


def answered(prepare: Callable[[Model, str, str], None]) -> Watched:
    """The first pod that is elected after the loss of the leader refuses."""
    watched = served(partitions=1)
    model = watched.model
    status = model.objects["t-0"].status
    leader = status.leader or ""
    first, second = (replica.pod for replica in status.replicas if replica.pod != leader)
    operator = Operator(model, token=9)
    seen = operator.observe()
    down = tuple(with_fields(pod, connection=Connection.DOWN) if pod.name == leader else pod for pod in seen.pods)
    operator.todo = [*plan(with_fields(seen, pods=down), 1.0)]
    prepare(model, first, second)
    while operator.todo:
        operator.act()
    watched.reasons |= {each.reason for each in operator.attempts.values() if each.reason is not None}
    return watched


def leader_lives() -> Watched:
    return answered(lambda model, first, second: None)


def better_log() -> Watched:
    def prepare(model: Model, first: str, second: str) -> None:
        model.stop(model.objects["t-0"].status.leader or "")
        model.running[second].volume.replicas[0].end_offset += 5

    return answered(prepare)


def set_conflict() -> Watched:
    watched = served(pods=4, partitions=1)
    model = watched.model
    model.loss_allowed = True  # somebody restored an old record
    status = model.objects["t-0"].status
    wrong = tuple(replace(one, log_id=f"wrong-{one.log_id}") for one in status.replicas[2:])
    model.put("t-0", replace(status, replicas=(*status.replicas[:2], *wrong), leader=None, epoch=0))
    for name in [*model.running]:
        model.restart(name)
    return watched.settle()


def reshard(*, taken_back: bool) -> Watched:
    watched = served()
    model = watched.model
    model.ask(3)
    watched.settle(60)
    if taken_back:
        model.ask(None)
    for pod in model.running.values():
        for index in range(2, 5):
            pod.fill(index, 2)
    return watched.settle(60)


def load_failed() -> Watched:
    """The pod that was elected could not replay its log, and the next call has to wait."""
    watched = served(partitions=1)
    seen = Operator(watched.model, token=99).observe()
    leader = watched.model.objects["t-0"].status.leader or ""
    failed = tuple(
        with_fields(pod, replicas={0: replace(pod.replicas[0], state=ShardState.FAILED, reason="LoadFailed")})
        for pod in seen.pods
    )
    attempt = Attempt(in_flight=False, held_back=True, pod=leader)
    return watched.look(pods=failed, attempts={"t-0": attempt})


SCENARIOS: dict[Reason, Callable[[], Watched]] = {
    Reason.CREATING_PODS: first_start,
    Reason.CREATING_PARTITIONS: first_start,
    Reason.PARTITIONS_LEADERLESS: first_start,
    Reason.TOPIC_NOT_FOUND: partition_of_no_topic,
    Reason.DUPLICATE_INDEX: partition_twice_and_out_of_range,
    Reason.INDEX_OUT_OF_RANGE: partition_twice_and_out_of_range,
    Reason.LOADING: nominated_and_loading,
    Reason.CHANGING_REPLICAS: another_factor,
    Reason.NEEDS_HIGHER_EPOCH: promised_elsewhere,
    Reason.STALE_EPOCH: stale_epoch,
    Reason.LEADER_LIVES: leader_lives,
    Reason.BETTER_LOG: better_log,
    Reason.SET_CONFLICT: set_conflict,
    Reason.RESHARD_PREPARING: lambda: reshard(taken_back=False),
    Reason.RESHARD_FENCING: lambda: reshard(taken_back=False),
    Reason.RESHARD_COPYING: lambda: reshard(taken_back=False),
    Reason.RESHARD_OPENING: lambda: reshard(taken_back=False),
    Reason.RESHARD_ABORTING: lambda: reshard(taken_back=True),
    Reason.RETIRED: lambda: reshard(taken_back=False),
    Reason.LOAD_FAILED: load_failed,
}


@pytest.mark.parametrize("reason", SCENARIOS, ids=lambda reason: reason.value)
def test_reason_is_said_when_that_happens(reason: Reason) -> None:
    assert reason in SCENARIOS[reason]().reasons
