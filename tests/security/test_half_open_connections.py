"""Ten thousand connections that never say who they are: those of known clients are served on, and new ones get in."""

from __future__ import annotations

import asyncio
import resource
import socket
import ssl
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import pytest_asyncio
from tests.support.certificates import Authority, unchecked_context
from tests.support.certificates import pod as member
from tests.support.kafka import KafkaClient
from tests.support.pod import SoloPod
from tests.support.scram import log_in, users_file

from muster_coordinator.security.handshakes import HandshakeLimits

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

CONNECTIONS = 10_000
LOGINS = 500  # muster.max.logins.per.address, as it is by default
BURST = 250
LONGEST_COMMIT_S = 5.0
DEADLINE_S = 60.0


@pytest.fixture(autouse=True)
def _room_for_descriptors() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = CONNECTIONS + 1000
    if before[1] != resource.RLIM_INFINITY and before[1] < wanted:
        pytest.skip(f"needs {wanted} descriptors: ulimit -n")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], wanted), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest_asyncio.fixture(params=["tls", "plain"])
async def pod(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SoloPod]:
    users = tmp_path / "users.json"
    users.write_text(users_file({"alice": "pencil"}))
    config = ["sasl.enabled.mechanisms=SCRAM-SHA-512", f"muster.users.file={users}"]
    if request.param == "tls":
        tls = Authority(tmp_path / "certificates").write("server", member("pod-0"))
        config.append(f"muster.listener.tls.dir={tls.certificate.parent}")
    async with SoloPod(tmp_path / "data", config=config) as pod:
        yield pod


@contextmanager
def silent(pod: SoloPod) -> Iterator[list[socket.socket]]:
    opened: list[socket.socket] = []
    try:
        yield opened
    finally:
        for each in opened:
            each.close()


async def connect(pod: SoloPod) -> KafkaClient:
    """As an honest client does: again when it is refused for the moment."""
    has_tls = any("tls.dir" in each for each in pod.config)
    context: ssl.SSLContext | None = unchecked_context(None) if has_tls else None
    async with asyncio.timeout(DEADLINE_S):
        while True:
            try:
                client = await KafkaClient.connect(pod.kafka_port, tls=context)
            except OSError:
                await asyncio.sleep(0.05)
                continue
            try:
                assert (await log_in(client, "alice", "pencil")).error_code == 0
                return client
            except (OSError, asyncio.IncompleteReadError):
                await client.close()
                await asyncio.sleep(0.05)


async def test_known_clients_are_served_and_new_ones_get_in(pod: SoloPod) -> None:
    known = await connect(pod)
    fds = await pod.metric("process_open_fds")
    longest, highest = 0.0, 0.0
    with silent(pod) as opened:
        while len(opened) < CONNECTIONS:
            for _ in range(BURST):
                opened.append(socket.create_connection(("127.0.0.1", pod.kafka_port)))
            begin = time.monotonic()
            assert await known.commit("g", len(opened)) == 0
            longest = max(longest, time.monotonic() - begin)
            if len(opened) % 1000 == 0:
                highest = max(highest, await pod.metric("process_open_fds"))
        late = await connect(pod)  # all of them are open on the attacker's side
        assert await late.commit("g", 1) == 0
    assert longest < LONGEST_COMMIT_S
    assert highest < fds + HandshakeLimits().number + LOGINS + BURST
