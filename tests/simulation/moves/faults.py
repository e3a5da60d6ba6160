"""Faults planted in production's code, each with the seeds within which it is caught."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.simulation.moves.world import Leader

from muster_coordinator.mirror.moving.back import WayBack
from muster_coordinator.mirror.moving.leases import Leases
from muster_coordinator.mirror.moving.move import Move, Step, Task
from muster_coordinator.requests.moving import LeaseAnswer, Route
from muster_gateway.route_lease import RouteLease, Way

Plant = Callable[[pytest.MonkeyPatch], None]


def decides_before_the_barrier(patch: pytest.MonkeyPatch) -> None:
    look = Move.look

    def planted(self: Move, leases: Leases, position: int, *rest: bool | int) -> Task | None:
        task = look(self, leases, position, *rest)  # type: ignore[arg-type]
        if self.step in (Step.READING, Step.PASSING):
            self.step = Step.DECIDING
            return Task.DECIDE
        return task

    patch.setattr(Move, "look", planted)


def does_not_wait_until_gateways_are_drained(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Leases, "are_drained", lambda _self, _fence, _now_ms: True)


def forgets_leases_of_the_leader_before(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Leases, "are_known", lambda _self, _now_ms: True)


def gives_no_fence_to_one_connection(patch: pytest.MonkeyPatch) -> None:
    """It is not counted as outstanding."""
    sent = RouteLease.sent

    def planted(self: RouteLease, group_id: str) -> int:
        term = sent(self, group_id)
        self._outstanding[group_id] -= 1
        if not self._outstanding[group_id]:
            del self._outstanding[group_id]
        return term

    def answered(self: RouteLease, _group_id: str, term: int, now_ms: int) -> bool:
        self._look(now_ms)
        return term == self._term

    patch.setattr(RouteLease, "sent", planted)
    patch.setattr(RouteLease, "answered", answered)


def a_gateway_keeps_an_old_route(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RouteLease, "_look", lambda _self, _now_ms: None)
    way = RouteLease.way

    def planted(self: RouteLease, group_id: str, _now_ms: int) -> Way:
        return way(self, group_id, -1) if self._until_ms >= 0 else Way.WAIT

    patch.setattr(RouteLease, "way", planted)


def passes_an_answer_after_its_lease(patch: pytest.MonkeyPatch) -> None:
    answered = RouteLease.answered
    patch.setattr(RouteLease, "answered", lambda *args: answered(*args) or True)


def counts_a_lease_from_its_answer(patch: pytest.MonkeyPatch) -> None:
    take = RouteLease.take

    def planted(self: RouteLease, answer: object, now_ms: int) -> None:
        self._asked_ms = dict.fromkeys(self._asked_ms, now_ms)
        take(self, answer, now_ms)  # type: ignore[arg-type]

    patch.setattr(RouteLease, "take", planted)


def answers_before_it_is_committed(patch: pytest.MonkeyPatch) -> None:
    """A leader of the past gives leases."""
    patch.setattr(Leader, "hold", _hold_nothing)


def _hold_nothing(self: Leader, done: Callable[[], None]) -> None:
    self._world.soon(self._replicated)
    self._world.soon(done)


def gives_up_while_the_log_decides(patch: pytest.MonkeyPatch) -> None:
    """The group is called Kafka's again, with its route under way."""
    compared = Move.compared

    def planted(self: Move, difference: str) -> Task | None:
        task = compared(self, difference)
        if task is Task.DECIDE:
            self.step = Step.GIVEN_UP
        return task

    patch.setattr(Move, "compared", planted)
    ask = Leader.ask

    def asked(self: Leader, *args: object) -> None:
        if self._move is None or self._move.step is not Step.GIVEN_UP:
            ask(self, *args)  # type: ignore[arg-type]
            return
        route, self._route = self._route, None
        ask(self, *args)  # type: ignore[arg-type]
        self._route = route

    patch.setattr(Leader, "ask", asked)


def goes_back_before_the_offsets_are_at_kafka(patch: pytest.MonkeyPatch) -> None:
    look = WayBack.look

    def planted(self: WayBack, *args: object) -> Task | None:
        task = look(self, *args)  # type: ignore[arg-type]
        if task is Task.WRITE:
            self.step = Step.DECIDING
            return Task.DECIDE
        return task

    patch.setattr(WayBack, "look", planted)


def goes_back_though_kafka_differs(patch: pytest.MonkeyPatch) -> None:
    """Commits that were under way when the offsets were written are left out."""
    compared = WayBack.compared
    patch.setattr(WayBack, "compared", lambda self, _difference: compared(self, ""))


def writes_back_without_a_fence(patch: pytest.MonkeyPatch) -> None:
    """Kafka cannot tell an earlier leader from this one: its write may come after the way back."""
    patch.setattr(Leader, "start_producer", lambda self: self._world.producer)


