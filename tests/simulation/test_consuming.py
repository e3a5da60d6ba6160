"""Consumers of the new protocol: what must hold for them, each property with a run or a record that breaks it."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from tests.simulation.consuming.group import Group, Place
from tests.simulation.consuming.late import former_requests, say_late
from tests.simulation.consuming.live import LiveConsumers
from tests.simulation.consuming.log import ConsumerLog
from tests.simulation.injected import Injected
from tests.simulation.members import REBALANCE_MS, SESSION_MS, Members, Silent
from tests.simulation.profiles import draw
from tests.simulation.simulator import simulate
from tests.simulation.world import Violation

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.consumer.group import ConsumerGroup
from muster_coordinator.records.consumer_group import (
    CURRENT_TYPE,
    MEMBER_TYPE,
    METADATA_TYPE,
    TARGET_METADATA_TYPE,
    ConsumerGroupCurrentValue,
    ConsumerGroupMemberValue,
    ConsumerGroupMetadataValue,
    ConsumerGroupRecord,
    ConsumerGroupTargetMetadataValue,
    ConsumerGroupValue,
    OwnedPartitions,
)
from muster_coordinator.requests.consumer_groups import (
    LEAVING_EPOCH,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from muster_coordinator.requests.groups import (
    HeartbeatResponse,
    LeaveGroupResponse,
    LeftMember,
    OffsetCommitRequest,
    OffsetCommitResponse,
)

TOPIC_ID = b"0123456789abcdef"
A_ONLY = (OwnedPartitions(TOPIC_ID, (0,), (2,)),)
A_LATER = (OwnedPartitions(TOPIC_ID, (0,), (3,)),)


# -- the committed log ------------------------------------------------------------------------------------------------


def _value(*names: str) -> ConsumerGroupMemberValue:
    return ConsumerGroupMemberValue(None, None, "", "", names, "", -1, None)


def _current(epoch: int, assigned: Any = (), pending: Any = ()) -> ConsumerGroupCurrentValue:
    return ConsumerGroupCurrentValue(epoch, epoch - 1, 0, assigned, pending)


class _Written:
    """A log with a group of epoch 3, and its member `a`, which is at that epoch and has a partition."""

    def __init__(self) -> None:
        self.log = ConsumerLog()
        self.batch((METADATA_TYPE, "", ConsumerGroupMetadataValue(2, 1)), (MEMBER_TYPE, "a", _value()))
        self.batch(
            (METADATA_TYPE, "", ConsumerGroupMetadataValue(3, 1)),
            (TARGET_METADATA_TYPE, "", ConsumerGroupTargetMetadataValue(3, 1)),
            (CURRENT_TYPE, "a", _current(3, A_ONLY)),
        )

    def batch(self, *records: tuple[int, str, ConsumerGroupValue | None]) -> None:
        for record_type, name, value in records:
            self.log.committed(ConsumerGroupRecord(record_type, "g", name, value), 7)
        self.log.batch_ends(7)


@pytest.mark.parametrize(
    ("record", "what"),
    [
        ((METADATA_TYPE, "", ConsumerGroupMetadataValue(2, 1)), "goes back to epoch 2 from 3"),
        ((TARGET_METADATA_TYPE, "", ConsumerGroupTargetMetadataValue(2, 1)), "goes back to target 2 from 3"),
        ((TARGET_METADATA_TYPE, "", ConsumerGroupTargetMetadataValue(4, 1)), "has a target of epoch 4"),
        ((CURRENT_TYPE, "a", _current(2)), "goes back to epoch 2 from 3"),
        ((CURRENT_TYPE, "a", _current(4)), "is at 4, its target is not"),
        ((CURRENT_TYPE, "a", ConsumerGroupCurrentValue(4, 3, 1, (), A_ONLY)), "goes on to epoch 4, and has something"),
        ((CURRENT_TYPE, "a", _current(3, A_LATER)), "what it keeps has other epochs"),
        ((CURRENT_TYPE, "b", _current(3, A_ONLY)), "to a and to b"),
        ((CURRENT_TYPE, "b", _current(3, (), A_ONLY)), "to a and to b"),
        ((MEMBER_TYPE, "a", None), "forgets a in epoch 7"),
        ((MEMBER_TYPE, "a", _value("t")), "stays at epoch 3 when a subscription changes"),
        ((MEMBER_TYPE, "b", _value("t")), "stays at epoch 3 when a subscription changes"),
        ((METADATA_TYPE, "", None), "is removed with"),
    ],
)
def test_record_that_may_not_follow(record: tuple[int, str, Any], what: str) -> None:
    written = _Written()
    with pytest.raises(Violation, match=what):
        written.batch(record)


def test_member_that_was_removed_for_a_reason_may_be_missing_and_what_it_had_is_given_on() -> None:
    written = _Written()
    written.log.removed.add(("g", "a", 7))
    written.batch((MEMBER_TYPE, "a", None), (CURRENT_TYPE, "b", _current(3, A_ONLY)))
    assert written.log.removals == {("g", "a"): 1}
    written.batch((METADATA_TYPE, "", None))
    written.batch((METADATA_TYPE, "", ConsumerGroupMetadataValue(1, 1)))  # another group of this name


def _heartbeat(epoch: int, member: str = "a") -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest("g", member, epoch, None, None, -1, None, None, None, None, "", "", 1)


@pytest.mark.parametrize(
    ("said", "code", "told", "what"),
    [
        (3, ErrorCode.NONE, 4, "is told epoch 4, which is not committed"),
        (LEAVING_EPOCH, ErrorCode.NONE, LEAVING_EPOCH, "has left g, which has it still"),
        (3, ErrorCode.UNKNOWN_MEMBER_ID, 0, "turns a away in epoch 7"),
        (3, ErrorCode.GROUP_ID_NOT_FOUND, 0, "is not found, and has a"),
    ],
)
def test_answer_that_the_log_does_not_say(said: int, code: ErrorCode, told: int, what: str) -> None:
    response = ConsumerGroupHeartbeatResponse(int(code), None, "a", told)
    with pytest.raises(Violation, match=what):
        _Written().log.answered(_heartbeat(said), response, 7)


def test_commit_of_a_member_that_the_log_has_is_not_answered_as_one_of_a_stranger() -> None:
    response = OffsetCommitResponse((("t", ((0, int(ErrorCode.UNKNOWN_MEMBER_ID)),)),))
    with pytest.raises(Violation, match="turns a away"):
        _Written().log.answered(OffsetCommitRequest("g", 3, "a", None, -1, (), 9), response, 7)


# -- what a leader does -----------------------------------------------------------------------------------------------


class _Led:
    """A leader, at `now_ms`, of a group with the member `a` at epoch 3, which has something to give back."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.group = ConsumerGroup("g")
        self.group.replay(ConsumerGroupRecord(MEMBER_TYPE, "g", "a", _value()))
        waits = ConsumerGroupCurrentValue(3, 2, 1, (), A_ONLY)
        self.group.replay(ConsumerGroupRecord(CURRENT_TYPE, "g", "a", waits))
        topics = SimpleNamespace(find=lambda topic: (TOPIC_ID, 2))
        consumers = SimpleNamespace(groups={"g": self.group}, topics=topics)
        coordinator = SimpleNamespace(group=lambda group_id: None)
        shard = SimpleNamespace(monotonic_ms=lambda: self.now_ms, consumers=consumers, coordinator=coordinator)
        self.live = LiveConsumers(cast("Any", shard), ConsumerLog())
        self.live.lead_on(7)

    def removes(self, message: Any, timer: tuple[str, ...]) -> None:
        was = self.live.before("g")
        self.group.replay(ConsumerGroupRecord(MEMBER_TYPE, "g", "a", None))
        self.live.after("g", was, message, cast("Any", timer))


