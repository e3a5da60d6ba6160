"""Tokens of OAUTHBEARER: JSON Web Tokens (RFC 7519) that an identity provider has signed.

Source: org.apache.kafka.common.security.oauthbearer.BrokerJwtValidator. PyJWT and cryptography are loaded where this
mechanism is enabled only: they take 20 MiB of memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jwt

from muster_coordinator.security.jwks import KeySet
from muster_coordinator.security.oauth import Token, TokenError
from muster_coordinator.security.sasl import LaterError


@dataclass(frozen=True)
class TokenRules:
    """The rules for tokens. `audiences`: one of them; none: the token must name none either, as in Kafka. `issuer`: ""
    takes any. `skew_s`: how far the provider's clock may be off. `name_claim`: which claim has the user's name."""

    audiences: tuple[str, ...] = ()
    issuer: str = ""
    skew_s: int = 30
    name_claim: str = "sub"


class TokenVerifier:
    """`keys` gives those of this moment. `want` is called when a token names a key that is not among them."""

    def __init__(self, rules: TokenRules, keys: Callable[[], KeySet], want: Callable[[], object]) -> None:
        self._rules = rules
        self._keys = keys
        self._want = want

    def verify(self, text: str) -> Token:
        """Raises TokenError; LaterError while there are no keys at all."""
        keys = self._keys()
        if not keys:
            raise LaterError("there are no keys yet: token_keys_refused says why")
        try:
            header: dict[str, Any] = jwt.get_unverified_header(text)
        except jwt.PyJWTError as error:
            raise TokenError(f"no JSON Web Token: {type(error).__name__}") from None
        candidates = keys.of(header.get("kid"), str(header.get("alg")))
        if not candidates:
            self._want()
            raise TokenError("no key of the key set fits its header")
        refused: TokenError | None = None
        for each in candidates:
            try:
                return self._token(jwt.decode(text, each.key, list(each.algorithms), **self._options()))
            except jwt.InvalidSignatureError:
                refused = TokenError("another key has signed it")
            except jwt.PyJWTError as error:
                raise TokenError(type(error).__name__) from None
        assert refused is not None
        raise refused

    def _options(self) -> dict[str, Any]:
        rules = self._rules
        return {
            "audience": list(rules.audiences) or None,
            "issuer": rules.issuer or None,
            "leeway": rules.skew_s,
            # A token from the future is none for Kafka only if it says so ("nbf").
            "options": {"require": ["exp", "iat"], "verify_iat": False},
        }

    def _token(self, claims: dict[str, Any]) -> Token:
        user, ends_s, issued_s = claims.get(self._rules.name_claim), claims["exp"], claims["iat"]
        if not isinstance(user, str) or not user.strip():
            raise TokenError(f"the claim {self._rules.name_claim!r} names nobody")
        if not isinstance(issued_s, int | float) or not isinstance(ends_s, int | float) or ends_s < issued_s:
            raise TokenError("it ends before it was issued")
        return Token(user.strip(), int(ends_s * 1000))
