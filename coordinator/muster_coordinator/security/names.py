"""The user that a client says it is, in the first token of its login. Nothing here checks that. Pure.

What brokers could read in more than one way names nobody: somebody would be taken for another user.
"""

from __future__ import annotations

import base64
import json
from typing import Any

from muster_coordinator.security.oauth import claimed_token
from muster_coordinator.security.sasl import SaslError
from muster_coordinator.security.scram import HASHES, claimed_by_scram
from muster_coordinator.security.users import OAUTHBEARER, PLAIN

_TRIMMED = "".join(map(chr, range(0x21)))
"""The characters that Java's String.trim takes away; Kafka does so with the name in a token."""


def claimed_name(mechanism: str, token: bytes, name_claim: str = "sub") -> str:
    """The name in a token; "" where it has none that can be read: of a mechanism whose tokens do not tell, a delegation
    token, or a login on behalf of somebody else. The server takes the token only if that is who logs in. `name_claim`:
    which claim of OAUTHBEARER's has it."""
    name = ""
    if mechanism == PLAIN:
        name = _of_plain(token)
    elif mechanism == OAUTHBEARER:
        name = _of_claim(token, name_claim)
    elif mechanism in HASHES:
        name = claimed_by_scram(token)
    return name if "\0" not in name else ""


def _of_plain(token: bytes) -> str:
    try:
        parts = token.decode().split("\0")
    except UnicodeDecodeError:
        return ""
    return parts[1] if len(parts) == 3 and parts[0] in ("", parts[1]) else ""


def _of_claim(token: bytes, name_claim: str) -> str:
    """The name that a JSON Web Token (RFC 7519) claims, in its second part."""
    if token.lower().count(b"\x01auth=") != 1:
        return ""
    try:
        for_whom, text = claimed_token(token)
        _, claims, _ = text.split(".")
        content = base64.b64decode(claims + "=" * (-len(claims) % 4), altchars=b"-_", validate=True)
        name = json.loads(content.decode(), object_pairs_hook=_each_once)[name_claim]
        name = name.strip(_TRIMMED) if isinstance(name, str) else ""
        name.encode()
    except (SaslError, ValueError, KeyError, TypeError, RecursionError):
        return ""
    return name if name == name.strip() and for_whom in ("", name) else ""


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Raises ValueError: of two claims of one name each reader takes another one."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a claim twice")
    return found