@pytest.mark.parametrize(
    ("at_ms", "message", "timer"),
    [
        (SESSION_MS - 100, None, ("consumer-session", "g", "a")),
        (REBALANCE_MS - 100, None, ("consumer-rebalance", "g", "a")),
        (SESSION_MS * 2, None, ("consumer-session", "g", "b")),
        (SESSION_MS * 2, _heartbeat(3), ()),
        (SESSION_MS * 2, _heartbeat(LEAVING_EPOCH, "b"), ()),
    ],
)
def test_member_that_is_removed_without_a_reason(at_ms: int, message: Any, timer: tuple[str, ...]) -> None:
    led = _Led()
    led.live.before("g")
    led.now_ms = at_ms
    with pytest.raises(Violation, match=r"of a after|removes a in epoch 7"):
        led.removes(message, timer)


@pytest.mark.parametrize(
    ("at_ms", "message", "timer"),
    [
        (SESSION_MS, None, ("consumer-session", "g", "a")),
        (REBALANCE_MS, None, ("consumer-rebalance", "g", "a")),
        (0, _heartbeat(LEAVING_EPOCH), ()),
    ],
)
def test_member_that_is_removed_with_a_reason(at_ms: int, message: Any, timer: tuple[str, ...]) -> None:
    led = _Led()
    led.live.before("g")
    led.now_ms = at_ms
    led.removes(message, timer)


