"""Passwords of MusterUsers on Kubernetes: made once, adopted, read from Secrets of others, told to nobody else."""

from __future__ import annotations

import base64
import json
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs
from tests.unit.kube.test_kube_certificates import Broken
from tests.unit.kube.test_manifests import cluster
from tests.unit.operator.storm_kube import NAMESPACE

from muster_coordinator.security.scram import HASHES, credential_of, read_credential
from muster_operator.api.conditions import Reason
from muster_operator.api.models import ConsumerGroupStatus, CoordinatorCluster, MusterUser
from muster_operator.kube import users as kube_users
from muster_operator.kube.claims import LOOK_EVERY_S
from muster_operator.kube.client import KubeClient
from muster_operator.kube.store import KubeStore
from muster_operator.kube.users import USERS, KubeUsers
from muster_operator.plan.access import AccessState
from muster_operator.store.port import ClusterKey

CLUSTER: CoordinatorCluster = cluster(access={"musterUsers": True})
SECRETS = f"/api/v1/namespaces/{NAMESPACE}/secrets"
OF_A_PERSON = {"secret": "mine"}
MUSTER_USERS = f"/apis/muster.dev/v1alpha1/namespaces/{NAMESPACE}/musterusers"


class Site:
    """An API server, and operators that come and go."""

    def __init__(self) -> None:
        self.api = Broken()
        self.now = 0.0
        self.passwords = iter(f"password-{number}" for number in range(100))

    def operator(self) -> KubeUsers:
        return KubeUsers(self.api.as_client(), lambda: self.now, lambda: next(self.passwords))

    async def declare(self, name: str, **spec: Any) -> MusterUser:
        body = {"metadata": {"name": name}, "spec": {"clusterRef": {"name": "a"}, **spec}}
        return msgspec.convert(await self.api.create(MUSTER_USERS, body), MusterUser)

    def secret(self, name: str) -> dict[str, str]:
        found = self.api.objects.get("secrets", NAMESPACE, name)
        assert found is not None, f"there is no Secret {name}"
        return {key: base64.b64decode(each).decode("latin-1") for key, each in found["data"].items()}

    async def put_password(self, name: str, password: str) -> None:
        data = {"password": base64.b64encode(password.encode()).decode()}
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data}
        await self.api.apply(f"{SECRETS}/{name}", body)

    def later(self) -> None:
        self.now += LOOK_EVERY_S


@pytest.fixture
def site() -> Site:
    return Site()


def owners(site: Site, name: str) -> list[str]:
    """Uids of those whose deletion deletes the Secret."""
    found = site.api.objects.get("secrets", NAMESPACE, name)
    assert found is not None, f"there is no Secret {name}"
    return [each["uid"] for each in found["metadata"].get("ownerReferences", ())]


def known(users: KubeUsers, *declared: MusterUser) -> AccessState:
    state = users.access(CLUSTER, declared)
    assert state is not None
    return state


def opens(state: AccessState, name: str, password: str) -> bool:
    """Whether all of the user's credentials are of this password."""
    found = state.image.users.get(name, {})
    for mechanism, text in found.items():
        credential = read_credential(text, HASHES[mechanism])
        made = credential_of(password.encode(), HASHES[mechanism], credential.salt, credential.iterations)
        if made != credential:
            return False
    return set(found) == set(HASHES)


async def test_password_is_made_once_and_its_secret_belongs_to_the_user(site: Site) -> None:
    users, billing = site.operator(), await site.declare("billing", username="team.billing")
    assert users.access(CLUSTER, (billing,)) is None, "nothing is known before the record was read"
    assert await users.keep(CLUSTER, (billing,))
    assert site.secret("billing-muster-user") == {"username": "team.billing", "password": "password-0"}
    assert opens(known(users, billing), "team.billing", "password-0")
    assert owners(site, "billing-muster-user") == [billing.metadata.uid]
    site.later()
    assert not await users.keep(CLUSTER, (billing,))


async def test_operator_that_comes_next_adopts_what_there_is(site: Site) -> None:
    first, second, billing = site.operator(), site.operator(), await site.declare("billing")
    await first.keep(CLUSTER, (billing,))
    await second.keep(CLUSTER, (billing,))
    assert opens(known(second, billing), "billing", "password-0")
    assert known(second, billing).fingerprint == known(first, billing).fingerprint


