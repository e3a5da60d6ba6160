"""An identity provider of tests: keys, key sets, tokens, and what a client of OAUTHBEARER sends."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

AUDIENCE, ISSUER = "muster", "https://idp.test"


class Provider:
    """One with a key. `algorithm`: RS256, PS256 ..., or ES256."""

    def __init__(self, key_id: str | None = "k1", algorithm: str = "RS256") -> None:
        self.key_id, self.algorithm = key_id, algorithm
        self._is_rsa = algorithm[0] in "RP"
        self.key: Any = (
            rsa.generate_private_key(public_exponent=65537, key_size=2048)
            if self._is_rsa
            else ec.generate_private_key(ec.SECP256R1())
        )

    def public(self, **more: Any) -> dict[str, Any]:
        """Its key as a member of a key set."""
        algorithm = RSAAlgorithm if self._is_rsa else ECAlgorithm
        named = {} if self.key_id is None else {"kid": self.key_id}
        return json.loads(algorithm.to_jwk(self.key.public_key())) | named | more

    def token(
        self, user: str = "alice", lifetime_s: float = 600, *, header: dict[str, Any] | None = None, **claims: Any
    ) -> str:
        """`claims` replace those of a good token; None: without this claim."""
        now = time.time()
        all_claims = {"sub": user, "iat": now, "exp": now + lifetime_s, "aud": AUDIENCE, "iss": ISSUER} | claims
        named = {} if self.key_id is None else {"kid": self.key_id}
        kept = {name: value for name, value in all_claims.items() if value is not None}
        return jwt.PyJWS().encode(json.dumps(kept).encode(), self.key, self.algorithm, headers={"typ": "JWT"} | named)


def key_set(*keys: dict[str, Any]) -> bytes:
    return json.dumps({"keys": keys}).encode()


def write_keys(path: Path, *providers: Provider) -> None:
    new = path.with_suffix(".new")
    new.write_bytes(key_set(*(each.public() for each in providers)))
    new.replace(path)


def first_message(token: str, authorization_id: str = "") -> bytes:
    authzid = f"a={authorization_id}" if authorization_id else ""
    return f"n,{authzid},\x01auth=Bearer {token}\x01\x01".encode()
