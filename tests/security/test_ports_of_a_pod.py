"""Attacks on the ports of a pod with TLS: API, peer network, probes, metrics. Each must fail, and the pod goes on."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("cryptography")

import aiohttp
from tests.support.certificates import CLUSTER, HOUR, Authority, operator, pod, reader, spoken, unchecked_context
from tests.support.peers import until
from tests.support.pod import PodProcess, free_ports

from muster_coordinator.peers.frames import encode_hello
from muster_coordinator.podapi.client import PodApiError, PodClient, PodRefusedError, new_session
from muster_coordinator.podapi.models import ReplicaRequest, ReplicasRequest
from muster_coordinator.security.handshakes import HandshakeLimits
from muster_coordinator.security.roles import ANY_POD, Role, only
from muster_coordinator.security.tls import Tls, TlsFiles, client_context

TOKEN = "s3cret-of-prometheus"
OTHER = "local/other"
CREATE = ReplicasRequest(fencing_token=1, partitions=(ReplicaRequest(0),))


class Target:
    """A pod's process with all its ports, and a CA that an attacker may have something of."""

    def __init__(self, root: Path, *more: str) -> None:
        self.root = root
        self.authority = Authority(root)
        self.probes, self.metrics = free_ports(2)
        (root / "token").write_text(TOKEN + "\n")
        self.files = self.authority.write("muster-0", pod())
        options = ["--tls-dir", str(root / "muster-0"), "--cluster", CLUSTER]
        options += ["--probe-listen", f"127.0.0.1:{self.probes}", "--metrics-listen", f"127.0.0.1:{self.metrics}"]
        options += ["--metrics-token-file", str(root / "token"), *more]
        self.operator = self.tls(self.authority.write("operator", operator()))
        self.pod = PodProcess("muster-0", root / "data", options=options, tls=self.operator)

    def tls(self, files: TlsFiles) -> Tls:
        return Tls(files, partial(client_context, check=only(CLUSTER, (Role.POD,))))

    async def answers(self) -> bool:
        """Whether it still serves who may call."""
        return (await self.pod.api.status()).started


@pytest.fixture
async def target(tmp_path: Path) -> AsyncIterator[Target]:
    target = Target(tmp_path)
    async with target.pod:
        yield target
        assert await target.answers()


STATUS = b"GET /v1/status HTTP/1.1\r\nHost: pod\r\n\r\n"


def hello(name: str) -> bytes:
    return encode_hello("", name, "uid", "127.0.0.1:1", "muster-0")


def contexts_of_attackers(target: Target) -> Mapping[str, ssl.SSLContext | None]:
    """What an attacker may come with; none of it opens any port."""
    mine, stranger = target.authority, Authority(target.root / "stranger")
    write = partial(unchecked_context, version=None)
    own = mine.write("own", operator())
    return {
        "plain text": None,
        "no certificate": unchecked_context(None),
        "operator of another cluster, same CA": write(mine.write("a", operator(OTHER))),
        "pod of another cluster, same CA": write(mine.write("b", pod("muster-1", OTHER))),
        "operator by another CA": write(stranger.write("c", operator())),
        "pod by another CA": write(stranger.write("d", pod("muster-1"))),
        "expired operator": write(mine.write("e", operator(), lifetime=-HOUR / 60)),
        "expired pod": write(mine.write("f", pod("muster-1"), lifetime=-HOUR / 60)),
        "TLS 1.2": unchecked_context(own, version=ssl.TLSVersion.TLSv1_2),
        "TLS 1.1": unchecked_context(own, version=ssl.TLSVersion.TLSv1_1),
    }


async def test_no_stranger_gets_an_answer_of_api_or_peers(target: Target) -> None:
    for name, context in contexts_of_attackers(target).items():
        assert not re.match(rb"HTTP/1.1 200", await spoken(target.pod.api_port, context, STATUS)), name
        assert b"muster-peer" not in await spoken(target.pod.peer_port, context, hello("muster-1")), name
    own = unchecked_context(target.authority.write("own", operator()))
    assert (await spoken(target.pod.api_port, own, STATUS)).startswith(b"HTTP/1.1 200")
    peer = unchecked_context(target.authority.write("peer", pod("muster-1")))
    assert b"muster-peer" in await spoken(target.pod.peer_port, peer, hello("muster-1"))


