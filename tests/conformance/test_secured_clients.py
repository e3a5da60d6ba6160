"""librdkafka, kafka-python, aiokafka and franz-go over SASL_SSL, by each mechanism: a pod gives them what a broker with
the same settings gives, right and wrong. Kafka's Java client has a file of its own."""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.abc import AbstractTokenProvider
from aiokafka.structs import TopicPartition as AioPartition
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from kafka import KafkaConsumer
from kafka.errors import KafkaTimeoutError
from kafka.net.sasl.oauth import AbstractTokenProvider as PyTokenProvider
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as PyPartition
from tests.support.franz import franz, program
from tests.support.kafka_broker import why_no_kafka_yet

pytest.importorskip("jwt")

from tests.conformance.secured import MODULES, PASSWORD, Allow, Certified, kafka, muster

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(bool(why_no_kafka_yet()), reason=why_no_kafka_yet()),
    pytest.mark.timeout(300),
]

DEADLINE_S = 60.0
COMMITTED = "committed"
NO_COORDINATOR = "_WAIT_COORD"
"""librdkafka's own answer to a commit, without a server's: FindCoordinator, which it may ask for at any time, was
refused first, and `session.timeout.ms` is over."""
TRIES_MS = (800, 4000, 24_000)
"""How long kafka-python tries to log in: longer where a busy machine has not answered yet."""
BACKOFF_MS = 50
"""How long kafka-python waits before it connects again. A broker sends its refusal and closes the connection, and
kafka-python throws away what it receives together with the end of a connection: a busy machine needs many tries."""


@dataclass(frozen=True)
class Asked:
    """How a client logs in, and for which group it commits. `is_refused`: its login is; `is_stranger`: the group is
    none of its own."""

    mechanism: str
    user: str = "alice"
    secret: str = PASSWORD
    group: str = "mine"
    is_refused: bool = False
    is_stranger: bool = False


Commit = Callable[[], Awaitable[str]]
"""Says `committed`, or what the client was told."""
Client = Callable[[Certified, int, Asked], AbstractAsyncContextManager[Commit]]


def cases(c: Certified, client: Client) -> Iterator[tuple[str, Asked]]:
    """aiokafka 0.14 takes the refusal of a token for a good answer, and asks on: Kafka answers any request with
    ILLEGAL_SASL_STATE then, Muster a few, and both close the connection. So it is not asked with bad tokens."""
    for mechanism in MODULES:
        yield f"right {mechanism}", Asked(mechanism)
        yield f"wrong {mechanism}", Asked(mechanism, secret="wrong", is_refused=True)
        yield f"unknown {mechanism}", Asked(mechanism, user="nobody", is_refused=True)
    for name, token in c.tokens.items():
        if client is aiokafka and name != "good":
            continue
        yield f"{name} token", Asked("OAUTHBEARER", secret=token, is_refused=name != "good")
    yield "group of others", Asked("PLAIN", group="others", is_stranger=True)


def without_chance(text: str) -> str:
    """Without addresses and times."""
    return re.sub(r"\(after \d+ms[^)]*\)|[a-z_]+://\S+: |127\.0\.0\.1(:|', )\d+", "", text).strip()


@contextmanager
def logged(name: str) -> Iterator[list[str]]:
    """What a library says in its log meanwhile."""
    lines: list[str] = []

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    logger, handler = logging.getLogger(name), Lines()
    logger.addHandler(handler)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)


