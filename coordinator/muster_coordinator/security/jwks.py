"""Public keys that sign tokens: a JSON Web Key Set (RFC 7517), as an identity provider publishes it.

Only public keys count: a reader of the set must not be able to sign.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

_CURVES = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}


class _Set(msgspec.Struct):
    keys: list[dict[str, Any]]


@dataclass(frozen=True)
class SigningKey:
    """`key_id`: as tokens name it, None if it has none. `algorithms`: that it may be used with."""

    key_id: str | None
    algorithms: tuple[str, ...]
    key: Any


class KeySet:
    """The keys of one set."""

    def __init__(self, keys: tuple[SigningKey, ...]) -> None:
        self._keys = keys

    def __len__(self) -> int:
        return len(self._keys)

    def of(self, key_id: str | None, algorithm: str) -> list[SigningKey]:
        """Those that may have signed a token with this header; without a key id all that fit the algorithm."""
        return [each for each in self._keys if algorithm in each.algorithms and key_id in (None, each.key_id)]


NO_KEYS = KeySet(())


def parse_keys(content: bytes) -> KeySet:
    """Keys for other uses are left out, as are private ones and unknown kinds. Raises ValueError if none is left."""
    found = msgspec.json.decode(content, type=_Set).keys  # its errors are ValueErrors that name the field
    keys = tuple([key for each in found if (key := _signing_key(each)) is not None])
    if not keys:
        raise ValueError("keys: none is public, for signatures, and of a kind that is known")
    return KeySet(keys)


def _signing_key(described: dict[str, Any]) -> SigningKey | None:
    if described.get("use", "sig") != "sig":
        return None
    try:
        key: Any = jwt.PyJWK(described).key
    except (jwt.PyJWTError, TypeError, ValueError):
        return None
    named = described.get("alg")
    algorithms = tuple([each for each in _possible(key) if named in (None, each)])
    return SigningKey(described.get("kid"), algorithms, key) if algorithms else None


def _possible(key: Any) -> tuple[str, ...]:
    """Algorithms for which the key itself is good."""
    if isinstance(key, RSAPublicKey):
        return "RS256", "RS384", "RS512", "PS256", "PS384", "PS512"
    if isinstance(key, EllipticCurvePublicKey):
        return (_CURVES[key.curve.name],) if key.curve.name in _CURVES else ()
    return ("EdDSA",) if isinstance(key, Ed25519PublicKey) else ()