def test_heartbeat_and_commit_with_the_epoch_of_the_member_are_not_refused_for_it() -> None:
    live = _Led().live
    fenced = ConsumerGroupHeartbeatResponse(int(ErrorCode.FENCED_MEMBER_EPOCH))
    live.answered({"a": 3}, _heartbeat(2), fenced)
    with pytest.raises(Violation, match="fences a, which is at its epoch 3"):
        live.answered({"a": 3}, _heartbeat(3), fenced)
    stale = OffsetCommitResponse((("t", ((0, int(ErrorCode.STALE_MEMBER_EPOCH)),)),))
    with pytest.raises(Violation, match="which has the epoch of its member"):
        live.answered({"a": 3}, OffsetCommitRequest("g", 3, "a", None, -1, (), 9), stale)


def test_who_is_behind_is_neither_fenced_nor_called_stale() -> None:
    led = _Led()
    had = (OwnedPartitions(TOPIC_ID, (0,), (2,)),)
    led.group.replay(ConsumerGroupRecord(CURRENT_TYPE, "g", "a", ConsumerGroupCurrentValue(3, 2, 0, had, ())))
    was = led.live.before("g")
    fenced = ConsumerGroupHeartbeatResponse(int(ErrorCode.FENCED_MEMBER_EPOCH))
    for epoch, has in ((2, None), (1, ()), (2, ((TOPIC_ID, (0, 1)),))):
        led.live.answered(was, msgspec.structs.replace(_heartbeat(epoch), topic_partitions=has), fenced)
    with pytest.raises(Violation, match="whose answer was lost"):
        led.live.answered(was, msgspec.structs.replace(_heartbeat(2), topic_partitions=((TOPIC_ID, (0,)),)), fenced)
    stale = OffsetCommitResponse((("t", ((0, int(ErrorCode.STALE_MEMBER_EPOCH)),)),))
    for epoch, partition in ((1, 0), (4, 0), (2, 1)):
        led.live.answered(was, _commit(epoch, partition), stale)
    with pytest.raises(Violation, match="whose member has had these since then"):
        led.live.answered(was, _commit(2, 0), stale)


def _commit(epoch: int, partition: int) -> OffsetCommitRequest:
    return OffsetCommitRequest("g", epoch, "a", None, -1, (("t", ((partition, 1, -1, None),)),), 9)


def test_member_that_is_silent_for_longer_than_its_session_is_out() -> None:
    silent = Silent()
    for silent_ms in (1_000, 1_000, 1_199, SESSION_MS, 1_000, 1_199):
        silent.look("g", "a", silent_ms)
    with pytest.raises(Violation, match="a is silent since 1200 ms, and g has it still"):
        silent.look("g", "a", 1_200)


# -- what members know ------------------------------------------------------------------------------------------------


def test_group_that_was_removed_and_made_anew_lives_another_life() -> None:
    written = _Written()
    first = written.log.life("g")
    written.log.removed.add(("g", "a", 7))
    written.batch((MEMBER_TYPE, "a", None), (METADATA_TYPE, "", ConsumerGroupMetadataValue(4, 1)))
    assert written.log.life("g") == first == 0
    written.batch((METADATA_TYPE, "", None))
    assert written.log.life("g") is None
    written.batch((METADATA_TYPE, "", ConsumerGroupMetadataValue(1, 1)))
    assert written.log.life("g") == 1


class _Member:
    is_settled = True

    def __init__(self, name: str, topics: frozenset[str], *owned: Place) -> None:
        self.name, self.topics, self.owned = name, topics, set(owned)


def _group() -> Group:
    places = {"t": 2}
    topics = SimpleNamespace(places=lambda of: {(each, i) for each in of for i in range(places.get(each, 0))})
    partition = SimpleNamespace(consumers=ConsumerLog(), members=Members(), world=SimpleNamespace(topics=topics))
    return Group("g", cast("Any", partition))


def test_partition_that_a_member_has_not_given_back_is_not_given_to_another_one() -> None:
    group = _group()
    group.takes("a", 0, [("t", 0)])
    group.takes("a", 0, [("t", 0)])
    with pytest.raises(Violation, match="to b, and a has not given it back"):
        group.takes("b", 0, [("t", 0)])
    group.gives_back("a", [("t", 0)])
    group.takes("b", 0, [("t", 0)])


