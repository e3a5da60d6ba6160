"""LeaveGroup. Origin: testLeaveGroup*, staticMembersBatchLeave*, pendingMember*Leave* of GroupCoordinatorTest."""

from __future__ import annotations

import pytest
from tests.unit.groups.harness import Harness, Pending

from muster_coordinator.errors import ErrorCode


@pytest.fixture
def h() -> Harness:
    return Harness()


def codes(leave: Pending) -> list[int]:
    assert leave.code == ErrorCode.NONE
    return [int(member.error_code) for member in leave.response.members]


def test_empty_group_id_is_invalid(h: Harness) -> None:
    assert h.leave("", "m").code == ErrorCode.INVALID_GROUP_ID


def test_unknown_group_answers_every_member(h: Harness) -> None:
    assert codes(h.leave("g", "a", ("", "i"))) == [ErrorCode.UNKNOWN_MEMBER_ID] * 2


def test_last_member_leaves_an_empty_group(h: Harness) -> None:
    """[testValidLeaveGroup]"""
    (member,) = h.stable_group()
    assert codes(h.leave("g", member)) == [0]
    assert (h.state(), h.group().generation) == ("Empty", 2)
    assert h.timers.keys() == {("expire-offsets", "", "")}


def test_member_that_leaves_makes_the_others_rebalance(h: Harness) -> None:
    leader, follower = h.stable_group(members=2)
    h.leave("g", follower)
    assert h.state() == "PreparingRebalance"
    assert h.join("g", leader).response.generation_id == 2


def test_batch_is_answered_per_member(h: Harness) -> None:
    """[staticMembersValidBatchLeaveGroup, UnknownInstance, Fenced, partially valid]"""
    _, follower = h.static_group()
    leave = h.leave("g", ("", "leader"), ("", "nobody"), ("wrong", "follower"), ("ghost", None), (follower, "follower"))
    assert codes(leave) == [0, 25, 82, 25, 0]
    assert [member.member_id for member in leave.response.members] == ["", "", "wrong", "ghost", follower]
    assert h.state() == "Empty"


def test_batch_causes_one_rebalance(h: Harness) -> None:
    h.static_group(instances=("a", "b", "c"))
    h.leave("g", ("", "a"), ("", "b"))
    assert (h.state(), len(h.group().members)) == ("PreparingRebalance", 1)


def test_member_named_twice_leaves_once(h: Harness) -> None:
    (member,) = h.stable_group()
    assert codes(h.leave("g", member, member)) == [0, 25]


def test_pending_member_leaves(h: Harness) -> None:
    """[testPendingMembersLeavesGroup]: the join phase that waited for it ends"""
    (leader,) = h.stable_group()
    pending = h.join().response.member_id
    again = h.join("g", leader)
    assert again.parked
    assert codes(h.leave("g", pending)) == [0]
    assert again.code == ErrorCode.NONE
    assert not h.group().pending_members


def test_pending_members_leave_in_a_batch(h: Harness) -> None:
    """[testPendingMemberBatchLeaveGroup]"""
    pending = h.join().response.member_id
    assert codes(h.leave("g", pending, "ghost")) == [0, 25]
    assert h.state() == "Empty"


def test_parked_join_of_a_member_that_leaves_is_answered(h: Harness) -> None:
    leader, follower = h.stable_group(members=2)
    parked = h.join("g", leader)
    h.leave("g", leader)
    assert (parked.code, parked.response.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "")
    assert h.join("g", follower).response.leader == follower


def test_parked_sync_of_a_member_that_leaves_is_answered(h: Harness) -> None:
    """Kafka 4.1 never answers it (reference, section 11)."""
    joins = [h.join_dynamic() for _ in range(2)]
    h.finish_initial_delay()
    follower = joins[1].response.member_id
    parked = h.sync("g", 1, follower)
    h.leave("g", follower)
    assert parked.code == ErrorCode.UNKNOWN_MEMBER_ID


def test_leave_while_members_join_completes_the_rebalance(h: Harness) -> None:
    """A group that forgets to end its join phase here is stuck (KoP pull request 380)."""
    leader, follower = h.stable_group(members=2)
    again = h.join("g", leader)
    h.leave("g", follower)
    assert again.code == ErrorCode.NONE


def test_leave_during_the_initial_delay_waits_for_its_end(h: Harness) -> None:
    first, second = h.join_dynamic(), h.join_dynamic()
    h.leave("g", "client-001")
    assert first.code == ErrorCode.UNKNOWN_MEMBER_ID
    assert second.parked
    h.finish_initial_delay()
    assert second.response.leader == "client-002"


def test_all_leave_during_the_initial_delay(h: Harness) -> None:
    h.join_dynamic()
    h.leave("g", "client-001")
    assert h.state() == "PreparingRebalance"
    h.advance(3_000)
    assert (h.state(), h.group().generation) == ("Empty", 1)
