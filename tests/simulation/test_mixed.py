"""Groups of both protocols: what must hold when they change their kind, each property with records that break it."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.simulation.consuming.assigning import assign, read_places, subscription
from tests.simulation.consuming.log import ConsumerLog
from tests.simulation.injected import Injected
from tests.simulation.members import Members
from tests.simulation.profiles import draw
from tests.simulation.simulator import simulate
from tests.simulation.world import Violation

from muster_coordinator.records.consumer_group import (
    MEMBER_TYPE,
    METADATA_TYPE,
    ConsumerGroupMemberValue,
    ConsumerGroupMetadataValue,
    ConsumerGroupRecord,
)
from muster_coordinator.records.group_metadata import GroupMember, GroupMetadataValue
from muster_coordinator.requests.groups import JoinGroupMember

EPOCH = 7  # of the leader
VALUE = ConsumerGroupMemberValue(None, None, "", "", (), "", -1, None)


def _classic(generation: int, *members: str) -> GroupMetadataValue:
    written = tuple(GroupMember(name, None, "", "", 1, 1, b"", b"") for name in members)
    return GroupMetadataValue("consumer", generation, "range", None, 0, written)


def _consumers(*members: str) -> ConsumerLog:
    """A group of epoch 3."""
    log = ConsumerLog()
    for name in members:
        log.committed(ConsumerGroupRecord(MEMBER_TYPE, "g", name, VALUE), EPOCH)
    log.committed(ConsumerGroupRecord(METADATA_TYPE, "g", "", ConsumerGroupMetadataValue(3, 1)), EPOCH)
    assert log.batch_ends(EPOCH) == 0
    return log


def _tombstones(log: ConsumerLog, *members: str) -> None:
    for name in members:
        log.committed(ConsumerGroupRecord(MEMBER_TYPE, "g", name, None), EPOCH)
    log.committed(ConsumerGroupRecord(METADATA_TYPE, "g", "", None), EPOCH)


def test_members_of_a_consumer_group_that_becomes_a_classic_one_stay() -> None:
    log = _consumers("a", "b", "c")
    log.removed.add(("g", "c", EPOCH))
    _tombstones(log, "a", "b", "c")
    log.became_classic("g", _classic(3, "a", "b"), EPOCH)
    assert log.batch_ends(EPOCH) == 1
    assert log.removals == {("g", "c"): 1}


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (_classic(2, "a", "b"), "becomes a classic group of generation 2, after 3"),
        (_classic(3, "a"), "forgets b in epoch 7"),
        (None, "forgets a in epoch 7"),
    ],
)
def test_downgrade_that_may_not_be(value: GroupMetadataValue | None, what: str) -> None:
    log = _consumers("a", "b")
    _tombstones(log, "a", "b")

    def commit() -> None:
        if value is not None:
            log.became_classic("g", value, EPOCH)
        log.batch_ends(EPOCH)

    with pytest.raises(Violation, match=what):
        commit()


def test_members_of_a_classic_group_that_becomes_a_consumer_group_stay() -> None:
    members = Members()
    members.committed("g", _classic(3, "a", "b"), EPOCH)
    members.committed("g", None, EPOCH)
    assert members.became_consumers("g", 3, {"a", "b", "c"}, EPOCH)
    members.batch_ends(EPOCH)
    assert not members.removals


def test_member_of_a_classic_group_that_did_not_join_anew_may_be_missing_after_an_upgrade() -> None:
    members = Members()
    members.committed("g", _classic(3, "a", "b"), EPOCH)
    members.committed("g", None, EPOCH)
    with pytest.raises(Violation, match=r"g forgot \['b'\] of generation 3 in epoch 7"):
        members.became_consumers("g", 3, {"a"}, EPOCH)
    members.committed("g", _classic(3, "a", "b"), EPOCH)
    members.committed("g", None, EPOCH)
    members.removed.add(("g", "b", EPOCH))
    assert members.became_consumers("g", 3, {"a"}, EPOCH)
    assert members.removals == {("g", "b"): 1}


def test_upgrade_that_may_not_be() -> None:
    members = Members()
    members.committed("g", _classic(3, "a"), EPOCH)
    members.committed("g", None, EPOCH)
    with pytest.raises(Violation, match="becomes a consumer group of epoch 2, after generation 3"):
        members.became_consumers("g", 2, {"a"}, EPOCH)
    members.committed("g", _classic(3, "a"), EPOCH)
    members.committed("g", None, EPOCH)
    with pytest.raises(Violation, match="of generation 3 is removed with"):
        members.batch_ends(EPOCH)


def test_static_member_that_missed_a_rebalance_has_nothing_any_more() -> None:
    members = Members()
    members.missed.add(("g", "a", 3))
    members.committed("g", _classic(3, "a", "b"), EPOCH)
    assert members.removals == {("g", "a"): 1}


def test_leader_gives_nobody_what_another_member_has() -> None:
    eager = JoinGroupMember("a", None, subscription(("t",), (), cooperative=False))
    cooperative = JoinGroupMember("b", None, subscription(("t", "u"), [("t", 0)], cooperative=True))
    given = {member: read_places(data) for member, data in assign((eager, cooperative), {"t": 2, "u": 1})}
    assert given == {"a": set(), "b": {("t", 1), ("u", 0)}}


def test_one_of_six_seeds_has_groups_of_both_protocols_that_do_all_that_they_may() -> None:
    drawn = [options for options in map(draw, range(400)) if options.mixed]
    assert 1 / 10 < len(drawn) / 400 < 1 / 4
    assert not any(options.members or options.operating or options.consumers for options in drawn)
    struck: Counter[Injected] = Counter()
    for options in drawn[:6]:
        struck += simulate(options).injected
    wanted = {
        Injected.PROTOCOL_CHANGED,
        Injected.KIND_CHANGED,
        Injected.MEMBER_ENDED,
        Injected.MEMBER_HUNG,
        Injected.LATE_COMMIT,
    }
    assert wanted <= set(struck)
