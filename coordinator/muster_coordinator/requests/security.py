"""Requests about ACLs and about credentials of users. Names are those of Kafka's message schemas; codes are as there.

`throttle_time_ms` is 0 and so absent, as in `requests.cluster`.
"""

from __future__ import annotations

import msgspec


class _Message(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Immutable, cheap to build, not tracked by the garbage collector (messages hold no cycles)."""


# -- DescribeAcls (29), CreateAcls (30), DeleteAcls (31) --------------------------------------------------------------


class AclBinding(_Message, frozen=True):
    """An ACL and what it is about."""

    resource_type: int
    name: str
    pattern: int
    principal: str
    host: str
    operation: int
    permission: int


class AclFilter(_Message, frozen=True):
    """None, and ANY (1) of the codes: whatever it is. MATCH (2) of the patterns: every one that fits the name."""

    resource_type: int
    name: str | None
    pattern: int
    principal: str | None
    host: str | None
    operation: int
    permission: int


class DescribeAclsRequest(_Message, frozen=True):
    filter: AclFilter


class DescribeAclsResponse(_Message, frozen=True):
    """`acls`: those of one resource and pattern stand together."""

    error_code: int = 0
    error_message: str | None = ""  # of a success too, as in Kafka
    acls: tuple[AclBinding, ...] = ()


class CreateAclsRequest(_Message, frozen=True):
    creations: tuple[AclBinding, ...]


class AclChange(_Message, frozen=True):
    """The outcome of one creation, or of one filter of a deletion."""

    error_code: int = 0
    error_message: str | None = None


class CreateAclsResponse(_Message, frozen=True):
    results: tuple[AclChange, ...]


class DeleteAclsRequest(_Message, frozen=True):
    filters: tuple[AclFilter, ...]


class DeleteAclsResponse(_Message, frozen=True):
    """No ACL is ever deleted by a request, so a filter has nothing but its error."""

    results: tuple[AclChange, ...]


# -- DescribeClientQuotas (48) ----------------------------------------------------------------------------------------


class DescribeClientQuotasRequest(_Message, frozen=True):
    pass


class DescribeClientQuotasResponse(_Message, frozen=True):
    """The answer that there are none, without an error."""

    error_code: int = 0
    error_message: str | None = ""


# -- DescribeUserScramCredentials (50), AlterUserScramCredentials (51) ------------------------------------------------


class DescribeUserScramCredentialsRequest(_Message, frozen=True):
    users: tuple[str, ...] | None  # None: all


class UserCredentials(_Message, frozen=True):
    """`credentials`: (mechanism, iterations)."""

    user: str
    error_code: int = 0
    error_message: str | None = None
    credentials: tuple[tuple[int, int], ...] = ()


class DescribeUserScramCredentialsResponse(_Message, frozen=True):
    error_code: int = 0
    error_message: str | None = ""  # of a success too, as in Kafka
    results: tuple[UserCredentials, ...] = ()


class AlterUserScramCredentialsRequest(_Message, frozen=True):
    """The users that a request is about. What it says of passwords is not even read."""

    users: tuple[str, ...]


class AlterUserScramCredentialsResponse(_Message, frozen=True):
    results: tuple[UserCredentials, ...]
