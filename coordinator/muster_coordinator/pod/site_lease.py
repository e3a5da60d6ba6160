"""The right of this pod to answer clients, when several sites share a store: the lease on its site's claim, kept.

The operator has no part in it: who answers clients keeps the lease. A pod that cannot read the claims stops when its
lease ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from muster_coordinator.podapi.models import SiteStatus
from muster_coordinator.sites.address import Site
from muster_coordinator.sites.claims import ClaimError, Claims
from muster_coordinator.sites.lease import Lease

logger = structlog.get_logger(__name__)

READS_OF_A_LEASE = 6
"""The number of reads of the claims while a lease lasts: some may fail without harm."""
LOOK_EVERY_S = 1.0
"""Interval of looks at the lease, which close connections that nobody writes to, and of reads while there is no claim.
Answers need no look: each write asks."""


class SiteLease:
    """`origin`: the backup that the data directory was made from ("": none). `now_s`: a clock that neither stands
    still, as while the machine sleeps, nor is set. `changed`: called when the status is another one."""

    def __init__(
        self, site: Site, origin: str, claims: Claims, now_s: Callable[[], float], changed: Callable[[], None]
    ) -> None:
        self._claims = claims
        self._now_s = now_s
        self._changed = changed
        self._lease = Lease(site.name, origin)
        self._problem = ""
        self._close: Callable[[], None] = lambda: None
        self._tasks: list[asyncio.Task[None]] = []
        self.status = self._status()

    def may_answer(self) -> bool:
        """Asked before any byte goes to a client: a process may have stood still since the last look."""
        return self._lease.holds(self._now_s())

    def start(self, close: Callable[[], None]) -> None:
        """`close` closes the connections of all clients."""
        self._close = close
        self._tasks = [asyncio.create_task(self._keep()), asyncio.create_task(self._watch())]

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _keep(self) -> None:
        while True:
            await self.read()
            claim = self._lease.claim
            await asyncio.sleep(LOOK_EVERY_S if claim is None else claim.lease_ms / 1000 / READS_OF_A_LEASE)

    async def read(self) -> None:
        """Read the newest claim."""
        asked_s = self._now_s()
        try:
            claim = await asyncio.to_thread(self._claims.newest)
        except ClaimError as error:
            self._problem = str(error)
        else:
            self._problem = ""
            self._lease.read(claim, asked_s)
        self.look()

    async def _watch(self) -> None:
        """A store that does not answer must not keep the end of the lease from being seen."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            self.look()

    def look(self) -> None:
        """Tell what has changed."""
        before, now = self.status, self._status()
        if before.held and not now.held:
            self._close()  # first: who reads the status takes what it says for done
        self.status = now
        if now != before:
            log = logger.info if now.held else logger.warning
            log("site", site=now.name, held=now.held, holder=now.holder, term=now.term, why=now.problem)
            self._changed()

    def _status(self) -> SiteStatus:
        claim, name = self._lease.claim, self._lease.site
        holder, term = (claim.site, claim.term) if claim is not None else ("", -1)
        held = self.may_answer()
        problem = ""
        if held:
            pass
        elif claim is None:
            problem = self._problem or "the store has no claim: `muster backup take-over` writes the first one"
        elif holder and holder != name:
            problem = f"site {holder} has taken over"
        elif not holder:
            problem = "a take-over is under way"
        elif self._lease.is_too_old:
            problem = (
                f"the data was restored from {self._lease.origin}, and site {name} goes on from {claim.backup}: restore"
                " that backup or a later one"
            )
        else:
            problem = f"the claims could not be read for as long as the lease is: {self._problem or 'no answer'}"
        return SiteStatus(name, held, holder, term, problem)
