"""Planted faults: each breaks one thing that the protocol rests on, and must be found."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from tests.simulation.sites import run, world

from muster_cli.backup import take_over
from muster_cli.backup.take_over import Done, TakeOver
from muster_coordinator.sites.claims import Claim, Claims
from muster_coordinator.sites.lease import Lease

Plant = Callable[[pytest.MonkeyPatch], None]


def _answer_is_not_checked(patch: pytest.MonkeyPatch) -> None:
    def answer(self: world.Pod, offset: int, was_allowed: bool) -> None:
        if was_allowed:
            self._cluster.acked.append(offset)
            self._world.acknowledged(self._cluster)

    patch.setattr(world.Pod, "answer", answer)


def _term_is_not_compared(patch: pytest.MonkeyPatch) -> None:
    def read(self: Lease, claim: Claim | None, asked_s: float) -> None:
        self.claim = None
        original(self, claim, asked_s)

    original = Lease.read
    patch.setattr(Lease, "read", read)


def _lease_begins_with_the_answer(patch: pytest.MonkeyPatch) -> None:
    def read(self: world.Pod, claims: Claims, asked_s: float) -> None:
        del asked_s
        newest = claims.newest()
        self._later(self.latency(), lambda: self.lease.read(newest, self.machine.running_s()))

    patch.setattr(world.Pod, "read", read)


def _clock_of_the_wall(patch: pytest.MonkeyPatch) -> None:
    def running_s(self: world.Machine) -> float:
        set_back = self._world.random.choice((0.0, 0.0, 0.0, 30.0)) if int(self._world.now) % 20 > 10 else 0.0
        return original(self) - set_back

    original = world.Machine.running_s
    patch.setattr(world.Machine, "running_s", running_s)


def _clock_stands_still_in_sleep(patch: pytest.MonkeyPatch) -> None:
    def running_s(self: world.Pod) -> float:
        return self.machine.running_s() - getattr(self, "slept_s", 0.0)

    def may_answer(self: world.Pod) -> bool:
        return self.lease.holds(running_s(self))

    def stand(self: run.History, pod: world.Pod, part: float) -> None:
        begins, lasts = self.random.uniform(0, world.LEASE_S), self.random.uniform(0, 5 * world.LEASE_S) * part

        def stop() -> None:
            pod.stands_until = self.world.now + lasts
            pod.slept_s = getattr(pod, "slept_s", 0.0) + lasts  # type: ignore[attr-defined]

        self.world.after(begins, stop)

    patch.setattr(world.Pod, "may_answer", may_answer)
    patch.setattr(run.History, "_stand", stand)


def _nobody_waits(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(take_over, "longest_lease_s", lambda claims: 0.0)
    patch.setattr(TakeOver, "_check_fenced", lambda self, old: None)


def _clocks_are_the_same(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("muster_coordinator.sites.lease.CLOCKS_DIFFER", 1.0)
    patch.setattr(TakeOver, "_check_fenced", lambda self, old: None)


def _one_claim_only(patch: pytest.MonkeyPatch) -> None:
    def run_(self: TakeOver, site: str) -> Done:
        self._for = site  # type: ignore[attr-defined]
        return original_run(self, site)

    def write(self: TakeOver, term: int, site: str, backup: str = "") -> Claim:
        return original(self, term, site or self._for, backup)  # type: ignore[attr-defined]

    original, original_run = TakeOver._write, TakeOver._run
    patch.setattr(TakeOver, "_write", write)
    patch.setattr(TakeOver, "_run", run_)


def _backup_before_the_fence(patch: pytest.MonkeyPatch) -> None:
    def fence(self: TakeOver, old: str, claims: Sequence[Claim]) -> float:
        try:
            made = self._old.back_up()
        except Exception:
            return original(self, old, claims)
        patch.setattr(self._old, "back_up", lambda: made)
        return original(self, old, claims)

    original = TakeOver._fence
    patch.setattr(TakeOver, "_fence", fence)


def _claims_are_replaced(patch: pytest.MonkeyPatch) -> None:
    def add(self: world.Files, name: str, content: bytes) -> bool:
        self.content[name] = content
        return True

    patch.setattr(world.Files, "add", add)


def _name_is_used_again(patch: pytest.MonkeyPatch) -> None:
    """Every second site has the name of the first, and the command lets it."""

    def run_(self: TakeOver, site: str) -> Done:
        claims = self._claims.all()
        if len(claims) > 2 and claims[-1].site and claims[-1].site != site:
            return self._from(claims[-1].site, site, claims)
        return original(self, site)

    def round_(self: run.History, name: str) -> None:
        return original_round(self, "site-1" if self.serving.name != "site-1" else name)

    original, original_round = TakeOver._run, run.History._round
    patch.setattr(TakeOver, "_run", run_)
    patch.setattr(run.History, "_round", round_)


FAULTS: dict[str, Plant] = {
    "answer is not checked": _answer_is_not_checked,
    "term is not compared": _term_is_not_compared,
    "lease begins with the answer": _lease_begins_with_the_answer,
    "clock of the wall": _clock_of_the_wall,
    "clock stands still in sleep": _clock_stands_still_in_sleep,
    "nobody waits": _nobody_waits,
    "clocks are the same": _clocks_are_the_same,
    "one claim only": _one_claim_only,
    "backup before the fence": _backup_before_the_fence,
    "claims are replaced": _claims_are_replaced,
    "name is used again": _name_is_used_again,
}
