"""`muster backup take-over`: gives another site the right to answer clients, by claims in the store (docs/adr/0056).

The old site is fenced by a claim that names nobody, and its leases end. Only then the last backup is made, and only
after that a claim names the new site. So no two sites ever answer clients, also if it is interrupted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from muster_cli.errors import CliError
from muster_coordinator.podapi.models import SiteStatus
from muster_coordinator.sites.claims import Claim, ClaimError, Claims
from muster_coordinator.sites.lease import longest_lease_s


@dataclass(frozen=True)
class Point:
    """A backup, and the moment of its cut."""

    backup: str
    taken_at_ms: int


@dataclass(frozen=True)
class Look:
    """The old site as it answers. `sites`: of the pods that do. `silent`: the names of the others. `trouble`: why a
    last backup would lack something; "": each partition has a leader that answers, with a majority of its replicas."""

    sites: Mapping[str, SiteStatus | None]
    silent: Sequence[str] = ()
    trouble: str = ""


class OldSite(Protocol):
    """The cluster that has answered clients so far. All methods block."""

    def look(self) -> Look:
        """Ask all its pods. Raises CliError: it is another cluster than that of the backups."""

    def sites(self) -> Mapping[str, SiteStatus | None]:
        """The sites of the pods that answer, and nothing else."""

    def back_up(self) -> Point:
        """Make a backup now. Raises CliError."""


class Backups(Protocol):
    """The backups of the store. All methods block, and raise CliError."""

    def newest(self) -> Point | None: ...

    def use(self, point: Point) -> None:
        """See that the backup is whole, or make a cluster of it."""


class Done(msgspec.Struct, frozen=True, rename="camel"):
    """`came_from`: the site that answered clients before ("": none). `backup`: what the new site begins from ("": from
    what it has). `may_lack_since_ms`: what was acknowledged after this moment may be lost; None: nothing is."""

    site: str
    term: int
    came_from: str = ""
    backup: str = ""
    may_lack_since_ms: int | None = None
    waited_s: float = 0.0


class TakeOver:
    """`sleep`: of a clock that neither stands still nor is set. `agree`: asks a person whether what was acknowledged
    after this moment (ms since 1970) may be lost, because of this trouble. `tell`: what happens now."""

    def __init__(
        self,
        claims: Claims,
        old: OldSite,
        backups: Backups,
        *,
        lease_ms: int,
        now_ms: Callable[[], int],
        sleep: Callable[[float], None],
        agree: Callable[[int, str], bool],
        tell: Callable[[str], None],
    ) -> None:
        self._claims = claims
        self._old = old
        self._backups = backups
        self._lease_ms = lease_ms
        self._now_ms = now_ms
        self._sleep = sleep
        self._agree = agree
        self._tell = tell

    def run(self, site: str) -> Done:
        """Raises CliError. Run again, it goes on where it was interrupted."""
        try:
            return self._run(site)
        except ClaimError as error:
            raise CliError(str(error)) from error

    def _run(self, site: str) -> Done:
        claims = self._claims.all()
        if not claims:
            return Done(site, self._write(1, site).term)
        last = claims[-1]
        holders = [claim.site for claim in claims if claim.site]
        if last.site == site:
            return Done(site, last.term)
        if not last.site and holders[-1] == site:
            self._tell(f"site {site} goes on: nobody has answered clients since")
            before = next(claim for claim in reversed(claims) if claim.site)
            return Done(site, self._write(last.term + 1, site, before.backup).term)
        if site in holders:
            raise CliError(
                f"site {site} has answered clients before, and pods of it may be left: give what takes over now another"
                f" name, such as {site}-{len(holders) + 1}"
            )
        return self._from(holders[-1], site, claims)

    def _from(self, old: str, site: str, claims: Sequence[Claim]) -> Done:
        trouble = self._trouble(old)
        may_lack = self._agreed(trouble) if trouble else None
        waited_s = self._fence(old, claims)
        fence = claims[-1].term + (1 if claims[-1].site else 0)
        if not trouble:
            self._check_fenced(old)
            try:
                point = self._old.back_up()
            except CliError as error:
                may_lack = self._agreed(error.message)
        if may_lack is not None:
            point = self._newest()  # a follower may have made another one meanwhile
            may_lack = max(may_lack, point.taken_at_ms)
        self._backups.use(point)
        term = self._write(fence + 1, site, point.backup).term
        return Done(site, term, old, point.backup, may_lack, waited_s)

    def _trouble(self, old: str) -> str:
        """Says why the old site does not answer; "": it does. Raises CliError if it answers and cannot be fenced."""
        look = self._old.look()
        _check_can_be_fenced(look.sites, old)
        if look.silent:
            self._tell(
                f"no answer from {', '.join(look.silent)}: fenced like the others if it has muster.site={old}@STORE;"
                " if it may not have it, end it first"
            )
        return look.trouble

    def _agreed(self, trouble: str) -> int:
        point = self._newest()
        if not self._agree(point.taken_at_ms, trouble):
            raise CliError("nothing was taken over: what may be lost was not accepted")
        return point.taken_at_ms

    def _newest(self) -> Point:
        point = self._backups.newest()
        if point is None:
            raise CliError("the store has no backup, and the old site does not answer: there is nothing to go on from")
        return point

    def _fence(self, old: str, claims: Sequence[Claim]) -> float:
        """Returns when no pod of another site answers clients any more."""
        if claims[-1].site:
            self._write(claims[-1].term + 1, "")
        wait_s = longest_lease_s(claims)
        self._tell(
            f"site {old} is fenced; {wait_s:.0f} s until its leases have ended. To give it back after an interruption:"
            f" muster backup take-over --site {old}"
        )
        self._sleep(wait_s)
        return wait_s

    def _check_fenced(self, old: str) -> None:
        """Raises CliError."""
        sites = self._old.sites()
        _check_can_be_fenced(sites, old)
        for pod, status in sites.items():
            if status is None or status.held:
                raise CliError(
                    f"pod {pod} answers clients although its lease has ended, as if its clock were wrong: end it, then"
                    " run this again"
                )

    def _write(self, term: int, site: str, backup: str = "") -> Claim:
        claim = Claim(term, site, self._lease_ms if site else 0, self._now_ms(), backup)
        self._claims.add(claim)
        return claim


def _check_can_be_fenced(sites: Mapping[str, SiteStatus | None], old: str) -> None:
    """Raises CliError."""
    for pod, status in sites.items():
        if status is None or status.name != old:
            is_of = "no site" if status is None else f"site {status.name}"
            raise CliError(
                f"pod {pod} is of {is_of}, and would not be fenced: give all pods of the old site"
                f" muster.site={old}@STORE first"
            )
