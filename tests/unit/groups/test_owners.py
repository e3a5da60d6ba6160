"""What the comparison of the owner logs of clients finds."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.support.owners import Event, owned_now, owned_twice

A, B = ("t", 0), ("t", 1)


@dataclass
class Member:
    events: list[Event] = field(default_factory=list)
    gone_ms: int | None = None


def test_partition_that_is_given_on_before_it_was_given_back_is_found() -> None:
    first = Member([(1, "given", A), (1, "given", B), (5, "taken", A)])
    assert owned_twice([first, Member([(5, "given", A)])]) == []
    (found,) = owned_twice([first, Member([(4, "given", A)])])
    assert found == "('t', 0) was given to member 1 at 4, and member 0 has it"
    assert owned_now(first.events) == {B}


def test_member_that_is_gone_has_nothing_from_then_on() -> None:
    first = Member([(1, "given", A), (9, "lost", A)], gone_ms=4)
    assert owned_twice([first, Member([(4, "given", A)])]) == []
    assert len(owned_twice([first, Member([(3, "given", A)])])) == 1
