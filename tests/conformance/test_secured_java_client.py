"""Kafka's own Java client over SASL_SSL, by each mechanism: Muster gives it what a Kafka broker with the same settings
gives, right and wrong."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.support.kafka_broker import java, why_no_kafka_yet

pytest.importorskip("jwt")

from tests.conformance.secured import MODULES, PASSWORD, Allow, Certified, kafka, muster

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(bool(why_no_kafka_yet()), reason=why_no_kafka_yet()),
    pytest.mark.timeout(300),
]

SOURCE = Path(__file__).parents[1] / "support" / "SecuredClient.java"
TOKENS = "org.apache.kafka.common.security.oauthbearer"
ANSWER_S = 60.0


def properties(c: Certified, name: str, port: int, mechanism: str, login: str, group: str = "mine") -> Path:
    lines = {
        "bootstrap.servers": f"127.0.0.1:{port}",
        "group.id": group,
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(c.tls.authorities),
        "ssl.endpoint.identification.algorithm": "",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": login,
    }
    if mechanism == "OAUTHBEARER":
        lines["sasl.jaas.config"] = f"{TOKENS}.OAuthBearerLoginModule required;"
        lines["sasl.login.callback.handler.class"] = f"{TOKENS}.OAuthBearerLoginCallbackHandler"
        lines["sasl.oauthbearer.token.endpoint.url"] = (c.root / login).as_uri()
    file = c.root / f"{name}-{port}.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    return file


def login(mechanism: str, user: str, password: str) -> str:
    return f'{MODULES[mechanism]} required username="{user}" password="{password}";'


class Java:
    """The client's process."""

    def __init__(self, certified: Certified) -> None:
        urls = ",".join((certified.root / name).as_uri() for name in certified.tokens)
        self._arguments = (f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={urls}", str(SOURCE))
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Java:
        self._process = await asyncio.create_subprocess_exec(
            *java(*self._arguments),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._process is not None
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()

    async def outcome(self, line: str) -> str:
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{line}\n".encode())
        async with asyncio.timeout(ANSWER_S):
            while True:
                said = (await self._process.stdout.readline()).decode()
                assert said, "the client ended"
                if said.startswith("OUTCOME "):
                    return said.removeprefix("OUTCOME ").strip()


async def outcomes(c: Certified, port: int, allow: Allow) -> dict[str, str]:
    found: dict[str, str] = {}
    async with Java(c) as client:

        async def attempt(name: str, mechanism: str, how: str, group: str = "mine") -> None:
            found[name] = await client.outcome(str(properties(c, name, port, mechanism, how, group)))

        await attempt("first", "PLAIN", login("PLAIN", "alice", PASSWORD))
        async with asyncio.timeout(ANSWER_S):  # Kafka's ACLs and users are in force a moment later
            while found["first"] != "committed":
                await attempt("first", "PLAIN", login("PLAIN", "alice", PASSWORD))
        for mechanism in MODULES:
            await attempt(f"right {mechanism}", mechanism, login(mechanism, "alice", PASSWORD))
            await attempt(f"wrong {mechanism}", mechanism, login(mechanism, "alice", "wrong"))
            await attempt(f"unknown {mechanism}", mechanism, login(mechanism, "nobody", PASSWORD))
        for name in c.tokens:
            await attempt(f"{name} token", "OAUTHBEARER", name)
        await attempt("group of others", "PLAIN", login("PLAIN", "alice", PASSWORD), "others")
        await attempt("before", "SCRAM-SHA-512", login("SCRAM-SHA-512", "alice", PASSWORD))
        await allow(False)
        async with asyncio.timeout(ANSWER_S):
            while (after := await client.outcome("again")) == "committed":
                await asyncio.sleep(0.2)
        found["right taken away"] = after
    return found


async def test_java_client_gets_what_a_broker_gives_it(tmp_path: Path) -> None:
    certified = Certified(tmp_path)
    async with muster(certified) as (port, allow):
        here = await outcomes(certified, port, allow)
    async with kafka(certified) as (port, allow):
        there = await outcomes(certified, port, allow)
    assert here == there
    assert {name for name, outcome in here.items() if outcome == "committed"} == {
        "first",
        "before",
        "good token",
        *(f"right {mechanism}" for mechanism in MODULES),
    }
    assert here["right taken away"].startswith("GroupAuthorizationException")
    assert here["wrong PLAIN"].startswith("SaslAuthenticationException")
