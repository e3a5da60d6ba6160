"""The lease of one pod on its site's claim. Pure: times are passed in."""

from __future__ import annotations

from collections.abc import Iterable

from muster_coordinator.sites.claims import Claim

CLOCKS_DIFFER = 1.1
"""A wait for the end of a lease is longer than the lease by this factor, for two clocks that go wrong by 4% each."""

_NEVER = float("-inf")


class Lease:
    """Times are seconds of one clock of the machine that neither stands still nor is set. `origin`: the backup that the
    pod's data directory was made from; "": none."""

    def __init__(self, site: str, origin: str = "") -> None:
        self.site = site
        self.origin = origin
        self.claim: Claim | None = None
        self._until_s = _NEVER

    def holds(self, now_s: float) -> bool:
        """Returns whether the pod may answer clients now."""
        return now_s < self._until_s

    @property
    def is_too_old(self) -> bool:
        """The data is of a backup before that from which the site goes on: it lacks what the old site has acknowledged
        since. Ids of backups are in the order of their time."""
        return self.claim is not None and bool(self.origin) and self.origin < self.claim.backup

    def read(self, claim: Claim | None, asked_s: float) -> None:
        """The newest claim is this one, as a store has answered that was asked at `asked_s`. A site that has taken over
        waits from its own claim on, so what counts is when the question was asked, not when the answer came."""
        seen = self.claim
        if seen is not None and (claim is None or claim.term < seen.term):
            return  # a store that has lost claims gives nobody the right back
        self.claim = claim
        if claim is not None and claim.site == self.site and not self.is_too_old:
            self._until_s = asked_s + claim.lease_ms / 1000
        else:
            self._until_s = _NEVER


def longest_lease_s(claims: Iterable[Claim]) -> float:
    """After a claim is written no pod of another site holds a lease when this time has passed: any of the earlier
    claims may be the last one that a pod has read."""
    return CLOCKS_DIFFER * max((claim.lease_ms for claim in claims), default=0) / 1000
