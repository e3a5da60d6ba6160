"""The claims of a store: files that say which site answers clients.

A claim is written once and never changed. The one with the highest term counts.
"""

from __future__ import annotations

import re
import secrets
from typing import Protocol

import msgspec

FOLDER = "claims/"
_NAME = re.compile(r"[0-9]{10}\.json")


class ClaimError(Exception):
    """The claims cannot be read or written; the message says why."""


class ClaimTakenError(ClaimError):
    """Somebody else has written a claim of this term."""


class Claim(msgspec.Struct, frozen=True, rename="camel"):
    """`site`: who answers clients; "": nobody, because a take-over is under way. `lease_ms`: a pod of the site may
    answer for this long after it began to read the claim. `backup`: what the site begins from ("": from what it has).
    `written_at_ms` is for people, and `nonce` tells two claims of one term apart."""

    term: int
    site: str
    lease_ms: int
    written_at_ms: int
    backup: str = ""
    nonce: str = msgspec.field(default_factory=lambda: secrets.token_hex(8))

    @property
    def name(self) -> str:
        return f"{self.term:010d}.json"


class ClaimFiles(Protocol):
    """A place for claims. All methods block, and raise ClaimError. What is written is in all later answers."""

    def names(self) -> list[str]:
        """The names of all files."""

    def read(self, name: str) -> bytes:
        """The content of one."""

    def add(self, name: str, content: bytes) -> bool:
        """Write a file as a whole, durably, unless there is one of that name. False: there is."""


class Claims:
    """All methods block, and raise ClaimError."""

    def __init__(self, files: ClaimFiles) -> None:
        self._files = files
        self._known: dict[str, Claim] = {}

    def newest(self) -> Claim | None:
        """The claim that counts; None: there is none."""
        name = max(self._names(), default=None)
        return None if name is None else self._read(name)

    def all(self) -> list[Claim]:
        """All of them, by rising term."""
        return [self._read(name) for name in sorted(self._names())]

    def add(self, claim: Claim) -> None:
        """Raises ClaimTakenError."""
        content = msgspec.json.encode(claim)
        # A write whose answer was lost is repeated by the client of the store, and finds its own file.
        if not self._files.add(claim.name, content) and self._files.read(claim.name) != content:
            raise ClaimTakenError(f"another take-over has written the claim of term {claim.term}: look who it was")

    def _names(self) -> list[str]:
        return [name for name in self._files.names() if _NAME.fullmatch(name)]

    def _read(self, name: str) -> Claim:
        known = self._known.get(name)
        if known is not None:
            return known
        try:
            claim = msgspec.json.decode(self._files.read(name), type=Claim)
        except msgspec.MsgspecError as error:
            raise ClaimError(f"{FOLDER}{name} is no claim: {error}") from error
        if claim.name != name:
            raise ClaimError(f"{FOLDER}{name} is the claim of term {claim.term}")
        self._known[name] = claim
        return claim
