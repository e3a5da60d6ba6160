"""Claims in a directory and in an object store: written once, read by all. The lease on one is tested by histories in
tests/simulation/sites."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster_coordinator.sites.address import Site, open_claims, parse_site
from muster_coordinator.sites.claims import Claim, ClaimError, Claims, ClaimTakenError


@pytest.fixture
def claims(tmp_path: Path) -> Claims:
    return open_claims(str(tmp_path / "store"))


def test_highest_term_counts_and_nothing_is_there_at_first(claims: Claims, tmp_path: Path) -> None:
    assert (claims.newest(), claims.all()) == (None, [])
    terms = [Claim(term, f"site-{term}", 1000, 5) for term in (1, 2, 11)]
    for claim in reversed(terms):
        claims.add(claim)
    again = open_claims(str(tmp_path / "store"))
    assert (again.newest(), again.all()) == (terms[-1], terms)


def test_second_claim_of_a_term_is_refused_and_the_first_stays(claims: Claims, tmp_path: Path) -> None:
    first = Claim(1, "east", 1000, 5)
    claims.add(first)
    claims.add(first)  # as after an answer that was lost
    with pytest.raises(ClaimTakenError, match="claim of term 1"):
        claims.add(Claim(1, "east", 1000, 5))
    assert claims.newest() == first
    assert [each.name for each in (tmp_path / "store" / "claims").iterdir()] == ["0000000001.json"]


def test_file_that_is_no_claim_is_told_and_nobody_takes_an_older_one(claims: Claims, tmp_path: Path) -> None:
    claims.add(Claim(1, "east", 1000, 5))
    folder = tmp_path / "store" / "claims"
    (folder / "0000000002.json.12ab.part").write_text("half")
    assert claims.newest() == Claim(1, "east", 1000, 5, nonce=claims.all()[0].nonce)
    (folder / "0000000002.json").write_text("{")
    with pytest.raises(ClaimError, match=r"claims/0000000002\.json is no claim"):
        claims.newest()
    (folder / "0000000002.json").write_bytes((folder / "0000000001.json").read_bytes())
    with pytest.raises(ClaimError, match="is the claim of term 1"):
        claims.newest()


@pytest.mark.parametrize(
    ("text", "site"),
    [
        ("", None),
        ("east@/mnt/backups", Site("east", "/mnt/backups")),
        ("east-2@s3://backups/a@b", Site("east-2", "s3://backups/a@b")),
    ],
)
def test_site_is_a_name_and_a_store(text: str, site: Site | None) -> None:
    assert parse_site(text) == site


@pytest.mark.parametrize("text", ["east", "@/mnt", "East@/mnt", "east@mnt", "east@gs://b", "-@/mnt"])
def test_what_names_no_site_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"NAME@STORE|no name of a site"):
        parse_site(text)