async def test_a_role_opens_its_own_port_only(target: Target) -> None:
    for member in (operator(), reader()):
        context = unchecked_context(target.authority.write("member", member))
        assert b"muster-peer" not in await spoken(target.pod.peer_port, context, hello("muster-1")), member
    context = unchecked_context(target.authority.write("member", pod("muster-1")))
    assert await spoken(target.pod.api_port, context, STATUS) == b""


async def test_a_pod_cannot_take_the_name_of_another(target: Target) -> None:
    context = unchecked_context(target.authority.write("peer", pod("muster-1")))
    await spoken(target.pod.peer_port, context, hello("muster-2"))
    assert await target.pod.metric("muster_peer_connection_errors_total", reason="wrong_name") == 1


async def test_pods_that_share_a_certificate_open_the_peer_port_and_no_other(target: Target) -> None:
    """As on Kubernetes, where all pods of a StatefulSet have the same Secrets."""
    shared = unchecked_context(target.authority.write("shared", pod(ANY_POD)))
    assert b"muster-peer" in await spoken(target.pod.peer_port, shared, hello("muster-1"))
    assert b"muster-peer" in await spoken(target.pod.peer_port, shared, hello("muster-2"))
    assert await spoken(target.pod.api_port, shared, STATUS) == b""
    elsewhere = unchecked_context(target.authority.write("elsewhere", pod(ANY_POD, OTHER)))
    assert b"muster-peer" not in await spoken(target.pod.peer_port, elsewhere, hello("muster-1"))


async def test_a_reader_reads_and_changes_nothing(target: Target) -> None:
    may_read = target.tls(target.authority.write("reader", reader()))
    async with new_session() as session:
        client = PodClient(session, "muster-0", f"127.0.0.1:{target.pod.api_port}", may_read)
        assert (await client.status()).started
        calls = [("POST", f"/v1/{name}") for name in ("replicas", "removals", "elections", "resignations", "fences")]
        calls += [("POST", "/v1/imports/0"), ("POST", "/v1/drain"), ("PUT", "/v1/metadata")]
        calls += [("GET", "/v1/watch?operator")]
        base = f"https://127.0.0.1:{target.pod.api_port}"
        for method, path in calls:
            async with session.request(
                method, base + path, json={}, ssl=may_read.context, server_hostname="muster-0"
            ) as response:
                assert (response.status, (await response.json())["reason"]) == (403, "NotAllowed"), path
        with pytest.raises(PodRefusedError, match="NotAllowed"):
            await client.create_replicas(CREATE)
        await target.pod.api.create_replicas(CREATE)
    assert '"by": "muster://local/muster/reader"' in target.pod.log()  # what was refused is in the audit log


async def test_a_reader_holds_markers_back_for_the_moment_of_a_backup_and_not_longer(target: Target) -> None:
    may_read = target.tls(target.authority.write("reader", reader()))
    async with new_session() as session:
        client = PodClient(session, "muster-0", f"127.0.0.1:{target.pod.api_port}", may_read)
        first, second, began = "0" * 32, "1" * 32, time.monotonic()
        assert (await client.hold_markers(first, 50)).held
        refused = set()
        while True:
            try:
                assert (await client.hold_markers(second, 50)).held
                break
            except PodRefusedError as error:
                refused.add(error.reason)
        assert refused == {"HeldAlready"}
        assert time.monotonic() - began >= 10 * 0.05
        assert not (await client.let_markers_go(first)).held
        assert (await client.let_markers_go(second)).held


async def test_probes_say_whether_the_pod_is_well_and_nothing_else(target: Target) -> None:
    base = f"http://127.0.0.1:{target.probes}"
    async with aiohttp.ClientSession() as session:
        async with session.get(f"{base}/healthz/live") as response:
            assert response.status == 200
        for path in ("/v1/status", "/v1/segments", "/metrics", "/"):
            async with session.get(base + path) as response:
                assert response.status == 404, path
        async with session.post(f"{base}/v1/drain") as response:
            assert response.status == 404


