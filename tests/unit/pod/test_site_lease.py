"""A pod of a site answers clients while its lease holds, and not a byte later."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

import pytest
from tests.unit.listener.clients import Clients, frame

from muster_coordinator.pod.site_lease import SiteLease
from muster_coordinator.sites.address import Site
from muster_coordinator.sites.claims import Claim, ClaimError, Claims

LEASE_S = 10.0


@dataclass
class World:
    """A store with one claim, a clock, and a pod of site east with two clients."""

    now_s: float = 100.0
    claim: Claim | None = None
    problem: str = ""
    reads_take_s: float = 0.0
    origin: str = ""
    changes: list[bool] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.site = SiteLease(Site("east", "/"), self.origin, cast(Claims, self), lambda: self.now_s, self._changed)
        self.clients = Clients(2)
        self.clients.state.may_answer = self.site.may_answer
        for connection in self.clients.connections:
            connection.answers._may_answer = self.site.may_answer
        self.site._close = self.clients.state.abort_all

    def _changed(self) -> None:
        self.changes.append(self.site.status.held)

    def newest(self) -> Claim | None:
        self.now_s += self.reads_take_s
        if self.problem:
            raise ClaimError(self.problem)
        return self.claim

    async def answered(self, number: int = 0) -> bool:
        self.clients.connections[number].data_received(frame())
        await self.clients.turns()
        transport = self.clients.transports[number]
        found = bool(transport.written)
        transport.written.clear()
        return found

    @property
    def closed(self) -> list[bool]:
        return [transport.is_closed for transport in self.clients.transports]


def claim(term: int, site: str, backup: str = "") -> Claim:
    return Claim(term, site, int(LEASE_S * 1000), 5, backup)


@pytest.fixture
async def world() -> World:
    return World(claim=claim(1, "east"))


async def test_pod_answers_from_its_first_read_to_the_end_of_the_lease(world: World) -> None:
    assert not world.site.status.held
    world.reads_take_s = 3.0
    await world.site.read()
    assert await world.answered()
    world.now_s = 100.0 + LEASE_S - 0.01  # from the begin of the read
    assert await world.answered()
    world.now_s = 100.0 + LEASE_S
    assert not await world.answered()  # nobody has looked since
    assert world.closed == [True, False]
    world.site.look()
    assert (world.closed, world.changes) == ([True, True], [True, False])


async def test_fenced_pod_closes_all_connections_before_it_says_so(world: World) -> None:
    await world.site.read()
    world.claim = claim(2, "")
    closed_when_told: list[list[bool]] = []
    world.site._changed = lambda: closed_when_told.append(world.closed)
    await world.site.read()
    assert closed_when_told == [[True, True]]
    assert (world.site.status.held, world.site.status.problem) == (False, "a take-over is under way")
    world.claim = claim(3, "west")
    await world.site.read()
    assert (world.site.status.holder, world.site.status.problem) == ("west", "site west has taken over")


async def test_new_connection_of_a_fenced_pod_is_closed_and_counted(world: World) -> None:
    late = world.clients.connections[0]
    late.connection_made(world.clients.transports[0])  # type: ignore[arg-type]
    assert world.closed[0]
    assert world.clients.state.connection_errors["other_site"] == 1


async def test_pod_that_cannot_read_the_store_says_why_when_its_lease_is_over(world: World) -> None:
    await world.site.read()
    world.problem = "no route"
    await world.site.read()
    assert world.site.status.held
    world.now_s += LEASE_S
    await world.site.read()
    assert "could not be read for as long as the lease is: no route" in world.site.status.problem
    world.problem = ""
    await world.site.read()
    assert world.site.status.held


async def test_store_that_has_lost_a_claim_gives_no_right_back(world: World) -> None:
    await world.site.read()
    lost, world.claim = world.claim, claim(2, "west")
    await world.site.read()
    for older in (lost, None):
        world.claim = older
        await world.site.read()
        assert (world.site.status.held, world.site.status.term) == (False, 2)


async def test_store_without_a_claim_lets_nobody_answer(world: World) -> None:
    world.claim = None
    await world.site.read()
    assert not world.site.may_answer()
    assert "take-over` writes the first one" in world.site.status.problem


@pytest.mark.parametrize(
    ("origin", "backup", "held"),
    [("", "b2", True), ("b1", "", True), ("b1", "b2", False), ("b2", "b2", True), ("b3", "b2", True)],
)
async def test_data_of_a_backup_before_that_of_the_claim_is_shown_to_nobody(
    origin: str, backup: str, held: bool
) -> None:
    """An older backup is that of a site that was made in advance; a later one is what the site was when it was lost."""
    world = World(origin=origin, claim=claim(3, "east", backup))
    await world.site.read()
    assert (world.site.may_answer(), world.site.status.held) == (held, held)
    told = "restored from b1, and site east goes on from b2: restore that backup or a later one"
    assert (told in world.site.status.problem) is not held
