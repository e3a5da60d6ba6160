"""Users as a file of JSON: `{"users": {"alice": {"SCRAM-SHA-512": "salt=...,stored_key=..., ..."}}}`.

Values are as Kafka writes SCRAM credentials; no password stands in the file. Beside them may stand quotas, also of
users of certificates and tokens: `"quotas": {"alice": {"connections": 10, "requestRate": 100}}`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from muster_coordinator.security.quotas import NO_QUOTAS, Quotas
from muster_coordinator.security.scram import DEFAULT_ITERATIONS, HASHES, ScramCredential, read_credential

PLAIN = "PLAIN"
OAUTHBEARER = "OAUTHBEARER"
MECHANISMS = (PLAIN, *HASHES, OAUTHBEARER)


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    users: dict[str, dict[str, str]]
    quotas: dict[str, Quotas] = {}


class Users:
    """Credentials by user and mechanism, and quotas by user."""

    def __init__(
        self,
        credentials: dict[str, dict[str, ScramCredential]] | None = None,
        quotas: Mapping[str, Quotas] | None = None,
    ) -> None:
        self._credentials = credentials or {}
        self._quotas = quotas or {}
        self._works = [_work(each) for each in self._credentials.values()]

    def __repr__(self) -> str:
        return f"<Users {len(self._credentials)}>"

    def __contains__(self, name: object) -> bool:
        return name in self._credentials

    def names(self) -> Iterable[str]:
        return self._credentials.keys()

    def iterations(self, name: str) -> dict[str, int]:
        """The iterations of each SCRAM mechanism for which the user has a credential."""
        return {mechanism: each.iterations for mechanism, each in self._credentials.get(name, {}).items()}

    def scram(self, name: str, mechanism: str) -> ScramCredential | None:
        return self._credentials.get(name, {}).get(mechanism)

    def quotas(self, name: str) -> Quotas:
        """The quotas, also of users that are known to others only."""
        return self._quotas.get(name, NO_QUOTAS)

    def any(self, name: str) -> tuple[str, ScramCredential] | None:
        """(hash, credential) with which a password can be compared."""
        for mechanism, credential in self._credentials.get(name, {}).items():
            return HASHES[mechanism], credential
        return None

    def work_for(self, number: int) -> tuple[str, int]:
        """(hash, iterations) that comparing the password of a user takes; `number`: any, whose user it is. For names
        that nobody has: they cannot be told from others by time."""
        works = self._works
        return works[number % len(works)] if works else (HASHES["SCRAM-SHA-512"], DEFAULT_ITERATIONS)


def _work(credentials: Mapping[str, ScramCredential]) -> tuple[str, int]:
    """Mechanism and iterations of one user, as `Users.any` gives them."""
    mechanism, credential = next(iter(credentials.items()))
    return HASHES[mechanism], credential.iterations


def parse_users(content: bytes) -> Users:
    """Raises ValueError that names user and mechanism, and nothing that is secret."""
    file = msgspec.json.decode(content, type=_File)  # its errors name fields, and no values
    credentials: dict[str, dict[str, ScramCredential]] = {}
    for name, texts in file.users.items():
        if not name:
            raise ValueError("a user without a name")
        if not texts:
            raise ValueError(f"user {name!r} has no credentials")
        for mechanism, text in texts.items():
            if mechanism not in HASHES:
                raise ValueError(f"user {name!r}: {mechanism!r} is none of {', '.join(HASHES)}")
            try:
                credential = read_credential(text, HASHES[mechanism])
            except ValueError as error:
                raise ValueError(f"user {name!r}, {mechanism}: {error}") from None
            credentials.setdefault(name, {})[mechanism] = credential
    return Users(credentials, file.quotas)


def parse_mechanisms(text: str) -> tuple[str, ...]:
    """Mechanisms between commas. Raises ValueError."""
    mechanisms = tuple([part.strip() for part in text.split(",") if part.strip()])
    for each in mechanisms:
        if each not in MECHANISMS:
            raise ValueError(f"{each!r} is none of {', '.join(MECHANISMS)}")
    if len(set(mechanisms)) != len(mechanisms):
        raise ValueError("a mechanism is named twice")
    return mechanisms