async def test_metrics_want_a_token_or_a_certificate(target: Target) -> None:
    url = f"https://127.0.0.1:{target.metrics}/metrics"
    nobody = unchecked_context(None)
    may_read = unchecked_context(target.authority.write("reader", reader()))
    tries: list[tuple[ssl.SSLContext, str, int]] = [
        (nobody, "", 401),
        (nobody, "Bearer wrong", 401),
        (nobody, "Bearer ", 401),
        (nobody, f"Basic {TOKEN}", 401),
        (nobody, f"Bearer {TOKEN}", 200),
        (may_read, "", 200),
    ]
    async with new_session() as session:
        for context, shown, expected in tries:
            headers = {"Authorization": shown} if shown else {}
            async with session.get(url, headers=headers, ssl=context, server_hostname="muster-0") as response:
                assert response.status == expected, (shown, expected)
                assert (b"muster_" in await response.read()) == (expected == 200)
    (target.root / "token").write_text("another")
    async with new_session() as session:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with asyncio.timeout(10):
            while True:
                async with session.get(url, headers=headers, ssl=nobody, server_hostname="muster-0") as response:
                    if response.status == 401:
                        break
                await asyncio.sleep(0.05)


async def test_garbage_in_a_handshake_costs_its_own_connection(target: Target) -> None:
    record = b"\x16\x03\x01\xff\xff"  # a record longer than TLS allows
    for port in (target.pod.api_port, target.pod.peer_port, target.metrics):
        for data in (record + bytes(1 << 20), bytes(1 << 20), b"\x16\x03\x01\x40\x00\x01\xff\xff\xff" + bytes(1 << 20)):
            await spoken(port, None, data)
            assert await target.answers()


async def test_half_open_handshakes_are_bounded_and_the_operator_gets_through(target: Target) -> None:
    opened: list[socket.socket] = []
    before = await target.pod.metric("process_open_fds")
    try:
        for _ in range(900):
            opened.append(socket.create_connection(("127.0.0.1", target.pod.api_port)))
        await until(lambda: '"reason": "too_many"' in target.pod.log())
        assert await target.answers()
        async with asyncio.timeout(HandshakeLimits().seconds * 0.8):  # not because their time was over
            while await target.pod.metric("process_open_fds") > before + HandshakeLimits().number + 10:
                await asyncio.sleep(0.05)
        target.operator = target.tls(target.authority.write("operator", operator()))
        async with new_session() as session:  # a new connection, in the middle of them
            client = PodClient(session, "muster-0", f"127.0.0.1:{target.pod.api_port}", target.operator)
            assert (await client.status()).started
    finally:
        for each in opened:
            each.close()


async def test_secrets_are_never_in_logs_or_answers(target: Target) -> None:
    for name, context in contexts_of_attackers(target).items():
        await spoken(target.pod.api_port, context, STATUS)
        assert name
    await until(lambda: "tls_refused" in target.pod.log())
    status = str(await target.pod.api.status())
    secrets = [TOKEN, *_lines_of(target.files.key), *_lines_of(target.root / "operator" / "tls.key")]
    for secret in secrets:
        assert secret not in target.pod.log()
        assert secret not in status
        assert secret not in repr(target.authority.issued)


def _lines_of(key: Path) -> list[str]:
    return [line for line in key.read_text().splitlines() if "-----" not in line]


async def test_a_pod_with_a_wrong_certificate_does_not_start(tmp_path: Path) -> None:
    target = Target(tmp_path)
    target.files.key.write_bytes(b"no key")
    with pytest.raises(AssertionError, match=r"tls\.key"):
        await target.pod.__aenter__()


async def test_a_client_that_calls_a_pod_of_another_cluster_says_nothing(target: Target) -> None:
    other = Tls(target.authority.write("o", operator(OTHER)), partial(client_context, check=only(OTHER, (Role.POD,))))
    async with new_session() as session:
        with pytest.raises(PodApiError, match="is not of cluster local/other"):
            await PodClient(session, "muster-0", f"127.0.0.1:{target.pod.api_port}", other).drain()


async def test_metrics_may_be_plain_beside_an_api_with_tls(tmp_path: Path) -> None:
    target = Target(tmp_path, "--metrics-plain")
    async with target.pod, new_session() as session:
        url = f"http://127.0.0.1:{target.metrics}/metrics"
        for headers, expected in (({}, 401), ({"Authorization": f"Bearer {TOKEN}"}, 200)):
            async with session.get(url, headers=headers) as response:
                assert response.status == expected
        assert await spoken(target.pod.api_port, None, STATUS) == b""
