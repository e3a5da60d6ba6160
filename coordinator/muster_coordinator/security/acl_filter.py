"""Which ACLs a filter selects. Pure.

Source: org.apache.kafka.common.resource.ResourcePatternFilter and org.apache.kafka.common.acl.AccessControlEntryFilter.
"""

from __future__ import annotations

from dataclasses import dataclass

from muster_coordinator.security.acls import WILDCARD, Acl, PatternType

ANY, MATCH = 1, 2
"""Kafka's codes: ANY of each kind; MATCH: every pattern that fits the name."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Codes are Kafka's. None: whatever it is."""

    resource_type: int
    name: str | None
    pattern: int
    principal: str | None
    host: str | None
    operation: int
    permission: int

    def selects(self, acl: Acl) -> bool:
        return (
            self.resource_type in (ANY, acl.resource_type)
            and self._fits(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (ANY, acl.operation)
            and self.permission in (ANY, acl.permission)
        )

    def _fits(self, acl: Acl) -> bool:
        if self.pattern not in (ANY, MATCH, acl.pattern):
            return False
        if self.name is None or self.name == acl.name:
            return True
        if self.pattern != MATCH:
            return False
        return self.name.startswith(acl.name) if acl.pattern is PatternType.PREFIXED else acl.name == WILDCARD
