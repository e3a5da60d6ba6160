"""MusterUsers on Kubernetes: declared by kubectl, in force on all pods a moment later, and out as fast."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from tests.support.kafka import KafkaClient
from tests.support.kube import install_operator, kubectl
from tests.support.muster_cluster import Pod, wait_until
from tests.support.platform_team import INTERNAL, READY_S, TOPIC, Cared
from tests.support.scram import log_in

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(400)]

NAMESPACE, NAME = "muster-users", "guarded"
AUTHENTICATION_FAILED, GROUP_AUTHORIZATION_FAILED, NOT_COORDINATOR = 58, 30, 16
GROUP = {"operations": ["READ"], "resource": "GROUP", "name": "billing-", "pattern": "PREFIXED"}
TOPICS = {"operations": ["READ"], "resource": "TOPIC", "name": TOPIC}
SOON_S = 15.0
"""A moment on a slow machine. Files of a mounted Secret change after a minute."""


@pytest.fixture(scope="module")
def guarded(custom_resources: None) -> Iterator[Cared]:
    install_operator()
    kubectl("create", "namespace", NAMESPACE)
    cluster = Cared(NAMESPACE, NAME)
    try:
        listener = {**INTERNAL, "authentication": {"mechanisms": ["SCRAM-SHA-512"]}}
        settings = {"connection.failed.authentication.delay.ms": "0"}
        access = {"musterUsers": True}
        cluster.apply(pods=2, partitions=2, factor=1, listeners=[listener], access=access, settings=settings)
        cluster.wait_whole()
        yield cluster
    finally:
        print(cluster.summary())
        print(kubectl("get", "musterusers", "-n", NAMESPACE, "-o", "yaml", check=False).stdout)
        print(kubectl("logs", "-n", "muster-system", "deployment/muster-operator", "--tail=20", check=False).stdout)
        kubectl("delete", "namespace", NAMESPACE, "--wait=false")


def declare(cluster: Cared, name: str, *acls: dict[str, Any], **spec: Any) -> None:
    body = {
        "apiVersion": "muster.dev/v1alpha1",
        "kind": "MusterUser",
        "metadata": {"name": name},
        "spec": {"clusterRef": {"name": NAME}, "acls": acls, **spec},
    }
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(body))


def ready(cluster: Cared, name: str) -> dict[str, str]:
    found = json.loads(cluster.kubectl("get", "musteruser", name, "-o", "json"))
    return next(each for each in found["status"]["conditions"] if each["type"] == "Ready")


def wait_in_force(cluster: Cared, name: str) -> None:
    wait_until(lambda: ready(cluster, name)["reason"] == "InForce", f"user {name} is in force", READY_S)


def password_of(cluster: Cared, name: str) -> str:
    secret = json.loads(cluster.kubectl("get", "secret", f"{name}-muster-user", "-o", "json"))
    assert base64.b64decode(secret["data"]["username"]).decode() == name
    return base64.b64decode(secret["data"]["password"]).decode()


async def connected(pod: Pod) -> KafkaClient:
    return KafkaClient(*await asyncio.open_connection(pod.address, 9092))


async def code_of_login(pod: Pod, user: str, password: str) -> int:
    client = await connected(pod)
    answer = await log_in(client, user, password)
    await client.close()
    return int(answer.error_code)


async def until(holds: Callable[[], Awaitable[bool]]) -> float:
    """How long it took."""
    began = time.monotonic()
    async with asyncio.timeout(SOON_S):
        while not await holds():
            await asyncio.sleep(0.02)
    return time.monotonic() - began


async def on_all(cluster: Cared, user: str, password: str) -> list[KafkaClient]:
    clients = [await connected(pod) for pod in cluster.pods()]
    for client in clients:
        assert (await log_in(client, user, password)).error_code == 0
    return clients


def test_declared_user_comes_in_and_is_out_in_a_moment_on_open_connections(guarded: Cared) -> None:
    declare(guarded, "billing", GROUP, TOPICS)
    declare(guarded, "other", GROUP, TOPICS)
    for each in ("billing", "other"):
        wait_in_force(guarded, each)
    password = password_of(guarded, "billing")

    async def scenario() -> tuple[float, float]:
        clients = await on_all(guarded, "billing", password)
        others = await on_all(guarded, "other", password_of(guarded, "other"))
        for client in (*clients, *others):
            assert await client.commit("billing-1", 5, topic=TOPIC) in (0, NOT_COORDINATOR)
            assert await client.commit("payroll", 5, topic=TOPIC) == GROUP_AUTHORIZATION_FAILED
        assert await code_of_login(guarded.pods()[0], "billing", password + "x") == AUTHENTICATION_FAILED

        await asyncio.to_thread(declare, guarded, "billing", TOPICS)

        async def refused() -> bool:
            codes = [await client.commit("billing-1", 6, topic=TOPIC) for client in clients]
            return codes == [GROUP_AUTHORIZATION_FAILED] * len(clients)

        revoked_s = await until(refused)
        await asyncio.to_thread(guarded.kubectl, "delete", "musteruser", "billing", "--wait=false")
        began = time.monotonic()
        async with asyncio.timeout(SOON_S):
            assert [await client.reader.read() for client in clients] == [b""] * len(clients)  # closed
        removed_s = time.monotonic() - began
        for pod in guarded.pods():
            assert await code_of_login(pod, "billing", password) == AUTHENTICATION_FAILED
        for client in others:
            assert await client.commit("billing-1", 7, topic=TOPIC) in (0, NOT_COORDINATOR)
            await client.close()
        return revoked_s, removed_s

    revoked_s, removed_s = asyncio.run(scenario())
    print(f"a right was gone after {revoked_s:.2f} s, a user after {removed_s:.2f} s")
    wait_until(lambda: "billing" not in guarded.kubectl("get", "secrets", "-o", "name"), "its Secret is deleted too")


def test_pod_that_is_new_has_the_users_before_clients_are_sent_to_it(guarded: Cared) -> None:
    declare(guarded, "second", GROUP, TOPICS)
    wait_in_force(guarded, "second")
    pod = guarded.pods()[0]
    guarded.delete(pod)
    wait_until(lambda: guarded.replaced(pod) and guarded.pod(pod.name).ready, "the pod is replaced", READY_S)
    password = password_of(guarded, "second")
    assert asyncio.run(until(lambda: _logs_in(guarded.pod(pod.name), "second", password))) < SOON_S


async def _logs_in(pod: Pod, user: str, password: str) -> bool:
    return await code_of_login(pod, user, password) == 0


def test_what_is_wrong_with_a_user_is_told_and_others_go_on(guarded: Cared) -> None:
    declare(guarded, "third", GROUP)
    wait_in_force(guarded, "third")
    declare(guarded, "twice", GROUP, username="third")
    declare(guarded, "wrong", {"operations": ["WRITE"], "resource": "GROUP", "name": "g"})
    declare(guarded, "lost", GROUP, authentication={"type": "Password", "secret": "nowhere"})
    for name, reason in (("twice", "NameTaken"), ("wrong", "InvalidAcls"), ("lost", "PasswordNotKept")):
        wait_until(lambda name=name, reason=reason: ready(guarded, name)["reason"] == reason, f"{name} says {reason}")  # type: ignore[misc]
    assert ready(guarded, "third")["status"] == "True"
    password = password_of(guarded, "third")
    assert asyncio.run(code_of_login(guarded.pods()[0], "third", password)) == 0
    both = guarded.patch(access={"usersSecret": "mine"}, check=False)
    assert "users have one source" in both
