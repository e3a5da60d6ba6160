"""The fields of an ACL and of a filter of ACLs, which three APIs have in common."""

from __future__ import annotations

from muster_coordinator.requests.security import AclBinding, AclFilter
from muster_coordinator.wire.codec import Reader, Writer
from muster_coordinator.wire.errors import WireError

_RESOURCE_TYPES, _PATTERNS, _OPERATIONS, _PERMISSIONS = 7, 4, 15, 3
"""Highest codes that Kafka knows; another one is UNKNOWN there, and closes the connection."""


def read_filter(reader: Reader) -> AclFilter:
    found = AclFilter(
        _code(reader, _RESOURCE_TYPES),
        reader.nullable_string(),
        _code(reader, _PATTERNS),
        reader.nullable_string(),
        reader.nullable_string(),
        _code(reader, _OPERATIONS),
        _code(reader, _PERMISSIONS),
    )
    reader.tagged_fields()
    return found


def read_acl(reader: Reader) -> AclBinding:
    found = AclBinding(
        _code(reader, _RESOURCE_TYPES),
        reader.string(),
        _code(reader, _PATTERNS),
        reader.string(),
        reader.string(),
        _code(reader, _OPERATIONS),
        _code(reader, _PERMISSIONS),
    )
    reader.tagged_fields()
    return found


def write_entry(writer: Writer, acl: AclBinding) -> None:
    """Writes the entry without what it is about."""
    writer.string(acl.principal)
    writer.string(acl.host)
    writer.int8(acl.operation)
    writer.int8(acl.permission)
    writer.tagged_fields()


def _code(reader: Reader, highest: int) -> int:
    code = reader.int8()
    if not 1 <= code <= highest:
        raise WireError(f"the code {code} of an ACL is unknown")
    return code
