"""Which user a client says it is, in the tokens of its login. Nothing here checks that. Pure."""

from __future__ import annotations

import base64
import json

from muster_coordinator.security.oauth import claimed_token
from muster_coordinator.security.sasl import SaslError
from muster_coordinator.security.scram import HASHES, claimed_by_scram
from muster_coordinator.security.users import OAUTHBEARER, PLAIN


def claimed_name(mechanism: str, token: bytes, name_claim: str = "sub") -> str:
    """The name in a token; "" where it has none: of a mechanism whose tokens do not tell, or not its first token. The
    server takes the token only if that is who logs in. `name_claim`: which claim of OAUTHBEARER's has it."""
    if mechanism == PLAIN:
        parts = token.split(b"\0")
        return parts[1].decode(errors="replace") if len(parts) == 3 else ""
    if mechanism == OAUTHBEARER:
        return _of_claim(token, name_claim)
    return claimed_by_scram(token) if mechanism in HASHES else ""


def _of_claim(token: bytes, name_claim: str) -> str:
    """Of a JSON Web Token (RFC 7519), whose second part is its claims."""
    try:
        _, claims, _ = claimed_token(token).split(".")
        read = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
        name = read[name_claim]
    except (SaslError, ValueError, KeyError, TypeError, RecursionError):
        return ""
    return name.strip() if isinstance(name, str) else ""
