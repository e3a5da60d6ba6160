"""What administrators are told of ACLs and users, and that requests change neither."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.scram import users_file
from tests.unit.listener.asked import Asked

from muster_coordinator.listener.handlers.security import SecurityHandlers
from muster_coordinator.requests import security as s
from muster_coordinator.security.acls import Acl, Operation, PatternType, Permission, ResourceType
from muster_coordinator.security.users import parse_users

ALICE = Acl(ResourceType.GROUP, PatternType.PREFIXED, "bill", "User:alice", "*", Operation.READ, Permission.ALLOW)
BOB = Acl(ResourceType.GROUP, PatternType.LITERAL, "*", "User:bob", "10.0.0.1", Operation.ALL, Permission.DENY)
TOPIC = Acl(ResourceType.TOPIC, PatternType.LITERAL, "billing", "User:*", "*", Operation.WRITE, Permission.ALLOW)
USERS = parse_users(users_file({"alice": "a", "bob": "b"}).encode())
FILES = SecurityHandlers(lambda: (ALICE, BOB, TOPIC), lambda: USERS, "/acls.json", "/users.json")
NONE = SecurityHandlers()
POLICY, DISABLED = 44, 54


def ask(handlers: SecurityHandlers, method: str, request: Any) -> Any:
    asked = Asked(request)
    getattr(handlers, method)(request, asked)
    (answer,) = asked.got
    return answer


def filter_(**changes: Any) -> s.AclFilter:
    fields: dict[str, Any] = {"resource_type": 1, "name": None, "pattern": 1, "principal": None, "host": None}
    return s.AclFilter(**fields | {"operation": 1, "permission": 1} | changes)


def binding(acl: Acl) -> s.AclBinding:
    kinds = int(acl.resource_type), acl.name, int(acl.pattern), acl.principal, acl.host
    return s.AclBinding(*kinds, int(acl.operation), int(acl.permission))


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, [TOPIC, BOB, ALICE]),
        ({"resource_type": 3}, [BOB, ALICE]),
        ({"resource_type": 5}, []),
        ({"name": "billing"}, [TOPIC]),
        ({"name": "billing", "pattern": 2}, [TOPIC, BOB, ALICE]),
        ({"name": "bil", "pattern": 2}, [BOB]),
        ({"name": "*", "pattern": 3}, [BOB]),
        ({"name": "bill", "pattern": 4}, [ALICE]),
        ({"pattern": 4}, [ALICE]),
        ({"principal": "User:bob"}, [BOB]),
        ({"principal": "User:*"}, [TOPIC]),
        ({"host": "10.0.0.1"}, [BOB]),
        ({"operation": 3}, [ALICE]),
        ({"operation": 2}, [BOB]),
        ({"permission": 2}, [BOB]),
        ({"permission": 3, "resource_type": 3}, [ALICE]),
    ],
)
def test_filter_selects_what_it_says(changes: dict[str, Any], found: list[Acl]) -> None:
    answer = ask(FILES, "describe_acls", s.DescribeAclsRequest(filter_(**changes)))
    assert (answer.error_code, answer.acls) == (0, tuple(binding(each) for each in found))


def test_change_is_refused_with_its_file_and_what_is_so_already_is_none() -> None:
    new = binding(ALICE).__class__(3, "other", 3, "User:alice", "*", 3, 3)
    answer = ask(FILES, "create_acls", s.CreateAclsRequest((binding(ALICE), new)))
    assert [each.error_code for each in answer.results] == [0, POLICY]
    assert "/acls.json" in answer.results[1].error_message
    filters = (filter_(principal="User:nobody"), filter_(principal="User:bob"))
    answer = ask(FILES, "delete_acls", s.DeleteAclsRequest(filters))
    assert [each.error_code for each in answer.results] == [0, POLICY]
    assert "spec.access.aclsSecret" in answer.results[1].error_message


def test_without_acls_everything_about_them_is_disabled() -> None:
    assert ask(NONE, "describe_acls", s.DescribeAclsRequest(filter_())).error_code == DISABLED
    for method, request in (
        ("create_acls", s.CreateAclsRequest((binding(ALICE),))),
        ("delete_acls", s.DeleteAclsRequest((filter_(),))),
    ):
        assert [each.error_code for each in ask(NONE, method, request).results] == [DISABLED]


def test_users_are_told_with_their_mechanisms_and_nothing_secret() -> None:
    for asked in (None, ()):
        answer = ask(FILES, "describe_users", s.DescribeUserScramCredentialsRequest(asked))
        assert [(each.user, each.credentials) for each in answer.results] == [
            ("alice", ((1, 4096), (2, 4096))),
            ("bob", ((1, 4096), (2, 4096))),
        ]
    answer = ask(FILES, "describe_users", s.DescribeUserScramCredentialsRequest(("carol", "bob", "alice", "bob")))
    assert [(each.user, each.error_code) for each in answer.results] == [("carol", 91), ("bob", 92), ("alice", 0)]
    assert ask(NONE, "describe_users", s.DescribeUserScramCredentialsRequest(None)).results == ()


def test_credentials_are_changed_in_their_file_only() -> None:
    for handlers, named in ((FILES, "/users.json"), (NONE, "muster.users.file")):
        answer = ask(handlers, "alter_users", s.AlterUserScramCredentialsRequest(("alice", "eve")))
        assert [(each.user, each.error_code) for each in answer.results] == [("alice", POLICY), ("eve", POLICY)]
        assert all(named in each.error_message for each in answer.results)
