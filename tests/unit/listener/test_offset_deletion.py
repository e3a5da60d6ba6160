"""A large OffsetDelete is carried out in parts, and answered as one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.offsets.commit import unknown_first
from muster_coordinator.listener.handlers import offset_deletion
from muster_coordinator.listener.handlers.offset_deletion import OffsetDeletion, is_large
from muster_coordinator.requests.groups import OffsetDeleteRequest, OffsetDeleteResponse
from muster_coordinator.requests.slices import SLICE_ENTRIES

TOPICS = st.lists(st.tuples(st.sampled_from("tuvwx"), st.lists(st.integers(0, 9), max_size=9).map(tuple)), max_size=9)


def code_of(topic: str, partition: int) -> int:
    if (ord(topic) + partition) % 3 == 0:
        return int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return int(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC) if topic == "v" else 0


def deleted(request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    """The answer of the group to one operation."""
    codes = [(topic, tuple([(each, code_of(topic, each)) for each in parts])) for topic, parts in request.topics]
    return OffsetDeleteResponse(0, unknown_first(codes))


class Group:
    """Answers when it is told to. `asked`: the parts so far."""

    def __init__(self) -> None:
        self.asked: list[OffsetDeleteRequest] = []
        self.answers: list[Any] = []
        self.answered: list[Any] = []

    def route(self, request: OffsetDeleteRequest, answer: Any) -> None:
        self.asked.append(request)
        self.answers.append(answer)

    def answer(self, response: Any) -> None:
        self.answered.append(response)

    def refuse(self, code: ErrorCode) -> None:
        self.answered.append(code)

    def take(self, topics: Any) -> None:
        OffsetDeletion(OffsetDeleteRequest("g", tuple(topics)), self.route, self).go_on()

    def answer_all(self) -> None:
        while self.answers:
            self.answers.pop().answer(deleted(self.asked[-1]))


@given(TOPICS, st.integers(1, 20))
def test_parts_are_answered_as_the_whole(topics: Any, most: int) -> None:
    group = Group()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(offset_deletion, "SLICE_ENTRIES", most)
        group.take(topics)
        group.answer_all()
    assert group.answered == [deleted(OffsetDeleteRequest("g", tuple(topics)))]
    for each in group.asked:
        assert sum(len(parts) for _, parts in each.topics) <= most


def test_one_part_is_asked_for_at_a_time() -> None:
    group = Group()
    group.take([("t", tuple(range(3 * SLICE_ENTRIES)))])
    assert len(group.asked) == 1
    group.answers.pop().answer(deleted(group.asked[-1]))
    assert len(group.asked) == 2
    assert group.asked[1].topics[0][1][0] == len(group.asked[0].topics[0][1])


@pytest.mark.parametrize("refused", [True, False])
def test_error_of_a_part_is_that_of_the_whole(refused: bool) -> None:
    group = Group()
    group.take([("t", tuple(range(3 * SLICE_ENTRIES)))])
    group.answers.pop().answer(deleted(group.asked[-1]))
    if refused:
        group.answers.pop().refuse(ErrorCode.NOT_COORDINATOR)
    else:
        group.answers.pop().answer(OffsetDeleteResponse(ErrorCode.NON_EMPTY_GROUP))
    assert len(group.asked) == 2
    assert group.answered == [ErrorCode.NOT_COORDINATOR if refused else OffsetDeleteResponse(ErrorCode.NON_EMPTY_GROUP)]


def test_what_fits_into_a_slice_is_not_large() -> None:
    assert not is_large(OffsetDeleteRequest("g", (("t", tuple(range(SLICE_ENTRIES - 1))),)))
    assert is_large(OffsetDeleteRequest("g", (("t", tuple(range(SLICE_ENTRIES))),)))
    assert is_large(OffsetDeleteRequest("g", (("t", ()),) * (SLICE_ENTRIES + 1)))
