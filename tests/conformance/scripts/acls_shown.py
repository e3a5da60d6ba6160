"""DescribeAcls, CreateAcls and DeleteAcls of a super user, and DescribeUserScramCredentials."""

from __future__ import annotations

from typing import Any

from tests.conformance.acls import ME, SUPER_USERS
from tests.conformance.acls import SETTINGS as ACL_SETTINGS
from tests.conformance.registry import script
from tests.conformance.session import CLOSED, Session

SETTINGS = ACL_SETTINGS | {SUPER_USERS: ME}
EVERYTHING: dict[str, Any] = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}


async def describe(s: Session, version: int = 3, **changes: Any) -> None:
    """Kafka keeps them in a set: in no order."""
    answer = await s.quietly("describe_acls", version, **(EVERYTHING | changes))
    if answer == CLOSED:
        s.note(f"describe_acls v{version}", CLOSED)
        return
    s.note(f"describe_acls v{version}", (answer.error_code, answer.error_message))
    found = sorted(
        (
            each.resource_type,
            each.resource_name,
            each.pattern_type,
            acl.principal,
            acl.host,
            acl.operation,
            acl.permission_type,
        )
        for each in answer.resources
        for acl in each.acls
    )
    s.note("acls", found)
    s.note("resources", len(answer.resources))


@script(versions=(1, 2, 3))
async def all_acls(s: Session, version: int) -> None:
    await describe(s, version)


FILTERS: dict[str, dict[str, Any]] = {
    "groups": {"resource_type_filter": 3},
    "topics": {"resource_type_filter": 2},
    "cluster": {"resource_type_filter": 4},
    "transactional_ids": {"resource_type_filter": 5},
    "delegation_tokens": {"resource_type_filter": 6},
    "users": {"resource_type_filter": 7},
    "a_name": {"resource_name_filter": "u"},
    "a_name_that_matches": {"resource_name_filter": "read-x", "pattern_type_filter": 2},
    "a_literal_name": {"resource_name_filter": "read-", "pattern_type_filter": 3},
    "a_prefixed_name": {"resource_name_filter": "read-", "pattern_type_filter": 4},
    "literal_ones": {"pattern_type_filter": 3},
    "prefixed_ones": {"pattern_type_filter": 4},
    "matching_ones": {"pattern_type_filter": 2},
    "a_principal": {"principal_filter": "User:nobody"},
    "everybody": {"principal_filter": "User:*"},
    "an_unknown_principal": {"principal_filter": "User:x"},
    "a_host": {"host_filter": "10.1.2.3"},
    "all_hosts": {"host_filter": "*"},
    "an_operation": {"operation": 3},
    "all_operations": {"operation": 2},
    "denials": {"permission_type": 2},
    "permissions": {"permission_type": 3},
    "an_unknown_resource_type": {"resource_type_filter": 0},
    "an_unknown_pattern": {"pattern_type_filter": 0},
    "an_unknown_operation": {"operation": 0},
    "an_unknown_permission": {"permission_type": 0},
}


@script(cases=FILTERS)
async def acls_of(s: Session, case: dict[str, Any]) -> None:
    await describe(s, **case)


@script(versions=(1, 2, 3))
async def acl_that_is_there_is_created_again(s: Session, version: int) -> None:
    there = {"resource_type": 3, "resource_name": "read-", "resource_pattern_type": 4, "principal": ME, "host": "*"}
    await s.ask("create_acls", version, creations=[there | {"operation": 3, "permission_type": 3}])


@script(versions=(1, 2, 3))
async def acls_that_are_not_there_are_deleted(s: Session, version: int) -> None:
    await s.ask("delete_acls", version, filters=[EVERYTHING | {"principal_filter": "User:never"}])


@script()
async def nothing_is_created_or_deleted(s: Session) -> None:
    await s.ask("create_acls", 3, creations=[])
    await s.ask("delete_acls", 3, filters=[])


@script(cases={"all": None, "none": [], "unknown": [{"name": "x"}], "twice": [{"name": "x"}, {"name": "x"}]})
async def credentials_of(s: Session, case: list[dict[str, Any]] | None) -> None:
    await s.ask("describe_user_scram_credentials", 0, users=case)


@script(versions=(0, 1))
async def quotas_where_there_are_none(s: Session, version: int) -> None:
    user = {"entity_type": "user", "match_type": 2, "match": None}
    await s.ask("describe_client_quotas", version, components=[user], strict=False)
    await s.ask("describe_client_quotas", version, components=[], strict=True)