# -- the clients ------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def librdkafka(c: Certified, port: int, asked: Asked) -> AsyncIterator[Commit]:
    errors: list[KafkaError] = []
    login = {"sasl.username": asked.user, "sasl.password": asked.secret}
    if asked.mechanism == "OAUTHBEARER":
        login = {"oauth_cb": lambda _: (asked.secret, time.time() + 600)}
    consumer = Consumer(
        {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "group.id": asked.group,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(c.tls.authorities),
            "sasl.mechanisms": asked.mechanism,
            "session.timeout.ms": 6000,
            "error_cb": errors.append,
            **login,
        }
    )

    def refused() -> str:
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            consumer.poll(0.1)
            for error in errors:
                if error.code() == KafkaError._AUTHENTICATION:
                    return f"{error.name()} {without_chance(error.str())}"
        raise AssertionError(f"no refusal: {errors}")

    def join() -> str:
        """A commit waits a minute for a coordinator that it may not ask for."""
        consumer.subscribe(["t"])
        deadline = time.monotonic() + DEADLINE_S
        while (message := consumer.poll(0.1)) is None or message.error() is None:
            assert time.monotonic() < deadline, "nothing was refused"
        return str(message.error().name())

    def commit() -> str:
        try:
            consumer.commit(offsets=[TopicPartition("t", 0, 7)], asynchronous=False)
        except KafkaException as error:
            return str(error.args[0].name())
        return COMMITTED

    try:
        yield lambda: asyncio.to_thread(refused if asked.is_refused else join if asked.is_stranger else commit)
    finally:
        await asyncio.to_thread(consumer.close)


@asynccontextmanager
async def kafka_python(c: Certified, port: int, asked: Asked) -> AsyncIterator[Commit]:
    class Tokens(PyTokenProvider):
        def token(self) -> str:
            return asked.secret

    def made(bootstrap_ms: int) -> KafkaConsumer:
        return KafkaConsumer(
            bootstrap_servers=f"127.0.0.1:{port}",
            group_id=asked.group,
            security_protocol="SASL_SSL",
            ssl_cafile=str(c.tls.authorities),
            ssl_check_hostname=False,
            sasl_mechanism=asked.mechanism,
            sasl_plain_username=asked.user,
            sasl_plain_password=asked.secret,
            sasl_oauth_token_provider=Tokens() if asked.mechanism == "OAUTHBEARER" else None,
            enable_auto_commit=False,
            bootstrap_timeout_ms=bootstrap_ms,
            reconnect_backoff_ms=BACKOFF_MS,
            reconnect_backoff_max_ms=BACKOFF_MS,
        )

    def refused() -> str:
        """It tries again and again, and says why in its log only."""
        for timeout_ms in TRIES_MS:
            with logged("kafka") as lines:
                try:
                    made(timeout_ms).close()
                except KafkaTimeoutError:
                    pass
                else:
                    return "let in"
            told = re.search(r"SaslAuthenticationFailedError.*", "\n".join(lines))
            if told:
                return without_chance(told.group())
        raise AssertionError(f"no refusal: {lines}")

    if asked.is_refused:
        yield lambda: asyncio.to_thread(refused)
        return
    consumer = await asyncio.to_thread(made, int(DEADLINE_S * 1000))
    partition = PyPartition("t", 0)
    consumer.assign([partition])

    def commit() -> str:
        try:
            consumer.commit({partition: OffsetAndMetadata(7, "", -1)})
        except Exception as error:  # whatever a client is told
            return type(error).__name__
        return COMMITTED

    try:
        yield lambda: asyncio.to_thread(commit)
    finally:
        await asyncio.to_thread(consumer.close)


