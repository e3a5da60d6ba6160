"""SASL/OAUTHBEARER, the server's side (RFC 7628). Pure.

Source: OAuthBearerSaslServer and OAuthBearerClientInitialResponse of Kafka.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from muster_coordinator.security.sasl import SaslError

INVALID_TOKEN = '{"status":"invalid_token"}'

_NAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_FIRST = re.compile(
    rf"n,(?:a=(?P<authzid>{_NAME}))?,\x01(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01", re.ASCII
)
_AUTH = re.compile(r"(?P<scheme>\w+) +(?P<token>[-_~+/.a-zA-Z0-9]+=*)", re.ASCII)


class TokenError(Exception):
    """A token that is not taken. The message is for logs, and repeats nothing of the token."""


@dataclass(frozen=True)
class Token:
    """`user`: whom it was given to. `ends_ms`: until when it is good, milliseconds since 1970."""

    user: str
    ends_ms: int


class OAuthBearerServer:
    """Implements `sasl.Mechanism`. `verify`: raises TokenError for a token that is not taken."""

    def __init__(self, verify: Callable[[str], Token]) -> None:
        self.by = ""
        self._verify = verify
        self._token: Token | None = None
        self._refused = ""

    @property
    def user(self) -> str | None:
        return self._token.user if self._token is not None else None

    @property
    def ends_ms(self) -> int | None:
        return self._token.ends_ms if self._token is not None else None

    def step(self, token: bytes) -> bytes:
        """A client whose token is not taken is told so by an answer first, and fails by what it sends then."""
        if self._refused:
            raise SaslError(self._refused, INVALID_TOKEN if token == b"\x01" else None)
        if self._token is not None:
            raise SaslError("a token after the last one")
        authorization_id, text = claimed_token(token)
        try:
            found = self._verify(text)
        except TokenError as error:
            self._refused = str(error)
            return INVALID_TOKEN.encode()
        if authorization_id and authorization_id != found.user:
            raise SaslError("another authorization id", _other(authorization_id, found.user))
        self._token = found
        return b""


def claimed_token(token: bytes) -> tuple[str, str]:
    """(authorization id, the provider's token) in a client's first message. Raises SaslError."""
    message = _FIRST.fullmatch(token.decode(errors="replace"))
    if message is None:
        raise SaslError("the first message is not of OAUTHBEARER")
    pairs = dict(pair.split("=", 1) for pair in message["pairs"].split("\x01") if pair)
    auth = _AUTH.fullmatch(pairs.get("auth", ""))
    if auth is None or auth["scheme"].lower() != "bearer":
        raise SaslError("the first message has no bearer token")
    return message["authzid"] or "", auth["token"]


def _other(asked: str, user: str) -> str:
    return (
        f"Authentication failed: Client requested an authorization id ({asked}) that is different from the token's "
        f"principal name ({user})"
    )
