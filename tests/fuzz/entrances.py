"""TLS and SASL are attacked with damaged handshakes and logins, on every port of a real pod that has them."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

from tests.fuzz.frames import GROWTH_BYTES, resident_bytes
from tests.support.certificates import CLUSTER, Authority, operator, unchecked_context
from tests.support.certificates import pod as member
from tests.support.kafka import KafkaClient, encode_request, schema
from tests.support.pod import SoloPod, free_ports
from tests.support.scram import client_first, log_in, users_file

from muster_coordinator.security.roles import Role, only
from muster_coordinator.security.tls import Tls, client_context

PASSWORD = "a-Password-of-the-fuzzer"
CONNECTIONS = 8
CHECK_EVERY = 10
ANSWER_S, SILENCE_S = 30.0, 0.3
HONEST = "127.0.0.2"
"""The address of the client that must always get in: failed logins hold their own address up."""
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "", "GSSAPI", "x" * 300)


class Entrances(SoloPod):
    """A pod with TLS on API, peer network, metrics and its listener, and SASL on that."""

    def __init__(self, root: Path) -> None:
        self._authority = Authority(root)
        self._authority.write("pod-0", member("pod-0"))
        (root / "users.json").write_text(users_file({"alice": PASSWORD}))
        (self.metrics_port,) = free_ports(1)
        config = [
            f"muster.listener.tls.dir={root / 'pod-0'}",
            "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            f"muster.users.file={root / 'users.json'}",
            "connection.failed.authentication.delay.ms=0",
        ]
        options = ["--tls-dir", str(root / "pod-0"), "--cluster", CLUSTER]
        options += ["--metrics-listen", f"127.0.0.1:{self.metrics_port}"]
        check = partial(client_context, check=only(CLUSTER, (Role.POD,)))
        tls = Tls(self._authority.write("operator", operator()), check)
        super().__init__(root / "data", config=config, options=options, tls=tls)

    async def client(self) -> KafkaClient:
        """One that has logged in."""
        context = unchecked_context(None)
        opened = await asyncio.open_connection("127.0.0.1", self.kafka_port, ssl=context, local_addr=(HONEST, 0))
        client = KafkaClient(*opened)
        answer = await log_in(client, "alice", PASSWORD)
        assert answer.error_code == 0, answer
        return client


def entrances(root: Path) -> Entrances:
    return Entrances(root)


class EntranceFuzz:
    """`run_round` raises AssertionError with what is wrong."""

    def __init__(self, pod: Entrances, seed: int) -> None:
        self.pod = pod
        self.random = Random(seed)
        self.rounds = 0
        self.connections = 0
        self._resident = 0
        self._commits = 0

    async def run_round(self) -> None:
        await asyncio.gather(*(self._attack() for _ in range(CONNECTIONS)))
        self.rounds += 1
        self.connections += CONNECTIONS
        if self.rounds % CHECK_EVERY == 0:
            await self.check()

    async def check(self) -> None:
        """The pod lives, lets in who may come, has not failed inside, has not grown, and tells no password."""
        pod = self.pod
        assert pod.process is not None
        assert pod.process.poll() is None, "the pod ended"
        async with asyncio.timeout(ANSWER_S):
            assert (await pod.api.status()).started
            client = await pod.client()
            self._commits += 1
            assert await client.commit("bystander", self._commits) == 0
            await client.close()
        log = pod.log()
        assert "Traceback" not in log, log[log.index("Traceback") - 500 :][:3000]
        assert PASSWORD not in log
        resident = resident_bytes(pod)
        if self.rounds <= CHECK_EVERY * 3:
            self._resident = resident
        assert resident - self._resident < GROWTH_BYTES, f"grew from {self._resident} to {resident} bytes"

    async def _attack(self) -> None:
        if self.random.random() < 0.5:
            ports = (self.pod.api_port, self.pod.peer_port, self.pod.metrics_port, self.pod.kafka_port)
            await self._send(self.random.choice(ports), None, [self._damaged(client_hello(self.random))])
        else:
            await self._send(self.pod.kafka_port, unchecked_context(None), self._login())

    async def _send(self, port: int, context: ssl.SSLContext | None, messages: list[bytes]) -> None:
        with contextlib.suppress(OSError, TimeoutError):  # closed: what else the pod does is for `check`
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
            try:
                for each in messages:
                    writer.write(each)
                    await writer.drain()
                    async with asyncio.timeout(SILENCE_S):
                        if not await reader.read(65536):
                            return
            finally:
                writer.transport.abort()

    def _login(self) -> list[bytes]:
        """Handshake and tokens, each of which may be damaged, and in any order."""
        mechanism = self.random.choice(MECHANISMS)
        handshake = schema("sasl_handshake", 1).SaslHandshakeRequest(mechanism=mechanism)
        authenticate = schema("sasl_authenticate", 2).SaslAuthenticateRequest
        make: tuple[Callable[[], bytes], ...] = (
            lambda: f"\0alice\0{'x' * self.random.choice((0, 1, 5000))}".encode(),
            lambda: client_first("alice", "nonce"),
            lambda: b"c=biws,r=nonce,p=" + self.random.randbytes(20).hex().encode(),
            lambda: b"n,a=someone,m=ext,n=alice,r=" + b"," * self.random.randrange(9),
            lambda: b"n,,\x01auth=Bearer " + self.random.randbytes(90).hex().encode() + b"\x01\x01",
            lambda: self.random.randbytes(self.random.choice((0, 1, 100, 70_000))),
        )
        requests = [handshake] if self.random.random() < 0.9 else []
        for _ in range(self.random.randrange(4)):
            token = self.random.choice(make)()
            requests.append(authenticate(auth_bytes=token if self.random.random() < 0.5 else self._damaged(token)))
        sent = [encode_request(each, number, "fuzz") for number, each in enumerate(requests, 1)]
        if self.random.random() < 0.2:
            self.random.shuffle(sent)
        return [each if self.random.random() < 0.8 else self._damaged(each) for each in sent]

    def _damaged(self, data: bytes) -> bytes:
        """Bits turned, cut, doubled, or with random bytes in it."""
        damaged = bytearray(data)
        for _ in range(self.random.randint(1, 8)):
            at = self.random.randrange(len(damaged) + 1)
            kind = self.random.randrange(4)
            if kind == 0 and at < len(damaged):
                damaged[at] ^= 1 << self.random.randrange(8)
            elif kind == 1:
                del damaged[at:]
            elif kind == 2:
                damaged[at:at] = damaged[:at][:2000]
            else:
                damaged[at:at] = self.random.randbytes(self.random.randrange(64))
        return bytes(damaged)


def client_hello(random: Random) -> bytes:
    """What a client's TLS library says first."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = unchecked_context(None)
    if random.random() < 0.3:
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    hello = context.wrap_bio(incoming, outgoing, server_hostname=random.choice(("pod-0", ".".join(["a" * 60] * 4))))
    with contextlib.suppress(ssl.SSLWantReadError):
        hello.do_handshake()
    return outgoing.read()