@asynccontextmanager
async def aiokafka(c: Certified, port: int, asked: Asked) -> AsyncIterator[Commit]:
    class Tokens(AbstractTokenProvider):
        async def token(self) -> str:
            return asked.secret

    context = ssl.create_default_context(cafile=str(c.tls.authorities))
    context.check_hostname = False
    consumer = AIOKafkaConsumer(
        bootstrap_servers=f"127.0.0.1:{port}",
        group_id=asked.group,
        security_protocol="SASL_SSL",
        ssl_context=context,
        sasl_mechanism=asked.mechanism,
        sasl_plain_username=asked.user,
        sasl_plain_password=asked.secret,
        sasl_oauth_token_provider=Tokens() if asked.mechanism == "OAUTHBEARER" else None,
        enable_auto_commit=False,
    )

    async def refused() -> str:
        with logged("aiokafka") as lines:
            try:
                await consumer.start()
            except Exception as error:  # whatever a client is told
                return without_chance(f"{type(error).__name__}: {error}; {lines[0] if lines else ''}")
        return "let in"

    async def commit() -> str:
        try:
            await consumer.commit({partition: 7})
        except Exception as error:  # whatever a client is told
            return type(error).__name__
        return COMMITTED

    partition = AioPartition("t", 0)
    try:
        if not asked.is_refused:
            await consumer.start()
            consumer.assign([partition])
        yield refused if asked.is_refused else commit
    finally:
        await consumer.stop()


@asynccontextmanager
async def franz_go(c: Certified, port: int, asked: Asked) -> AsyncIterator[Commit]:
    fields = {"Address": f"127.0.0.1:{port}", "Authorities": str(c.tls.authorities), "Group": asked.group, "Topic": "t"}
    async with franz(**fields, Mechanism=asked.mechanism, User=asked.user, Password=asked.secret) as client:

        async def commit() -> str:
            said = await client.commit()
            return COMMITTED if said.startswith(COMMITTED) else said

        yield commit


CLIENTS: tuple[Client, ...] = (librdkafka, kafka_python, aiokafka, franz_go)


# -- both servers -----------------------------------------------------------------------------------------------------


async def outcomes(c: Certified, port: int, allow: Allow, clients: tuple[Client, ...]) -> dict[str, str]:
    """What each client was told in each case, and when the right to its group is taken away while it is connected."""
    found: dict[str, str] = {}

    async def attempt(client: Client, name: str, asked: Asked) -> None:
        async with client(c, port, asked) as commit:
            found[f"{client.__name__}: {name}"] = await commit()

    await until_in_force(c, port)
    for client in clients:
        for name, asked in cases(c, client):
            await attempt(client, name, asked)
    for client in clients:
        async with asyncio.timeout(DEADLINE_S):
            while (said := await when_taken_away(client, c, port, allow)) == NO_COORDINATOR:
                pass
        found[f"{client.__name__}: right taken away"] = said
    return found


async def when_taken_away(client: Client, c: Certified, port: int, allow: Allow) -> str:
    """What a client's commit is told first when its user has no right to the group any more."""
    async with client(c, port, Asked("SCRAM-SHA-512")) as commit:
        assert await commit() == COMMITTED
        await allow(False)
        while (said := await commit()) == COMMITTED:
            await asyncio.sleep(0.1)
        await allow(True)
    await until_in_force(c, port)
    return said


async def until_in_force(c: Certified, port: int) -> None:
    """A broker's users and ACLs are a moment later than its answer."""
    async with asyncio.timeout(DEADLINE_S), librdkafka(c, port, Asked("SCRAM-SHA-256")) as commit:
        while await commit() != COMMITTED:
            await asyncio.sleep(0.1)


async def test_clients_get_what_a_broker_gives_them(tmp_path: Path) -> None:
    certified = Certified(tmp_path)
    clients = CLIENTS if program() is not None else CLIENTS[:-1]  # the last one needs Go
    async with muster(certified) as (port, allow):
        here = await outcomes(certified, port, allow, clients)
    async with kafka(certified) as (port, allow):
        there = await outcomes(certified, port, allow, clients)
    assert here == there
    for client in clients:
        of_it = {name.partition(": ")[2]: said for name, said in here.items() if name.startswith(client.__name__)}
        right = {name for name, asked in cases(certified, client) if not asked.is_refused and not asked.is_stranger}
        assert {name for name, said in of_it.items() if said == COMMITTED} == right
        for name in ("group of others", "right taken away"):
            assert "GROUPAUTHORIZATIONFAILED" in of_it[name].upper().replace("_", ""), (client.__name__, name)
