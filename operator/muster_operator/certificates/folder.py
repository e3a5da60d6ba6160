"""The certificates of a cluster in a directory, for embedded mode.

authorities.json                   the CA, with its key
<pod or role>/tls.crt tls.key ca.crt
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from muster_coordinator.security.roles import Member
from muster_coordinator.security.tls import AUTHORITIES, CERTIFICATE, KEY
from muster_operator.certificates.issuing import Issued, new_leaf
from muster_operator.certificates.rotation import (
    LEAF_LIFETIME,
    Authorities,
    first_authorities,
    leaf_for,
    next_step,
)


def now_utc() -> datetime:
    return datetime.now(UTC)


class CertificateFolder:
    """`members` have a certificate each, of which `hosts` are names too. One process at a time may write to it."""

    def __init__(
        self,
        root: Path,
        cluster: str,
        members: Sequence[Member],
        hosts: tuple[str, ...],
        clock: Callable[[], datetime] = now_utc,
    ) -> None:
        self._root = root
        self._cluster = cluster
        self._members = tuple(members)
        self._hosts = hosts
        self._clock = clock

    def directory(self, member: Member) -> Path:
        return self._root / (member.pod or member.role.value)

    def keep(self) -> None:
        """Make what is missing, renew what is due. Repeat it every now and then. Raises OSError, ValueError."""
        present = self.authorities()
        now = self._clock()
        due = first_authorities(self._cluster, now) if present is None else next_step(present, self._cluster, now)
        self.put(due)

    def put(self, authorities: Authorities) -> None:
        """Have these authorities in force, with the leaves that are due. Raises OSError."""
        if authorities != self.authorities():
            _write(self._root / "authorities.json", msgspec.json.encode(authorities))
        for member in self._members:
            directory = self.directory(member)
            leaf = leaf_for(authorities, member, self._hosts, _present(directory), self._clock())
            write_leaf(directory, leaf, authorities.bundle)

    def renew_leaves(self) -> None:
        """A new leaf for every member, due or not. Raises OSError, ValueError."""
        authorities = self.authorities()
        if authorities is None:
            self.keep()
            return
        for member in self._members:
            leaf = new_leaf(authorities.current, member, self._hosts, self._clock(), LEAF_LIFETIME)
            write_leaf(self.directory(member), leaf, authorities.bundle)

    def authorities(self) -> Authorities | None:
        """None: there are none yet. Raises OSError; ValueError for a file that is damaged."""
        try:
            return msgspec.json.decode((self._root / "authorities.json").read_bytes(), type=Authorities)
        except FileNotFoundError:
            return None


def write_leaf(directory: Path, leaf: Issued, bundle: bytes) -> None:
    """Have a leaf in a directory, under the names of a Secret, with the CAs that are trusted (PEM). Raises OSError.

    The trusted CAs come first: a reader that looks in between trusts more, and misses nothing.
    """
    for name, content in ((AUTHORITIES, bundle), (KEY, leaf.key), (CERTIFICATE, leaf.certificate)):
        path = directory / name
        if not path.exists() or path.read_bytes() != content:
            _write(path, content)


def _present(directory: Path) -> Issued | None:
    try:
        return Issued((directory / CERTIFICATE).read_bytes(), (directory / KEY).read_bytes())
    except FileNotFoundError:
        return None


def _write(path: Path, content: bytes) -> None:
    """Replace in one step; for this user's eyes only."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(content)
    new.replace(path)
