"""MusterUsers: what of them pods are given, when, and what is said of each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace as with_fields
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from tests.unit.operator.fakes import World, cluster, world
from tests.unit.podapi.fake_server import eventually

from muster_coordinator.podapi.users import AccessImage
from muster_coordinator.security.acl_file import AclEntry
from muster_coordinator.security.quotas import Quotas
from muster_operator.api.conditions import Condition, ConditionType, Reason, find_condition
from muster_operator.api.models import CoordinatorCluster, MusterUser, MusterUserStatus
from muster_operator.api.user import UserQuotas
from muster_operator.plan.access import AccessState, access_of
from muster_operator.plan.actions import GiveAccess, WriteUserStatus
from muster_operator.plan.observation import CallKind, Connection, Observation, PodView
from muster_operator.plan.planner import plan

READ = {"operations": ["READ", "DELETE"], "resource": "GROUP", "name": "billing-", "pattern": "PREFIXED"}
SCRAM = {"SCRAM-SHA-512": "salt=c2FsdA==,stored_key=a,server_key=b,iterations=4096"}


def user(name: str, *acls: dict[str, Any], created: str = "2026-01-01T00:00:00Z", **spec: Any) -> MusterUser:
    declared = {"clusterRef": {"name": "c"}, "acls": acls, **spec}
    meta = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "creationTimestamp": created}
    return msgspec.convert({"metadata": meta, "spec": declared}, MusterUser)


def asking() -> CoordinatorCluster:
    """A cluster that takes MusterUsers."""
    declared = cluster()
    return replace(declared, spec=replace(declared.spec, access=replace(declared.spec.access, muster_users=True)))


def seen(*users: MusterUser, pods: tuple[PodView, ...] = (), access: AccessState | None = None) -> Observation:
    return Observation("ns", "c", asking(), users=users, pods=pods, access=access)


def up(number: int, access: str | None) -> PodView:
    return PodView(f"c-{number}", number, Connection.UP, access=access)


def told(observation: Observation) -> dict[str, Condition]:
    """The Ready condition that is written, by MusterUser."""
    found: dict[str, Condition] = {}
    for each in plan(observation, 0.0):
        if isinstance(each, WriteUserStatus):
            ready = find_condition(each.status.conditions, ConditionType.READY)
            assert ready is not None
            found[each.seen.metadata.name] = ready
    return found


def given(observation: Observation) -> list[GiveAccess]:
    return [each for each in plan(observation, 0.0) if isinstance(each, GiveAccess)]


# -- what pods are to have --------------------------------------------------------------------------------------------


def test_each_operation_is_an_acl_of_the_user_and_the_cluster_needs_no_name() -> None:
    whole = {"operations": ["DESCRIBE"], "resource": "CLUSTER", "permission": "DENY", "host": "10.0.0.7"}
    state = access_of([user("billing", READ, whole)], {"billing": SCRAM}, {})
    assert state.image.users == {"billing": SCRAM}
    assert state.image.acls == (
        AclEntry("User:billing", "READ", "GROUP", "billing-", "PREFIXED"),
        AclEntry("User:billing", "DELETE", "GROUP", "billing-", "PREFIXED"),
        AclEntry("User:billing", "DESCRIBE", "CLUSTER", "kafka-cluster", "LITERAL", "DENY", "10.0.0.7"),
    )


def test_user_without_a_credential_yet_has_its_acls_and_cannot_log_in() -> None:
    state = access_of([user("billing", READ)], {}, {})
    assert (state.image.users, len(state.image.acls)) == ({}, 2)


def test_user_of_another_identity_provider_has_acls_and_no_password_whatever_was_kept() -> None:
    external = user("billing", READ, username="CN=billing,OU=teams", authentication={"type": "External"})
    state = access_of([external], {"billing": SCRAM}, {})
    assert (state.image.users, state.image.external) == ({}, ("CN=billing,OU=teams",))
    assert {each.principal for each in state.image.acls} == {"User:CN=billing,OU=teams"}


def test_pods_are_given_the_quotas_of_users_of_either_kind_that_are_in_force() -> None:
    limited = {"quotas": {"connections": 5, "requestRate": 100}}
    twice = user("twice", username="billing", created="2026-01-02T00:00:00Z", quotas={"connections": 7})
    external = user("cert", username="CN=a", authentication={"type": "External"}, quotas={"requestRate": 3})
    state = access_of([user("billing", **limited), twice, external, user("free")], {"billing": SCRAM}, {})
    assert state.image.quotas == {"billing": Quotas(5, 100), "CN=a": Quotas(None, 3)}
    assert state.image.external == ("CN=a",)


def test_of_two_users_of_one_name_the_older_counts_and_the_other_is_told() -> None:
    old, new = user("zebra", READ, username="billing"), user("billing", created="2026-01-02T00:00:00Z")
    other = {"SCRAM-SHA-512": "other"}
    state = access_of([new, old], {"zebra": SCRAM, "billing": other}, {})
    assert state.image.users == {"billing": SCRAM}
    assert len(state.image.acls) == 2
    assert state.trouble["billing"][0] is Reason.NAME_TAKEN
    assert "zebra" in state.trouble["billing"][1]


@pytest.mark.parametrize(
    "wrong",
    [
        {"operations": ["WRITE"], "resource": "GROUP", "name": "g"},
        {"operations": ["READ"], "resource": "GROUP", "name": "g", "host": "1.2.3"},
    ],
    ids=["operation", "host"],
)
def test_user_with_an_acl_that_a_pod_would_refuse_is_not_in_force_and_others_are(wrong: dict[str, Any]) -> None:
    state = access_of([user("a", READ, wrong), user("b", READ)], {"a": SCRAM, "b": SCRAM}, {})
    assert set(state.image.users) == {"b"}
    assert {each.principal for each in state.image.acls} == {"User:b"}
    assert state.trouble["a"][0] is Reason.INVALID_ACLS


# -- when pods are given it -------------------------------------------------------------------------------------------


def test_only_pods_that_take_it_and_have_something_else_are_given_it_and_once_at_a_time() -> None:
    state = access_of([user("billing", READ)], {"billing": SCRAM}, {})
    pods = (up(0, ""), up(1, state.fingerprint), up(2, None), PodView("c-3", 3, Connection.DOWN, access=""))
    observation = seen(user("billing", READ), pods=pods, access=state)
    assert given(observation) == [GiveAccess(("c-0",), state.image)]
    assert given(with_fields(observation, busy=frozenset({(CallKind.ACCESS, "c-0")}))) == []


def test_nothing_is_given_while_passwords_are_not_known_or_the_cluster_has_files_or_is_suspended() -> None:
    state = access_of([user("billing", READ)], {"billing": SCRAM}, {})
    asked = asking()
    assert given(seen(user("billing", READ), pods=(up(0, ""),))) == []
    files = with_fields(seen(pods=(up(0, ""),), access=state), cluster=cluster())
    assert given(files) == []
    suspended = replace(asked, spec=replace(asked.spec, suspend=True))
    assert given(with_fields(files, cluster=suspended)) == []


# -- what is said -----------------------------------------------------------------------------------------------------


def test_user_is_ready_when_every_pod_that_runs_has_it() -> None:
    billing = user("billing", READ)
    state = access_of([billing], {"billing": SCRAM}, {})
    waiting = seen(billing, pods=(up(0, state.fingerprint), up(1, "")), access=state)
    assert told(waiting)["billing"].reason == Reason.GIVING
    assert "c-1" in told(waiting)["billing"].message
    all_have_it = with_fields(waiting, pods=(up(0, state.fingerprint), up(1, state.fingerprint)))
    ready = told(all_have_it)["billing"]
    assert (ready.status, ready.reason) == ("True", Reason.IN_FORCE)


def test_ready_user_stays_so_while_others_come_and_is_told_again_when_it_changes() -> None:
    billing = user("billing", READ)
    state = access_of([billing], {"billing": SCRAM}, {})
    (first,) = [
        each
        for each in plan(seen(billing, pods=(up(0, state.fingerprint),), access=state), 0.0)
        if isinstance(each, WriteUserStatus)
    ]
    billing = replace(billing, status=first.status)
    more = access_of([billing, user("other")], {"billing": SCRAM}, {})
    assert "billing" not in told(seen(billing, pods=(up(0, state.fingerprint),), access=more))
    changed = replace(billing, metadata=replace(billing.metadata, generation=2))
    assert told(seen(changed, pods=(up(0, ""),), access=more))["billing"].reason == Reason.GIVING


def test_user_that_did_not_decode_and_does_now_is_not_stalled_any_more() -> None:
    stalled = (Condition("Stalled", "True", Reason.INVALID_SPEC), Condition("Ready", "False", Reason.INVALID_SPEC))
    mended = replace(user("billing"), status=MusterUserStatus(conditions=stalled))
    (written,) = (each for each in plan(seen(mended), 0.0) if isinstance(each, WriteUserStatus))
    assert [each.type for each in written.status.conditions] == ["Ready"]


def test_status_has_the_acls_and_quotas_that_all_pods_have_and_not_those_that_they_are_being_given() -> None:
    quotas = {"quotas": {"requestRate": 100}}
    billing = user("billing", READ, **quotas)
    state = access_of([billing], {"billing": SCRAM}, {})
    assert status_of(seen(billing, pods=(up(0, ""),), access=state)).acls == 0
    ready = status_of(seen(billing, pods=(up(0, state.fingerprint),), access=state))
    assert (ready.acls, ready.quotas) == (2, UserQuotas(request_rate=100))
    more = replace(billing, status=ready, spec=replace(billing.spec, acls=(), quotas=UserQuotas(5)))
    changed = replace(more, metadata=replace(billing.metadata, generation=2))
    after = access_of([changed], {"billing": SCRAM}, {})
    giving = status_of(seen(changed, pods=(up(0, state.fingerprint),), access=after))
    assert (giving.acls, giving.quotas) == (2, UserQuotas(request_rate=100))
    done = status_of(seen(changed, pods=(up(0, after.fingerprint),), access=after))
    assert (done.acls, done.quotas) == (0, UserQuotas(5))
    without = with_fields(seen(changed, pods=(up(0, after.fingerprint),)), cluster=cluster())
    assert (status_of(without).acls, status_of(without).quotas) == (0, UserQuotas())


def status_of(observation: Observation) -> MusterUserStatus:
    (written,) = [each for each in plan(observation, 0.0) if isinstance(each, WriteUserStatus)]
    return written.status


def test_what_keeps_a_user_from_being_in_force_is_told() -> None:
    billing = user("billing", READ)
    state = access_of([billing], {}, {})
    pods = (up(0, state.fingerprint),)
    assert told(seen(billing, pods=pods))["billing"].reason == Reason.GIVING
    assert "Secret billing-muster-user" in told(seen(billing, pods=pods, access=state))["billing"].message
    kept = access_of([billing], {"billing": SCRAM}, {"billing": (Reason.PASSWORD_NOT_KEPT, "403")})
    assert told(seen(billing, pods=pods, access=kept))["billing"].reason == Reason.PASSWORD_NOT_KEPT
    files = with_fields(seen(billing, pods=pods), cluster=cluster())
    assert told(files)["billing"].reason == Reason.USERS_FROM_FILES
    nowhere = with_fields(files, cluster=None)
    assert told(nowhere)["billing"].reason == Reason.CLUSTER_NOT_FOUND


# -- with pods, by the loop -------------------------------------------------------------------------------------------


@pytest.fixture
async def town(tmp_path: Path) -> AsyncIterator[World]:
    async with world(tmp_path) as made:
        for pod in made.pods.values():
            pod.given = []
        await made.store.apply(asking())
        made.workload.credentials = {"billing": SCRAM, "other": SCRAM}
        yield made


def has(town: World, *names: str) -> bool:
    """Whether all pods have these users and no others."""
    return all(pod.given and set(pod.given[-1].users) == {*names} for pod in town.pods.values())


async def test_pods_have_users_as_they_come_and_go_and_after_a_restart(town: World) -> None:
    await town.store.apply(user("billing", READ))
    async with town.operator():
        await eventually(lambda: has(town, "billing"))
        await town.store.apply(user("other"))
        await eventually(lambda: has(town, "billing", "other"))
        await town.store.delete(user("billing"))
        await eventually(lambda: has(town, "other"))
        assert ("billing",) in town.workload.kept
        await town.until_ready()
        assert all(len(pod.given or ()) <= 4 for pod in town.pods.values()), "once for each change"
        await town.stop_pod(1)
        restarted = await town.start_pod(1)
        restarted.given = [AccessImage()]
        await eventually(lambda: has(town, "other"))


async def test_status_of_a_user_says_that_it_is_in_force(town: World) -> None:
    await town.store.apply(user("billing", READ))

    async def ready() -> str:
        (found,) = (await town.records()).users or ()
        condition = find_condition(found.status.conditions, ConditionType.READY)
        return condition.reason if condition is not None else ""

    async with town.operator():
        await eventually(lambda: has(town, "billing"))
        async with asyncio.timeout(10):
            while await ready() != "InForce":
                await asyncio.sleep(0.005)
