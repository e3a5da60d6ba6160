"""franz-go over SASL_SSL: each mechanism, what it is told when something is wrong, and rights that change meanwhile."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

pytest.importorskip("jwt")

from tests.support.certificates import Authority
from tests.support.certificates import pod as member
from tests.support.franz import franz, program
from tests.support.pod import SoloPod
from tests.support.scram import users_file
from tests.support.secured_pod import SecuredPod
from tests.support.tokens import AUDIENCE, ISSUER, Provider, write_keys

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

PASSWORD = "a-Password-of-this-test"
PASSWORDS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PROVIDER = Provider()
GROUP = {"principal": "User:alice", "operation": "READ", "resource": "GROUP", "name": "mine"}
TOPIC = {"principal": "User:alice", "operation": "READ", "resource": "TOPIC", "name": "t"}


@dataclass
class Secured(SecuredPod):
    acls: Path

    def allow(self, *acls: dict[str, str]) -> None:
        new = self.acls.with_suffix(".new")
        new.write_text(json.dumps({"acls": acls}))
        os.replace(new, self.acls)

    def asked(self, mechanism: str, password: str = "", user: str = "alice", **more: Any) -> dict[str, Any]:
        if not password:
            password = PROVIDER.token() if mechanism == "OAUTHBEARER" else PASSWORD
        who = {"Mechanism": mechanism, "User": user, "Password": password}
        return {"Address": self.address, "Authorities": self.ca, "Group": "mine", "Topic": "t", **who, **more}


@pytest_asyncio.fixture
async def secured(tmp_path: Path) -> AsyncIterator[Secured]:
    if program() is None:
        pytest.skip("needs Go and the modules of franz-go: https://go.dev/dl")
    server = Authority(tmp_path / "certificates").write("server", member("pod-0"))
    (tmp_path / "users.json").write_text(users_file({"alice": PASSWORD}))
    write_keys(tmp_path / "keys.json", PROVIDER)
    acls = tmp_path / "acls.json"
    acls.write_text(json.dumps({"acls": [GROUP, TOPIC]}))
    settings = [
        f"muster.listener.tls.dir={server.certificate.parent}",
        f"muster.acls.file={acls}",
        f"muster.users.file={tmp_path / 'users.json'}",
        f"sasl.enabled.mechanisms={','.join(PASSWORDS)},OAUTHBEARER",
        f"sasl.oauthbearer.jwks.endpoint.url={(tmp_path / 'keys.json').as_uri()}",
        f"sasl.oauthbearer.expected.audience={AUDIENCE}",
        f"sasl.oauthbearer.expected.issuer={ISSUER}",
        "connection.failed.authentication.delay.ms=0",
        "group.initial.rebalance.delay.ms=0",
    ]
    async with SoloPod(tmp_path / "data", topics={"t": 1}, config=settings) as pod:
        yield Secured(pod, server, acls)


async def test_each_mechanism_commits_and_reads_it_back(secured: Secured) -> None:
    for mechanism in (*PASSWORDS, "OAUTHBEARER"):
        async with franz(**secured.asked(mechanism)) as client:
            assert [await client.commit() for _ in range(2)] == ["committed 1", "committed 2"], mechanism


async def test_member_joins_its_group_and_may_not_join_another(secured: Secured) -> None:
    async with franz(**secured.asked("SCRAM-SHA-512", Join=True)) as client:
        assert await client.said() == "joined"
    async with franz(**secured.asked("SCRAM-SHA-512", Join=True, Group="other")) as client:
        assert await client.said() == "refused GROUP_AUTHORIZATION_FAILED"


async def test_wrong_password_unknown_user_and_expired_token_are_told_as_failed_logins(secured: Secured) -> None:
    wrong = [secured.asked(mechanism, "wrong") for mechanism in PASSWORDS]
    wrong += [secured.asked(mechanism, user="nobody") for mechanism in PASSWORDS]
    wrong.append(secured.asked("OAUTHBEARER", PROVIDER.token(lifetime_s=-60, iat=1)))
    for asked in wrong:
        async with franz(**asked) as client:
            assert await client.commit() == "refused SASL_AUTHENTICATION_FAILED", asked["Mechanism"]


async def test_right_that_is_taken_away_while_it_is_connected_is_told_and_back_when_given(secured: Secured) -> None:
    async with franz(**secured.asked("SCRAM-SHA-512")) as client:
        assert await client.commit() == "committed 1"
        secured.allow(TOPIC)
        while (said := await client.commit()).startswith("committed"):
            pass
        assert said == "refused GROUP_AUTHORIZATION_FAILED"
        secured.allow(GROUP, TOPIC)
        while (said := await client.commit()) == "refused GROUP_AUTHORIZATION_FAILED":
            pass
        assert said.startswith("committed")
