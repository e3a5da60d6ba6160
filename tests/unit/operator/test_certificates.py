"""CA and leaves over time: what is due, and what a directory of them looks like."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

pytest.importorskip("cryptography")

from muster_coordinator.security.roles import Member, Role
from muster_coordinator.security.tls import TlsFiles, server_context
from muster_operator.certificates.folder import CertificateFolder
from muster_operator.certificates.issuing import expiry, signed_by
from muster_operator.certificates.rotation import (
    AUTHORITY_LIFETIME,
    LEAF_LIFETIME,
    SETTLE,
    Authorities,
    announced,
    first_authorities,
    leaf_for,
    next_step,
    switched,
)

CLUSTER = "ns/c"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
POD = Member(CLUSTER, Role.POD, "c-0")
SECOND = timedelta(seconds=1)


def test_nothing_is_due_for_half_of_a_life() -> None:
    first = first_authorities(CLUSTER, NOW)
    leaf = leaf_for(first, POD, (), None, NOW)
    before = NOW + LEAF_LIFETIME / 2 - timedelta(hours=1)
    assert leaf_for(first, POD, (), leaf, before) is leaf
    assert leaf_for(first, POD, (), leaf, NOW + LEAF_LIFETIME / 2) is not leaf
    assert next_step(first, CLUSTER, NOW + AUTHORITY_LIFETIME / 2 - timedelta(hours=1)) is first


def test_an_authority_is_exchanged_in_steps_that_have_time_to_settle() -> None:
    first = first_authorities(CLUSTER, NOW)
    at = NOW + AUTHORITY_LIFETIME / 2
    announcing = next_step(first, CLUSTER, at)
    assert announcing.following is not None
    assert announcing.current == first.current, "the new one does not sign before everybody trusts it"
    assert announcing.bundle == first.current.certificate + announcing.following.certificate
    assert next_step(announcing, CLUSTER, at + SETTLE - SECOND) is announcing
    signing = next_step(announcing, CLUSTER, at + SETTLE)
    assert signing.current == announcing.following
    assert signing.bundle == announcing.following.certificate + first.current.certificate, "old leaves are still good"
    assert next_step(signing, CLUSTER, at + 2 * SETTLE - SECOND) is signing
    over = next_step(signing, CLUSTER, at + 2 * SETTLE)
    assert over.bundle == signing.current.certificate
    assert next_step(over, CLUSTER, at + 3 * SETTLE) is over


def test_a_leaf_is_made_again_when_another_authority_signs() -> None:
    first = first_authorities(CLUSTER, NOW)
    leaf = leaf_for(first, POD, (), None, NOW)
    announcing = announced(first, CLUSTER, NOW)
    assert leaf_for(announcing, POD, (), leaf, NOW) is leaf
    signing = switched(announcing, NOW)
    again = leaf_for(signing, POD, (), leaf, NOW)
    assert signed_by(again.certificate, signing.current.certificate)
    assert not signed_by(again.certificate, first.current.certificate)


def test_a_leaf_never_outlives_its_authority() -> None:
    first = first_authorities(CLUSTER, NOW)
    late = NOW + AUTHORITY_LIFETIME - timedelta(days=1)
    assert expiry(leaf_for(first, POD, (), None, late).certificate) == expiry(first.current.certificate)


def test_keys_are_in_no_repr() -> None:
    first = announced(first_authorities(CLUSTER, NOW), CLUSTER, NOW)
    assert "PRIVATE" not in repr(first) + repr(first.current) + f"{first}"


class Clock:
    def __init__(self) -> None:
        self.now = datetime.now(UTC)

    def __call__(self) -> datetime:
        return self.now


def folder(root: Path, clock: Clock) -> CertificateFolder:
    return CertificateFolder(root, CLUSTER, [POD, Member(CLUSTER, Role.READER)], ("127.0.0.1",), clock)


def test_a_folder_is_kept_as_it_is_and_renewed_when_due(tmp_path: Path) -> None:
    clock = Clock()
    kept = folder(tmp_path, clock)
    kept.keep()
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert len(files) == 7
    folder(tmp_path, clock).keep()
    assert {path: path.read_bytes() for path in files} == files
    clock.now += LEAF_LIFETIME / 2
    kept.keep()
    changed = {path.name for path in files if path.read_bytes() != files[path]}
    assert changed == {"tls.crt", "tls.key"}
    server_context(TlsFiles.of(kept.directory(POD)), clients=ssl.CERT_REQUIRED)


def test_only_the_owner_can_read_keys(tmp_path: Path) -> None:
    folder(tmp_path / "tls", Clock()).keep()
    found = [path for path in (tmp_path / "tls").rglob("*") if path.is_file()]
    assert found
    assert {path.stat().st_mode & 0o077 for path in [tmp_path / "tls", *found]} == {0}


def test_a_damaged_file_of_authorities_is_no_reason_for_new_ones(tmp_path: Path) -> None:
    kept = folder(tmp_path, Clock())
    kept.keep()
    (tmp_path / "authorities.json").write_text("{")
    with pytest.raises(ValueError, match="truncated"):
        kept.keep()
    assert isinstance(first_authorities(CLUSTER, NOW), Authorities)
