"""The mirror's connection to a broker that asks again and again who it is."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path

import pytest

from muster_coordinator.outgoing.connector import Connector
from muster_coordinator.outgoing.settings import OutgoingSettings
from muster_coordinator.pod.mirroring.connection import NEEDED, UpstreamConnection, UpstreamError
from muster_coordinator.wire import k17_sasl_handshake, k18_api_versions, k36_sasl_authenticate

DEADLINE_S = 30


class Broker:
    """Counts logins. `code`: the error of a login."""

    def __init__(self, lifetime_ms: int, code: int = 0) -> None:
        self.logins = 0
        self._lifetime_ms = lifetime_ms
        self._code = code

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                (length,) = struct.unpack(">i", await reader.readexactly(4))
                key, _, number = struct.unpack_from(">hhi", await reader.readexactly(length))
                body = self._answer(key)
                writer.write(struct.pack(">ii", len(body) + 4, number) + body)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    def _answer(self, key: int) -> bytes:
        if key == k17_sasl_handshake.KEY:
            return struct.pack(">hi", 0, 0)
        if key == k36_sasl_authenticate.KEY:
            self.logins += 1
            return struct.pack(">hhiq", self._code, -1, 0, self._lifetime_ms)
        served = [struct.pack(">hhh", api.key, 0, version) for api, version in NEEDED]
        return struct.pack(">hi", 0, len(served)) + b"".join(served)


def connection(account: Path, address: tuple[str, int]) -> UpstreamConnection:
    for name in ("username", "password"):
        (account / name).write_text("mirror")
    settings = OutgoingSettings("SASL_PLAINTEXT", "PLAIN", str(account))
    return UpstreamConnection(Connector(settings, "test"), *address, DEADLINE_S)


async def asked(subject: UpstreamConnection) -> None:
    await subject.ask(k18_api_versions.API, 0, b"", k18_api_versions.decode_response)


@pytest.mark.parametrize(("lifetime_ms", "several"), [(0, False), (500, True)])
async def test_broker_is_told_again_who_asks_before_a_session_ends(
    tmp_path: Path, lifetime_ms: int, several: bool
) -> None:
    broker = Broker(lifetime_ms)
    listening = await asyncio.start_server(broker.serve, "127.0.0.1", 0)
    subject = connection(tmp_path, listening.sockets[0].getsockname()[:2])
    async with asyncio.timeout(DEADLINE_S):
        for _ in range(20):
            await asked(subject)
            await asyncio.sleep(0.05)
    assert (broker.logins > 1) is several
    subject.close()
    listening.close()


async def test_refused_login_says_which_broker_and_the_next_question_tries_again(tmp_path: Path) -> None:
    broker = Broker(0, code=58)
    listening = await asyncio.start_server(broker.serve, "127.0.0.1", 0)
    host, port = listening.sockets[0].getsockname()[:2]
    subject = connection(tmp_path, (host, port))
    for number in (1, 2):
        with pytest.raises(UpstreamError, match=f"{host}:{port}: it refuses the login: error code 58"):
            await asked(subject)
        assert broker.logins == number
    listening.close()
