"""The principal that the subject of a client's certificate stands for, by Kafka's `ssl.principal.mapping.rules`. Pure.

Source: org.apache.kafka.common.security.ssl.SslPrincipalMapper. A rule is `DEFAULT`, or `RULE:pattern/replacement/`
with `L` or `U` behind it for lower or upper case. The first whose pattern matches the whole name counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

_RULE = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)"
_RULES = re.compile(rf"\s*(?:{_RULE})\s*(?:,\s*|$)")
_REFERENCE = re.compile(r"\\(.)|\$(\d+)", re.DOTALL)

_KEYWORDS = {
    "commonName": "CN",
    "countryName": "C",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
"""Names of OpenSSL -> those of RFC 2253, which Java writes. Others keep OpenSSL's name, where Java writes numbers."""

Mapping = Callable[[str], str]
"""Makes the name of a user of a distinguished name. Raises NoPrincipalError."""


class NoPrincipalError(Exception):
    """The certificate's subject is nobody's; the connection is not let in."""


def parse_mapping(text: str) -> Mapping:
    """`text`: rules between commas; without any the whole name is the user's, as with DEFAULT. Raises ValueError."""
    rules: list[Callable[[str], str | None]] = []
    position = 0
    text = text.strip()
    while position < len(text):
        found = _RULES.match(text, position)
        if found is None:
            raise ValueError(f"no rule at {text[position:]!r}: write DEFAULT, or RULE:pattern/replacement/ and L or U")
        position = found.end()
        rules.append(_rule(found[2], found[3], found[4]) if found[1] is None else lambda name: name)

    def mapping(name: str) -> str:
        if not rules:
            return name
        for rule in rules:
            user = rule(name)
            if user:
                return user
        raise NoPrincipalError("no rule of ssl.principal.mapping.rules applies to the certificate's subject")

    return mapping


def _rule(pattern_text: str, replacement: str, case: str) -> Callable[[str], str | None]:
    try:
        pattern = re.compile(pattern_text)
    except re.error as error:
        raise ValueError(f"{pattern_text!r} is no pattern: {error}") from None

    def expanded(match: re.Match[str]) -> str:
        def part(reference: re.Match[str]) -> str:
            if reference[2] is None:
                return reference[1]
            number = int(reference[2])
            return (match[number] or "") if number <= pattern.groups else reference[0]

        return _REFERENCE.sub(part, replacement)

    def rule(name: str) -> str | None:
        if pattern.fullmatch(name) is None:
            return None
        user = pattern.sub(expanded, name)
        return user.lower() if case == "L" else user.upper() if case == "U" else user

    return rule


def distinguished_name(certificate: dict[str, Any]) -> str:
    """The subject of a certificate of `ssl`'s, as RFC 2253 writes it: `CN=billing,OU=teams,O=example`. "": it has
    none."""
    return ",".join(
        "+".join(f"{_KEYWORDS.get(kind, kind)}={_escaped(value)}" for kind, value in part)
        for part in reversed(certificate.get("subject", ()))
    )


def _escaped(value: str) -> str:
    value = re.sub(r'([,+"\\<>;])', r"\\\1", value)
    if value.startswith(("#", " ")):
        value = "\\" + value
    if value.endswith(" ") and len(value) > 1:
        value = value[:-1] + "\\ "
    return value