async def test_operator_that_comes_second_in_a_race_takes_the_password_of_the_first(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, billing = site.operator(), site.operator(), await site.declare("billing")
    read, raced = kube_users.read_secret, False

    async def late(client: KubeClient, namespace: str, name: str) -> Any:
        """The first operator stores its record just after the second has looked."""
        nonlocal raced
        found = await read(client, namespace, name)
        if not raced:
            raced = True
            await first.keep(CLUSTER, (billing,))
        return found

    monkeypatch.setattr(kube_users, "read_secret", late)
    await second.keep(CLUSTER, (billing,))
    assert known(second, billing).fingerprint == known(first, billing).fingerprint
    assert opens(known(second, billing), "billing", site.secret("billing-muster-user")["password"])


async def test_removed_user_is_left_out_at_once_and_forgotten_and_one_of_its_name_has_another_password(
    site: Site,
) -> None:
    users, billing, other = site.operator(), await site.declare("billing"), await site.declare("other")
    await users.keep(CLUSTER, (billing, other))
    await site.api.delete(f"{MUSTER_USERS}/billing", billing.metadata.uid)
    assert set(known(users, other).image.users) == {"other"}, "without asking anybody"
    again = await site.declare("billing")
    await users.keep(CLUSTER, (again, other))
    assert opens(known(users, again, other), "billing", "password-2")
    assert site.secret("billing-muster-user")["password"] == "password-2"
    await site.api.delete(f"{MUSTER_USERS}/billing", again.metadata.uid)
    await users.keep(CLUSTER, (other, await site.declare("third")))
    assert set(site.secret(USERS)) == {"other", "third"}


async def test_retained_password_outlives_its_user_and_is_that_of_the_next_one_of_its_name(site: Site) -> None:
    users, billing = site.operator(), await site.declare("billing", reclaimPolicy="Retain")
    other = await site.declare("other")
    await users.keep(CLUSTER, (billing, other))
    assert owners(site, "billing-muster-user") == [], "nothing deletes it with the MusterUser"
    await site.api.delete(f"{MUSTER_USERS}/billing", billing.metadata.uid)
    assert set(known(users, other).image.users) == {"other"}, "the user is out all the same"
    third = await site.declare("third")
    await users.keep(CLUSTER, (other, third))
    assert set(site.secret(USERS)) == {"billing", "other", "third"}
    again = await site.declare("billing")
    await site.operator().keep(CLUSTER, (again, other, third))
    assert site.secret("billing-muster-user")["password"] == "password-0"
    assert owners(site, "billing-muster-user") == [again.metadata.uid], "it says Delete: its password goes with it"
    await site.api.delete(f"{MUSTER_USERS}/billing", again.metadata.uid)
    last = await site.declare("billing")
    await site.operator().keep(CLUSTER, (last, other, third))
    assert site.secret("billing-muster-user")["password"] == "password-3"


async def test_reclaim_policy_that_changes_counts_for_a_password_that_there_is(site: Site) -> None:
    users, billing = site.operator(), await site.declare("billing")
    await users.keep(CLUSTER, (billing,))
    assert owners(site, "billing-muster-user") == [billing.metadata.uid]
    retained = replace(billing, spec=replace(billing.spec, reclaim_policy="Retain"))
    await users.keep(CLUSTER, (retained,))
    assert owners(site, "billing-muster-user") == []
    assert site.secret("billing-muster-user")["password"] == "password-0"


async def test_retained_password_is_none_of_a_user_who_brings_its_own(site: Site) -> None:
    await site.put_password("mine", "pencil")
    users, billing = site.operator(), await site.declare("billing", reclaimPolicy="Retain")
    await users.keep(CLUSTER, (billing,))
    await site.api.delete(f"{MUSTER_USERS}/billing", billing.metadata.uid)
    again = await site.declare("billing", authentication={"secret": "mine"})
    await users.keep(CLUSTER, (again,))
    assert opens(known(users, again), "billing", "pencil")


async def test_password_of_a_secret_of_a_person_is_read_and_read_again_when_it_changes(site: Site) -> None:
    await site.put_password("mine", "pencil")
    users, billing = site.operator(), await site.declare("billing", authentication={"secret": "mine"})
    await users.keep(CLUSTER, (billing,))
    assert opens(known(users, billing), "billing", "pencil")
    assert "pencil" not in site.secret(USERS)["billing"]
    assert site.api.objects.get("secrets", NAMESPACE, "billing-muster-user") is None
    before = known(users, billing).fingerprint
    site.later()
    assert not await users.keep(CLUSTER, (billing,))
    assert known(users, billing).fingerprint == before, "an unchanged one makes no other salt"
    await site.put_password("mine", "crayon")
    site.later()
    assert await users.keep(CLUSTER, (billing,))
    assert opens(known(users, billing), "billing", "crayon")


@pytest.mark.parametrize("wrong", ["refused", "gone"])
async def test_secret_that_cannot_be_read_is_told_and_the_password_before_stays(site: Site, wrong: str) -> None:
    await site.put_password("mine", "pencil")
    users, billing = site.operator(), await site.declare("billing", authentication={"secret": "mine"})
    await users.keep(CLUSTER, (billing,))
    site.later()
    if wrong == "refused":
        site.api.refused = "secrets/mine"
    else:
        found = await site.api.get(f"{SECRETS}/mine")
        await site.api.delete(f"{SECRETS}/mine", found["metadata"]["uid"])
    assert await users.keep(CLUSTER, (billing,))
    assert known(users, billing).trouble["billing"][0] is Reason.PASSWORD_NOT_KEPT
    assert opens(known(users, billing), "billing", "pencil")


async def test_secret_without_a_password_lets_nobody_in(site: Site) -> None:
    await site.put_password("mine", "")
    users, billing = site.operator(), await site.declare("billing", authentication={"secret": "mine"})
    await users.keep(CLUSTER, (billing,))
    assert known(users, billing).image.users == {}
    assert "empty" in known(users, billing).trouble["billing"][1]


async def test_secret_that_cannot_be_written_is_told(site: Site) -> None:
    site.api.refused = "secrets/billing-muster-user"
    users, billing = site.operator(), await site.declare("billing")
    await users.keep(CLUSTER, (billing,))
    assert "billing-muster-user" in known(users, billing).trouble["billing"][1]
    site.api.refused = ""
    site.later()
    await users.keep(CLUSTER, (billing,))
    assert known(users, billing).trouble == {}


@pytest.mark.parametrize("name", ["billing-muster-user", USERS])
@pytest.mark.parametrize("how", ["deleted", "changed"])
async def test_secret_that_was_deleted_or_changed_by_somebody_is_noticed_by_a_look_and_comes_back(
    site: Site, name: str, how: str
) -> None:
    """With the password that clients have. What is made of it, and what of a user that is retained, as well."""
    users, billing = site.operator(), await site.declare("billing")
    await site.put_password("mine", "pencil")
    old, other = await site.declare("old", reclaimPolicy="Retain"), await site.declare("o", authentication=OF_A_PERSON)
    await users.keep(CLUSTER, (billing, old, other))
    await site.api.delete(f"{MUSTER_USERS}/old", old.metadata.uid)
    site.later()
    await users.keep(CLUSTER, (billing, other))
    before, state = site.secret(name), known(users, billing, other)
    assert await users.drifted(lambda _: True) == set()
    secret = await site.api.get(f"{SECRETS}/{name}")
    if how == "deleted":
        await site.api.delete(f"{SECRETS}/{name}", secret["metadata"]["uid"])
    else:
        changed = {"billing": "AAAA"} if name == USERS else {"password": "AAAA"}
        await site.api.replace(f"{SECRETS}/{name}", {**secret, "data": {**secret["data"], **changed}})
    assert await users.drifted(lambda _: True) == {ClusterKey(NAMESPACE, "a")}
    await users.keep(CLUSTER, (billing, other))
    assert site.secret(name) == before
    assert known(users, billing, other).fingerprint == state.fingerprint
    assert await users.drifted(lambda _: True) == set()


async def test_secret_of_a_user_who_is_gone_is_not_looked_for(site: Site) -> None:
    users, billing, other = site.operator(), await site.declare("billing"), await site.declare("other")
    await users.keep(CLUSTER, (billing, other))
    await site.api.delete(f"{MUSTER_USERS}/billing", billing.metadata.uid)
    await users.keep(CLUSTER, (other,))
    secret = await site.api.get(f"{SECRETS}/billing-muster-user")
    await site.api.delete(f"{SECRETS}/billing-muster-user", secret["metadata"]["uid"])
    assert await users.drifted(lambda _: True) == set()


async def test_while_the_record_cannot_be_read_nothing_is_given_and_no_password_is_made(site: Site) -> None:
    users, billing = site.operator(), await site.declare("billing")
    site.api.refused = f"secrets/{USERS}"
    assert not await users.keep(CLUSTER, (billing,))
    assert users.access(CLUSTER, (billing,)) is None
    site.api.refused = ""
    await users.keep(CLUSTER, (billing,))
    other = await site.declare("other")
    site.api.refused = f"secrets/{USERS}"
    await users.keep(CLUSTER, (billing, other))
    assert opens(known(users, billing, other), "billing", "password-0"), "what is in force stays"
    assert known(users, billing, other).trouble["other"][0] is Reason.PASSWORD_NOT_KEPT


async def test_damaged_record_is_no_reason_for_new_passwords(site: Site) -> None:
    users, billing = site.operator(), await site.declare("billing")
    await users.keep(CLUSTER, (billing,))
    await site.api.apply(f"{SECRETS}/{USERS}", {"metadata": {"name": USERS}, "data": {"billing": "AAAA"}})
    assert not await site.operator().keep(CLUSTER, (billing,))
    assert site.secret("billing-muster-user")["password"] == "password-0"


async def test_no_password_is_logged(site: Site) -> None:
    await site.put_password("mine", "pencil")
    with capture_logs() as logs:
        users, billing = site.operator(), await site.declare("billing")
        other = await site.declare("other", authentication={"secret": "mine"})
        await users.keep(CLUSTER, (billing, other))
        site.api.refused = "secrets"
        site.later()
        await users.keep(CLUSTER, (billing, other))
    text = json.dumps(logs, default=str) + repr(known(users, billing, other).trouble)
    assert logs
    assert "password-0" not in text
    assert "pencil" not in text
    assert "stored_key" not in text


# -- which users there are --------------------------------------------------------------------------------------------


async def test_users_are_observed_by_their_cluster_and_unknown_while_they_may_not_be_listed(site: Site) -> None:
    await site.declare("zebra")
    await site.declare("apple")

    class Listing(Broken):
        async def list_all(self, path: str, *, label_selector: str = "") -> Any:
            self._ask("GET", path)
            return await super().list_all(path, label_selector=label_selector)

    api = Listing(site.api.objects)
    api.refused = "musterusers"
    store = KubeStore(api.as_client(), lambda _: 1)
    await store.load()
    key = ClusterKey(NAMESPACE, "a")
    assert (await store.observe(key)).users is None
    assert store.lacking.is_set()
    assert not await store.look_for_lacking(), "it is still refused"
    api.refused = ""
    assert await store.look_for_lacking(), "whoever watches has to begin anew"
    assert not store.lacking.is_set()
    assert [each.metadata.name for each in (await store.observe(key)).users or ()] == ["apple", "zebra"]
    assert await store.clusters() == (key,)


async def test_operator_that_may_not_list_consumer_groups_goes_on_and_moves_none(site: Site) -> None:
    class Listing(Broken):
        async def list_all(self, path: str, *, label_selector: str = "") -> Any:
            self._ask("GET", path)
            return await super().list_all(path, label_selector=label_selector)

    spec = {"clusterRef": {"name": "a"}, "group": "orders", "coordinator": "Muster"}
    path = f"/apis/muster.dev/v1alpha1/namespaces/{NAMESPACE}/consumergroups"
    site.api.objects.handle("POST", path, {}, {"metadata": {"name": "o"}, "spec": spec})
    api = Listing(site.api.objects)
    api.refused = "consumergroups"
    store = KubeStore(api.as_client(), lambda _: 1)
    await store.load()
    key = ClusterKey(NAMESPACE, "a")
    assert (await store.observe(key)).groups is None
    assert (await store.observe(key)).users == ()
    api.refused = ""
    assert await store.look_for_lacking()
    (found,) = (await store.observe(key)).groups or ()
    await store.write_group_status(found, ConsumerGroupStatus(1, coordinator="Muster"))
    (after,) = (await store.observe(key)).groups or ()
    assert after.status.coordinator == "Muster"
