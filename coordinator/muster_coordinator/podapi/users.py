"""PUT /v1/access: the users and ACLs of Kafka clients, which an operator gives to pods that take them from it (ADR 38).

Other than in the image, nobody can read them back: a pod tells the fingerprint alone.
"""

from __future__ import annotations

import hashlib
from typing import Annotated

import msgspec

from muster_coordinator.podapi.fields import Answer, FencingToken, Request
from muster_coordinator.security.acl_file import AclEntry
from muster_coordinator.security.quotas import Quotas


class AccessImage(Request, frozen=True, omit_defaults=True):
    """All users, with a SCRAM credential for each mechanism as the file of users has it, and all ACLs. `external`:
    users whom a certificate or a token names. `quotas`: of users of either kind."""

    users: Annotated[dict[str, dict[str, str]], msgspec.Meta(max_length=100_000)] = {}
    acls: Annotated[tuple[AclEntry, ...], msgspec.Meta(max_length=100_000)] = ()
    external: Annotated[tuple[str, ...], msgspec.Meta(max_length=100_000)] = ()
    quotas: Annotated[dict[str, Quotas], msgspec.Meta(max_length=100_000)] = {}

    @property
    def fingerprint(self) -> str:
        """The same for the same content, in whatever order it came."""
        acls = tuple(sorted(self.acls, key=msgspec.structs.astuple))
        ordered = msgspec.structs.replace(self, acls=acls, external=tuple(sorted(self.external)))
        return hashlib.sha256(msgspec.json.encode(ordered, order="deterministic")).hexdigest()[:16]


class AccessRequest(Request, frozen=True):
    token: FencingToken
    access: AccessImage


class AccessAnswer(Answer, frozen=True):
    """Fingerprint of what is in force on the pod now."""

    fingerprint: str
