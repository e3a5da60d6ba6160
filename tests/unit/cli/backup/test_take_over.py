"""What `muster backup take-over` refuses, and what it asks. Histories in tests/simulation/sites test its order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from muster_cli.backup.take_over import Done, Look, Point, TakeOver
from muster_cli.errors import CliError
from muster_coordinator.podapi.models import SiteStatus
from muster_coordinator.sites.address import open_claims

NEWEST, LAST = Point("b1", 1_000), Point("b2", 2_000)


@dataclass
class World:
    """The old site, the store, and a person."""

    store: Path
    seen: Mapping[str, SiteStatus | None] = field(default_factory=lambda: {"a-0": SiteStatus("east", held=False)})
    seen_later: Mapping[str, SiteStatus | None] | None = None
    silent: tuple[str, ...] = ()
    trouble: str = ""
    told: list[str] = field(default_factory=list)
    looks: int = 0
    fails: str = ""
    newest_is: Point | None = NEWEST
    agrees: bool = True
    asked: list[tuple[int, str]] = field(default_factory=list)
    used: list[Point] = field(default_factory=list)
    slept_s: float = 0.0

    def run(self, site: str) -> Done:
        return TakeOver(
            open_claims(str(self.store)),
            self,
            self,
            lease_ms=10_000,
            now_ms=lambda: 5,
            sleep=self._sleep,
            agree=self._agree,
            tell=self.told.append,
        ).run(site)

    def holders(self) -> list[str]:
        return [claim.site for claim in open_claims(str(self.store)).all()]

    def look(self) -> Look:
        self.looks += 1
        return Look(self.seen, self.silent, self.trouble)

    def sites(self) -> Mapping[str, SiteStatus | None]:
        return self.seen if self.seen_later is None else self.seen_later

    def back_up(self) -> Point:
        assert self.slept_s > 10.9
        if self.fails:
            raise CliError(self.fails)
        return LAST

    def newest(self) -> Point | None:
        return self.newest_is

    def use(self, point: Point) -> None:
        self.used.append(point)

    def _sleep(self, seconds: float) -> None:
        self.slept_s += seconds

    def _agree(self, since_ms: int, trouble: str) -> bool:
        self.asked.append((since_ms, trouble))
        return self.agrees


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    assert world.run("east") == Done("east", 1)
    return world


def test_first_claim_fences_nobody_and_is_asked_for_once(world: World) -> None:
    assert world.run("east") == Done("east", 1)
    assert (world.holders(), world.slept_s, world.asked) == (["east"], 0, [])


def test_old_site_that_answers_is_backed_up_last_and_nobody_is_asked(world: World) -> None:
    done = world.run("west")
    assert (done.term, done.came_from, done.backup, done.may_lack_since_ms) == (3, "east", "b2", None)
    assert (world.holders(), world.used, world.asked) == (["east", "", "west"], [LAST], [])


def test_silent_site_is_fenced_only_if_the_loss_is_accepted(world: World) -> None:
    world.seen, world.trouble, world.agrees = {}, "no pod runs", False
    with pytest.raises(CliError, match="nothing was taken over"):
        world.run("west")
    assert (world.holders(), world.asked) == (["east"], [(1_000, "no pod runs")])
    world.agrees = True
    done = world.run("west")
    assert (done.backup, done.may_lack_since_ms, world.holders()) == ("b1", 1_000, ["east", "", "west"])
    assert world.slept_s > 10.9


def test_site_that_dies_after_the_fence_is_asked_about_and_can_have_its_right_back(world: World) -> None:
    world.fails, world.agrees = "no cut", False
    with pytest.raises(CliError, match="nothing was taken over"):
        world.run("west")
    assert world.holders() == ["east", ""]
    assert world.run("east") == Done("east", 3)
    world.agrees, world.slept_s = True, 0.0
    assert world.run("west").may_lack_since_ms == 1_000
    assert world.holders() == ["east", "", "east", "", "west"]


def test_site_that_gets_its_right_back_goes_on_from_the_same_backup(world: World) -> None:
    world.run("west")
    world.seen, world.fails, world.agrees = {"b-0": SiteStatus("west", held=False)}, "no cut", False
    with pytest.raises(CliError, match="nothing was taken over"):
        world.run("north")
    world.run("west")
    claims = open_claims(str(world.store)).all()
    assert [(claim.site, claim.backup) for claim in claims[2:]] == [("west", "b2"), ("", ""), ("west", "b2")]


def test_silent_site_without_a_backup_is_not_taken_over(world: World) -> None:
    world.trouble, world.newest_is = "no pod runs", None
    with pytest.raises(CliError, match="there is nothing to go on from"):
        world.run("west")
    assert world.holders() == ["east"]


@pytest.mark.parametrize(
    ("status", "told"), [(None, "is of no site"), (SiteStatus("north", held=False), "is of site north")]
)
def test_pod_that_would_not_be_fenced_stops_it(world: World, status: SiteStatus | None, told: str) -> None:
    world.seen, world.trouble = {**world.seen, "a-1": status}, "a-2 is silent"
    with pytest.raises(CliError, match=f"pod a-1 {told}, and would not be fenced"):
        world.run("west")
    assert world.holders() == ["east"]


def test_silent_pod_of_a_site_that_answers_costs_nothing_and_is_named(world: World) -> None:
    world.silent = ("a-1",)
    assert world.run("west").may_lack_since_ms is None
    assert (world.holders(), world.used, world.asked) == (["east", "", "west"], [LAST], [])
    assert "no answer from a-1: fenced like the others if it has muster.site=east@STORE" in world.told[0]


def test_old_site_is_looked_at_as_a_whole_only_once(world: World) -> None:
    world.run("west")
    assert world.looks == 1


def test_pod_that_was_silent_and_turns_out_to_be_of_no_site_stops_it(world: World) -> None:
    world.silent, world.seen_later = ("a-1",), {**world.seen, "a-1": None}
    with pytest.raises(CliError, match="pod a-1 is of no site, and would not be fenced"):
        world.run("west")
    assert world.holders() == ["east", ""]


def test_pod_that_answers_after_its_lease_stops_it(world: World) -> None:
    world.seen = {"a-0": SiteStatus("east", held=True)}
    with pytest.raises(CliError, match="although its lease has ended"):
        world.run("west")
    assert world.holders() == ["east", ""]


def test_name_is_not_used_twice(world: World) -> None:
    world.run("west")
    world.seen = {"b-0": SiteStatus("west", held=False)}
    with pytest.raises(CliError, match="another name, such as east-3"):
        world.run("east")