def does_not_confirm_that_it_leads_when_it_has_started(patch: pytest.MonkeyPatch) -> None:
    """A leader of the past starts as the producer, and writes."""
    patch.setattr(Leader, "confirm", lambda self, done: self._world.soon(done))


def lifts_the_fence_before_the_route(patch: pytest.MonkeyPatch) -> None:
    """The fence falls when nothing is outstanding any more, and gateways go on at Kafka behind the end that is read."""
    fence = Move.__dict__["fence"].fget
    patch.setattr(Move, "fence", property(lambda self: fence(self) if self.step is Step.DRAINING else None))


def waits_for_no_barrier_and_compares_nothing(patch: pytest.MonkeyPatch) -> None:
    """Each of the two finds what the other one has missed."""
    look, compared = Move.look, Move.compared

    def planted(self: Move, leases: Leases, position: int, *rest: bool | int) -> Task | None:
        return look(self, leases, max(position, self.end), *rest)  # type: ignore[arg-type]

    patch.setattr(Move, "look", planted)
    patch.setattr(Move, "compared", lambda self, _difference: compared(self, ""))


def takes_an_answer_that_was_overtaken(patch: pytest.MonkeyPatch) -> None:
    take = RouteLease.take

    def planted(self: RouteLease, answer: LeaseAnswer, now_ms: int) -> list[Route]:
        asked_ms = dict(self._asked_ms)
        routes = take(self, answer, now_ms)
        self._asked_ms = asked_ms
        return routes

    patch.setattr(RouteLease, "take", planted)


def goes_on_writing_after_the_way_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Leader, "_may_write", property(lambda self: self._route is not None))


def writes_in_rounds_during_the_way_back(patch: pytest.MonkeyPatch) -> None:
    """And the way back does not wait for them."""
    write = Leader._write

    def planted(self: Leader, then: Callable[[bool], None]) -> None:
        self._writes = False
        write(self, then)

    patch.setattr(Leader, "_write", planted)
    patch.setattr(Leader, "_is_held", property(lambda _self: False))


def goes_back_to_members_of_before(patch: pytest.MonkeyPatch) -> None:
    """The members that Kafka has had before the move are members again."""
    give_up = WayBack.give_up
    patch.setattr(WayBack, "give_up", lambda self, reason: reason != "it has members" and give_up(self, reason))


def takes_any_fence_for_its_own(patch: pytest.MonkeyPatch) -> None:
    """A gateway that has nothing outstanding behind an earlier fence is taken to have nothing behind this one."""
    are_drained = Leases.are_drained

    def planted(self: Leases, fence: int, now_ms: int) -> bool:
        return are_drained(self, fence, now_ms) or all(drained for _, drained in self._drained.values())

    patch.setattr(Leases, "are_drained", planted)


HARMLESS = {
    "the fence falls while the log decides": "a lease that is given then waits for the route, and names it",
    "a route of an older epoch is taken, or an answer of an earlier leader": "leases of a leader have ended when the"
    " next one puts a fence, so what such an answer says is not acted on",
    "the end is read before gateways are drained, or the mirror need not be there": "Kafka and the mirror are compared"
    " afterwards",
    "Kafka and the mirror are not compared": "the mirror has read up to the end that was asked for behind the fence;"
    " the comparison is for clients that come by no gateway, which are not here",
    "a leader counts leases no longer than gateways do, or a word for the leader before": "1,000 seeds find at most one"
    " that shows it: `tests/unit/mirror/test_move.py` does",
    "rounds write during the way back": "writes of a leader wait for one another, so the way back compares after them",
}
"""What is not planted, and why: mostly it cannot bite here."""

FAULTS: dict[str, tuple[Plant, int]] = {
    plant.__name__: (plant, seeds)
    for plant, seeds in (
        (decides_before_the_barrier, 20),
        (does_not_wait_until_gateways_are_drained, 20),
        (forgets_leases_of_the_leader_before, 30),
        (gives_no_fence_to_one_connection, 150),
        (a_gateway_keeps_an_old_route, 30),
        (passes_an_answer_after_its_lease, 30),
        (counts_a_lease_from_its_answer, 250),
        (answers_before_it_is_committed, 150),
        (gives_up_while_the_log_decides, 250),
        (goes_back_before_the_offsets_are_at_kafka, 20),
        (goes_back_though_kafka_differs, 60),
        (writes_back_without_a_fence, 150),
        (does_not_confirm_that_it_leads_when_it_has_started, 150),
        (lifts_the_fence_before_the_route, 60),
        (waits_for_no_barrier_and_compares_nothing, 60),
        (takes_an_answer_that_was_overtaken, 250),
        (goes_on_writing_after_the_way_back, 60),
        (writes_in_rounds_during_the_way_back, 60),
        (goes_back_to_members_of_before, 60),
        (takes_any_fence_for_its_own, 250),
    )
}