def test_partition_of_a_member_that_was_removed_since_it_asked_is_not_its_own() -> None:
    group = _group()
    group.takes("a", 0, [("t", 0)])
    group.log.removals["g", "a"] += 1
    group.keeps("a", 1)  # it has joined again, and was told that it has it still
    with pytest.raises(Violation, match="to b, and a"):
        group.takes("b", 0, [("t", 0)])
    group.log.removals["g", "a"] += 1
    group.takes("b", 0, [("t", 0)])


def test_answer_that_comes_after_the_removal_gives_nothing() -> None:
    group = _group()
    group.takes("b", 0, [("t", 0)])
    group.log.removals["g", "a"] += 1
    group.takes("a", 0, [("t", 0)])
    assert group.holder(("t", 0)) == ("b", 0)


def test_processes_of_an_instance_id_come_one_after_the_other() -> None:
    group = _group()
    for member in ("a", "a", "b", "c"):
        group.is_member("i", member)
    assert group.formers("i", "c") == ["a", "b"]
    assert group.formers("i", "b") == []  # it is no member any more
    assert group.formers(None, "c") == []


@pytest.mark.parametrize(
    ("response", "is_taken"),
    [
        (HeartbeatResponse(ErrorCode.NONE), True),
        (HeartbeatResponse(ErrorCode.REBALANCE_IN_PROGRESS), True),
        (HeartbeatResponse(ErrorCode.ILLEGAL_GENERATION), False),
        (OffsetCommitResponse((("t", ((0, 0),)),)), True),
        (LeaveGroupResponse(ErrorCode.NONE, (LeftMember("a", "i", ErrorCode.NONE),)), True),
        (LeaveGroupResponse(ErrorCode.NONE, (LeftMember("a", "i", ErrorCode.FENCED_INSTANCE_ID),)), False),
        (None, False),
    ],
)
def test_what_has_no_right_any_more_is_refused(response: Any, is_taken: bool) -> None:
    calls: list[Any] = []
    world = SimpleNamespace(injected=Counter())
    caller = SimpleNamespace(world=world, call=lambda request, answered: calls.append(answered))
    say_late(cast("Any", caller), former_requests("g", "a", 3, "i")[0], lambda: calls.append("then"))
    (answered,) = calls
    if is_taken:
        with pytest.raises(Violation, match="is taken, and answered"):
            answered(response)
    else:
        answered(response)
        assert calls[-1] == "then"
    assert world.injected == {Injected.LATE_REQUEST: 1}


@pytest.mark.parametrize(
    ("members", "pending"),
    [
        ((_Member("a", frozenset("t"), ("t", 0)), _Member("b", frozenset("t"), ("t", 1))), ""),
        ((_Member("a", frozenset("t"), ("t", 0)), _Member("b", frozenset("t"))), "nobody in g has [('t', 1)]"),
        (
            (_Member("a", frozenset("t"), ("t", 0), ("t", 1)), _Member("b", frozenset("t"), ("t", 1))),
            "b and a have ('t', 1)",
        ),
        ((_Member("a", frozenset("u"), ("t", 0)),), "a has ('t', 0), and does not subscribe to it"),
    ],
)
def test_group_is_settled_when_each_partition_has_one_owner_that_subscribes(
    members: tuple[_Member, ...], pending: str
) -> None:
    group = _group()
    group.members.extend(members)
    assert group.pending() == pending


# -- runs -------------------------------------------------------------------------------------------------------------


def test_one_of_six_seeds_has_consumers_of_both_protocols_that_do_all_that_they_may() -> None:
    drawn = [options for options in map(draw, range(400)) if options.consumers]
    assert 1 / 10 < len(drawn) / 400 < 1 / 4
    assert all(options.members > 0 and not options.operating for options in drawn)
    struck: Counter[Injected] = Counter()
    for options in drawn[:6]:
        struck += simulate(options).injected
    wanted = {
        Injected.TOPIC_GREW,
        Injected.MEMBER_ENDED,
        Injected.MEMBER_STALLED,
        Injected.MEMBER_HUNG,
        Injected.SUBSCRIPTION_CHANGED,
        Injected.LATE_COMMIT,
        Injected.LATE_REQUEST,
    }
    assert wanted <= set(struck)
