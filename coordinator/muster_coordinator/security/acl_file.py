"""ACLs as a file of JSON: `{"acls": [...]}`, with entries such as `{"principal": "User:alice", "operation": "READ",
"resource": "GROUP", "name": "billing"}`.

Words are Kafka's. Also possible: `"pattern": "PREFIXED"` (default `LITERAL`), `"permission": "DENY"` (default `ALLOW`)
and `"host"` (default `*`).
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import TypeVar

import msgspec

from muster_coordinator.security.acls import (
    CLUSTER_NAME,
    SUPPORTED,
    WILDCARD,
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from muster_coordinator.security.identity import normal_host, parse_principal

_Code = TypeVar("_Code", bound=IntEnum)


class AclEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One ACL in words. `acls_of` checks them."""

    principal: str
    operation: str
    resource: str
    name: str
    pattern: str = "LITERAL"
    permission: str = "ALLOW"
    host: str = WILDCARD


class _Entry(AclEntry, frozen=True, forbid_unknown_fields=True):
    """An entry of the file: a field that a person has mistyped is an error."""


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    acls: tuple[_Entry, ...]


def parse_acls(content: bytes) -> tuple[Acl, ...]:
    """Raises ValueError that names the entry and its field."""
    entries = msgspec.json.decode(content, type=_File).acls  # its errors are ValueErrors that name the field
    return acls_of(entries)


def acls_of(entries: Iterable[AclEntry]) -> tuple[Acl, ...]:
    """Raises ValueError that names the entry and its field."""
    return tuple([_acl(entry, f"acls[{number}]") for number, entry in enumerate(entries)])


def _acl(entry: AclEntry, place: str) -> Acl:
    resource_type = _code(ResourceType, entry.resource, f"{place}.resource")
    operation = _code(Operation, entry.operation, f"{place}.operation")
    pattern = _code(PatternType, entry.pattern, f"{place}.pattern")
    if operation is not Operation.ALL and operation not in SUPPORTED[resource_type]:
        raise ValueError(f"{place}.operation {operation.name}: there is no such operation on a {resource_type.name}")
    if not entry.name:
        raise ValueError(f"{place}.name is empty")
    if resource_type is ResourceType.CLUSTER and (entry.name, pattern) != (CLUSTER_NAME, PatternType.LITERAL):
        raise ValueError(f"{place}.name {entry.name!r}: the cluster is called {CLUSTER_NAME}, with a LITERAL pattern")
    try:
        principal = parse_principal(entry.principal)
    except ValueError as error:
        raise ValueError(f"{place}.principal {error}") from None
    host = entry.host
    if host != WILDCARD:
        try:
            host = normal_host(host)
        except ValueError:
            raise ValueError(f"{place}.host {host!r}: write an IP address, or {WILDCARD}") from None
    return Acl(
        resource_type,
        pattern,
        entry.name,
        principal,
        host,
        operation,
        _code(Permission, entry.permission, f"{place}.permission"),
    )


def _code(kind: type[_Code], text: str, place: str) -> _Code:
    try:
        return kind[text]
    except KeyError:
        raise ValueError(f"{place} {text!r}: one of {', '.join(kind.__members__)}") from None
