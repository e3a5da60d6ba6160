"""The selection of ACLs by the filter of a request. Pure.

Source: org.apache.kafka.common.resource.ResourcePatternFilter and org.apache.kafka.common.acl.AccessControlEntryFilter.
"""

from __future__ import annotations

from muster_coordinator.requests.security import AclFilter
from muster_coordinator.security.acls import WILDCARD, Acl, PatternType

ANY, MATCH = 1, 2
"""Kafka's codes: ANY of each kind; MATCH: every pattern that fits the name."""


def selects(asked: AclFilter, acl: Acl) -> bool:
    return (
        asked.resource_type in (ANY, acl.resource_type)
        and _fits(asked, acl)
        and asked.principal in (None, acl.principal)
        and asked.host in (None, acl.host)
        and asked.operation in (ANY, acl.operation)
        and asked.permission in (ANY, acl.permission)
    )


def _fits(asked: AclFilter, acl: Acl) -> bool:
    if asked.pattern not in (ANY, MATCH, acl.pattern):
        return False
    if asked.name is None or asked.name == acl.name:
        return True
    if asked.pattern != MATCH:
        return False
    return asked.name.startswith(acl.name) if acl.pattern is PatternType.PREFIXED else acl.name == WILDCARD
