"""The owner of a connection: a principal of Kafka's form, and the address that it came from."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

ANONYMOUS = "User:ANONYMOUS"
"""The principal of a connection that nobody asked who it is (KafkaPrincipal.ANONYMOUS)."""


@dataclass(frozen=True, slots=True)
class Identity:
    """`principal`: `User:<name>`. `host`: an IP address as `normal_host` writes it, "" if the connection has none.
    `mechanism`: of SASL, by which the client has said so; "": by none. `by`: the user who has logged in on behalf of
    this one, such as a gateway's; "": nobody else."""

    principal: str
    host: str
    mechanism: str = ""
    by: str = ""


def normal_host(host: str) -> str:
    """An IP address in one form whatever form it came in: `::1` for `0:0:0:0:0:0:0:1`, IPv4 for an IPv4 address that
    IPv6 carries, no zone. Raises ValueError for what is no address."""
    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)


def parse_principal(text: str) -> str:
    """`text`, if it is of the form `User:<name>`. Raises ValueError."""
    kind, colon, name = text.partition(":")
    if kind != "User" or not colon or not name:
        raise ValueError(f"{text!r}: write User:<name>")
    return text


def parse_principals(text: str) -> frozenset[str]:
    """Principals between semicolons, as in Kafka's `super.users`. Raises ValueError."""
    return frozenset(parse_principal(part.strip()) for part in text.split(";") if part.strip())
