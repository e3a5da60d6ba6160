"""The client's side of SASL: PLAIN, SCRAM and OAUTHBEARER, as brokers of Kafka have them. Pure.

Source: RFC 4616, RFC 5802, RFC 7628; Kafka's PlainSaslClient, ScramSaslClient and OAuthBearerSaslClient. `as_user` is
SASL's authorization id: whom the other side shall take this client for; "": for who logs in.
"""

from __future__ import annotations

import base64
import hmac
import re
from dataclasses import dataclass, field
from typing import Protocol

from muster_coordinator.security.sasl import SaslError
from muster_coordinator.security.scram import HASHES, MAX_ITERATIONS, MIN_ITERATIONS, ScramKeys, keys_of
from muster_coordinator.security.users import OAUTHBEARER, PLAIN

_CHALLENGE = re.compile(r"r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+),s=(?P<salt>[A-Za-z0-9+/=]+),i=(?P<iterations>[0-9]{1,9})")
_ESCAPED = {"=": "=3D", ",": "=2C"}


@dataclass(frozen=True)
class Account:
    """The account with which to log in. `token`: of OAUTHBEARER, which has no name and password of its own."""

    name: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)


class SaslClient(Protocol):
    """One login."""

    def first(self) -> bytes:
        """The token to begin with."""
        ...

    def step(self, token: bytes) -> bytes | None:
        """Returns the token to send after the server's; None: nothing more, the login is done. Raises SaslError."""
        ...


class KeyCache:
    """The keys of a password by the salt and the iterations that a server named last: making them takes milliseconds
    of processor time, and a server names the same for each login of a user."""

    def __init__(self) -> None:
        self._made_of: tuple[str, str, bytes, int] | None = None
        self._keys: ScramKeys | None = None

    def keys(self, password: str, hash_name: str, salt: bytes, iterations: int) -> ScramKeys:
        made_of = (password, hash_name, salt, iterations)
        if self._keys is None or self._made_of != made_of:
            self._keys = keys_of(password.encode(), hash_name, salt, iterations)
            self._made_of = made_of
        return self._keys


def sasl_client(mechanism: str, account: Account, nonce: str, cache: KeyCache, as_user: str = "") -> SaslClient:
    """`nonce`: random printable ASCII without a comma."""
    if mechanism == PLAIN:
        return _Single(f"{as_user}\0{account.name}\0{account.password}".encode())
    if mechanism == OAUTHBEARER:
        who = f"a={_escaped(as_user)}" if as_user else ""
        return _Single(f"n,{who},\x01auth=Bearer {account.token}\x01\x01".encode())
    return _Scram(HASHES[mechanism], account, nonce, cache, as_user)


class _Single:
    """All in one token; the server answers none."""

    def __init__(self, token: bytes) -> None:
        self._token = token

    def first(self) -> bytes:
        return self._token

    def step(self, token: bytes) -> None:
        if token:  # of OAUTHBEARER: why the token is refused, as JSON
            raise SaslError(f"refused: {token[:200].decode(errors='replace')}")


class _Scram:
    def __init__(self, hash_name: str, account: Account, nonce: str, cache: KeyCache, as_user: str) -> None:
        self._hash = hash_name
        self._password = account.password
        self._nonce = nonce
        self._cache = cache
        self._header = f"n,a={_escaped(as_user)}," if as_user else "n,,"
        self._bare = f"n={_escaped(account.name)},r={nonce}"
        self._signature: bytes | None = None

    def first(self) -> bytes:
        return f"{self._header}{self._bare}".encode()

    def step(self, token: bytes) -> bytes | None:
        if self._signature is not None:
            if not hmac.compare_digest(token, b"v=" + base64.b64encode(self._signature)):
                raise SaslError("the server does not know the password either")
            return None
        return self._final(token.decode(errors="replace"))

    def _final(self, challenge: str) -> bytes:
        found = _CHALLENGE.fullmatch(challenge)
        if found is None or not found["nonce"].startswith(self._nonce) or found["nonce"] == self._nonce:
            raise SaslError("the server's first message is not of SCRAM")
        iterations = int(found["iterations"])
        if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
            raise SaslError(f"{iterations} iterations: allowed are {MIN_ITERATIONS} to {MAX_ITERATIONS}")
        try:
            salt = base64.b64decode(found["salt"], validate=True)
        except ValueError:
            raise SaslError("the server's salt is no base64") from None
        keys = self._cache.keys(self._password, self._hash, salt, iterations)
        without_proof = f"c={base64.b64encode(self._header.encode()).decode()},r={found['nonce']}"
        signed = f"{self._bare},{challenge},{without_proof}".encode()
        signature = hmac.digest(keys.stored, signed, self._hash)
        proof = bytes(a ^ b for a, b in zip(keys.client, signature, strict=True))
        self._signature = hmac.digest(keys.server, signed, self._hash)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()


def _escaped(name: str) -> str:
    return "".join(_ESCAPED.get(each, each) for each in name)
