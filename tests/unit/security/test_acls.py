"""ACLs decide as Kafka's StandardAuthorizer does: rule by rule, and against a naive reading of it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster_coordinator.requests import cluster as w
from muster_coordinator.security.acls import (
    SUPPORTED,
    Acl,
    Authorizer,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from muster_coordinator.security.identity import Identity, normal_host

ALICE = Identity("User:alice", "10.0.0.1")
GROUP, TOPIC = ResourceType.GROUP, ResourceType.TOPIC
ALLOW, DENY = Permission.ALLOW, Permission.DENY
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED


def acl(
    operation: Operation = Operation.READ,
    permission: Permission = ALLOW,
    name: str = "billing",
    pattern: PatternType = LITERAL,
    principal: str = "User:alice",
    host: str = "*",
    resource_type: ResourceType = GROUP,
) -> Acl:
    return Acl(resource_type, pattern, name, principal, host, operation, permission)


def may(*acls: Acl, operation: Operation = Operation.READ, who: Identity = ALICE, name: str = "billing") -> bool:
    return Authorizer(acls).allows(who, operation, GROUP, name)


@pytest.mark.parametrize(
    ("asked", "given_"), list(itertools.product(Operation, Operation)), ids=lambda operation: operation.name
)
def test_permission_and_denial_of_each_operation(asked: Operation, given_: Operation) -> None:
    implied = {
        Operation.DESCRIBE: {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER},
        Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
    }.get(asked, set())
    assert may(acl(given_), operation=asked) is (given_ in {asked, Operation.ALL} | implied)
    everything = acl(Operation.ALL)
    assert may(everything, acl(given_, DENY), operation=asked) is (given_ not in {asked, Operation.ALL})


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        (LITERAL, "billing", True),
        (LITERAL, "bill", False),
        (LITERAL, "*", True),
        (PREFIXED, "bill", True),
        (PREFIXED, "billing", True),
        (PREFIXED, "billings", False),
        (PREFIXED, "*", False),
        (PREFIXED, "x", False),
    ],
)
def test_patterns(pattern: PatternType, name: str, matches: bool) -> None:
    assert may(acl(pattern=pattern, name=name)) is matches


@pytest.mark.parametrize("strong", [acl(), acl(name="*"), acl(name="b", pattern=PREFIXED)])
@pytest.mark.parametrize(
    "denial", [acl(permission=DENY), acl(permission=DENY, name="*"), acl(permission=DENY, name="b", pattern=PREFIXED)]
)
def test_denial_by_any_pattern_beats_permission_by_any(strong: Acl, denial: Acl) -> None:
    assert may(strong)
    assert not may(strong, denial)


@pytest.mark.parametrize(
    ("principal", "host", "matches"),
    [
        ("User:alice", "*", True),
        ("User:*", "*", True),
        ("User:bob", "*", False),
        ("User:alic", "*", False),
        ("User:alice", "10.0.0.1", True),
        ("User:alice", "10.0.0.2", False),
        ("User:*", "10.0.0.2", False),
    ],
)
def test_principal_and_host(principal: str, host: str, matches: bool) -> None:
    assert may(acl(principal=principal, host=host)) is matches


def test_super_user_may_do_what_is_denied() -> None:
    denied = acl(Operation.ALL, DENY, principal="User:*")
    authorizer = Authorizer([denied], frozenset({"User:alice"}))
    assert authorizer.allows(ALICE, Operation.DELETE, GROUP, "billing")
    assert not authorizer.allows(Identity("User:alic", ALICE.host), Operation.DELETE, GROUP, "billing")


def test_resource_without_an_acl_is_open_only_where_it_is_said() -> None:
    other = [acl(name="other"), acl(resource_type=TOPIC), acl(name="other", pattern=PREFIXED)]
    assert Authorizer(other, allow_without_acl=True).allows(ALICE, Operation.READ, GROUP, "billing")
    assert not Authorizer(other).allows(ALICE, Operation.READ, GROUP, "billing")
    for_bob = acl(principal="User:bob")
    assert not Authorizer([for_bob], allow_without_acl=True).allows(ALICE, Operation.READ, GROUP, "billing")


def test_operations_of_a_super_user_are_those_of_a_cluster_without_acls() -> None:
    authorizer = Authorizer([], frozenset({"User:alice"}))
    assert authorizer.operations(ALICE, ResourceType.CLUSTER, "kafka-cluster") == w.ALL_CLUSTER_OPERATIONS
    assert authorizer.operations(ALICE, TOPIC, "t") == w.ALL_TOPIC_OPERATIONS
    assert authorizer.operations(ALICE, GROUP, "g") == w.ALL_GROUP_OPERATIONS


def test_operations_are_those_allowed() -> None:
    authorizer = Authorizer([acl(Operation.DELETE), acl(Operation.WRITE)])
    assert authorizer.operations(ALICE, GROUP, "billing") == 1 << Operation.DELETE | 1 << Operation.DESCRIBE
    assert set(SUPPORTED) == set(ResourceType)


NAMES = ["", "a", "ab", "abc", "b", "*"]
PRINCIPALS = ["User:alice", "User:bob", "User:*"]
HOSTS = ["10.0.0.1", "10.0.0.2", "*"]
ACLS = st.lists(
    st.builds(
        Acl,
        st.sampled_from(ResourceType),
        st.sampled_from(PatternType),
        st.sampled_from(NAMES[1:]),
        st.sampled_from(PRINCIPALS),
        st.sampled_from(HOSTS),
        st.sampled_from(Operation),
        st.sampled_from(Permission),
    ),
    max_size=8,
)


def naive(
    acls: Sequence[Acl],
    supers: frozenset[str],
    no_acl: bool,
    who: Identity,
    action: tuple[Operation, ResourceType, str],
) -> bool:
    """StandardAuthorizerData, written down again without an index: every ACL is looked at for every question."""
    operation, resource_type, name = action
    if who.principal in supers:
        return True
    of_resource = [
        each
        for each in acls
        if each.resource_type == resource_type
        and (
            (each.pattern == LITERAL and each.name in (name, "*"))
            or (each.pattern == PREFIXED and name.startswith(each.name))
        )
    ]
    mine = [
        each for each in of_resource if each.principal in (who.principal, "User:*") and each.host in (who.host, "*")
    ]
    if any(each.permission == DENY and each.operation in (operation, Operation.ALL) for each in mine):
        return False
    for each in mine:
        if each.permission != ALLOW:
            continue
        if each.operation in (operation, Operation.ALL):
            return True
        if operation == Operation.DESCRIBE and each.operation.name in ("READ", "WRITE", "DELETE", "ALTER"):
            return True
        if operation == Operation.DESCRIBE_CONFIGS and each.operation.name == "ALTER_CONFIGS":
            return True
    return no_acl and not of_resource


@given(
    ACLS,
    st.frozensets(st.sampled_from(PRINCIPALS[:2]), max_size=1),
    st.booleans(),
    st.sampled_from(PRINCIPALS[:2]),
    st.sampled_from(HOSTS[:2]),
)
def test_every_question_has_the_answer_of_a_naive_authorizer(
    acls: list[Acl], supers: frozenset[str], no_acl: bool, principal: str, host: str
) -> None:
    authorizer, who = Authorizer(acls, supers, allow_without_acl=no_acl), Identity(principal, host)
    for action in itertools.product(Operation, ResourceType, NAMES):
        assert authorizer.allows(who, *action) is naive(acls, supers, no_acl, who, action), action


@pytest.mark.parametrize(
    ("host", "normal"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "::1"),
        ("0:0:0:0:0:0:0:1", "::1"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("fe80::1%eth0", "fe80::1"),
    ],
)
def test_address_has_one_form(host: str, normal: str) -> None:
    assert normal_host(host) == normal
