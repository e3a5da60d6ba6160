"""A pod of a site whose data is of an older backup than that from which the site goes on answers nobody."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest
from tests.support.pod import SoloPod

from muster_coordinator.podapi.models import SiteStatus
from muster_coordinator.sites.address import open_claims
from muster_coordinator.sites.claims import Claim
from muster_coordinator.sites.origin import NAME, Origin

pytestmark = pytest.mark.integration

OLDER, NEWER = "20270115T080000Z-000001", "20270115T080001Z-000002"
LEASE_MS = 1000


async def site_of(pod: SoloPod, term: int) -> SiteStatus:
    """The status of the site that the pod tells when it has read this claim."""
    async with asyncio.timeout(20):
        while True:
            found = (await pod.api.status()).site
            if found is not None and found.term == term:
                return found
            await asyncio.sleep(0.05)


async def test_pod_made_from_an_older_backup_has_no_right_until_the_claim_is_of_its_own(tmp_path: Path) -> None:
    data, store = tmp_path / "data", str(tmp_path / "store")
    data.mkdir()
    (data / NAME).write_bytes(msgspec.json.encode(Origin(OLDER, 0, 1)))
    claims = open_claims(store)
    claims.add(Claim(1, "west", LEASE_MS, 5, NEWER))
    async with SoloPod(data, config=[f"muster.site=west@{store}"]) as pod:
        found = await site_of(pod, 1)
        assert (found.held, OLDER in found.problem, NEWER in found.problem) == (False, True, True)
        assert await pod.metric("muster_site_fenced") == 1
        claims.add(Claim(2, "west", LEASE_MS, 5, OLDER))
        assert (await site_of(pod, 2)).held
