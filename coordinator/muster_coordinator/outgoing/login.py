"""The login on a new connection: SaslHandshake, then the tokens of the mechanism in SaslAuthenticate."""

from __future__ import annotations

import asyncio
import struct
from typing import cast

from muster_coordinator.requests.cluster import SaslAuthenticateResponse
from muster_coordinator.security.sasl import SaslError
from muster_coordinator.security.sasl_client import SaslClient
from muster_coordinator.wire import k17_sasl_handshake, k36_sasl_authenticate
from muster_coordinator.wire.api import Api
from muster_coordinator.wire.codec import Reader
from muster_coordinator.wire.errors import WireError
from muster_coordinator.wire.framing import FrameReader, encode_request_frame

ANSWER_BYTES_MAX = 64 << 10
"""The longest answer that a login accepts; those of Kafka take some hundred bytes."""
_ROUNDS_MAX = 4
_HANDSHAKE_VERSION = 1


class LoginError(ConnectionError):
    """The server does not take the login, or what it answers is none. The message repeats no secret."""


class Login(asyncio.Protocol):
    """The connection's protocol until `run` has returned."""

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self._reader = FrameReader(ANSWER_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[bytes] | None = None
        self._correlation_id = 0

    @property
    def is_lost(self) -> bool:
        return self._transport is None

    async def run(self, mechanism: str, client: SaslClient) -> int:
        """Log in; returns for how long that counts (ms; 0: as long as the connection). Raises LoginError, and
        OSError when the connection ends."""
        try:
            handshake = k17_sasl_handshake
            answer = await self._ask(handshake.API, _HANDSHAKE_VERSION, handshake.encode_request(mechanism))
            response = handshake.decode_response(Reader(answer, 4, False))
            if response.error_code:
                raise LoginError(f"it does not take {mechanism}, but {', '.join(response.mechanisms) or 'nothing'}")
            return await self._exchange(client)
        except (WireError, IndexError, struct.error) as error:
            raise LoginError(f"no answer to a login: {error or type(error).__name__}") from None
        except SaslError as error:
            raise LoginError(f"the login fails: {error}") from None

    async def _exchange(self, client: SaslClient) -> int:
        token: bytes | None = client.first()
        for _ in range(_ROUNDS_MAX):
            response = await self._authenticate(token)
            if response.error_code:
                said = (response.error_message or f"error code {response.error_code}")[:300]
                raise LoginError(f"it refuses the login: {said}")
            # In a thread: the keys of a password take milliseconds of processor time.
            token = await asyncio.to_thread(client.step, response.auth_bytes)
            if token is None:
                return response.session_lifetime_ms
        raise LoginError("the login does not end")

    async def _authenticate(self, token: bytes | None) -> SaslAuthenticateResponse:
        api = k36_sasl_authenticate
        answer = await self._ask(api.API, api.CLIENT_VERSION, api.encode_request(token or b""))
        return api.decode_response(Reader(answer, 4, False))

    async def _ask(self, api: Api, version: int, body: bytes) -> bytes:
        """The answer, with its header."""
        if self._transport is None:
            raise LoginError("it ends the connection in the login")
        self._correlation_id += 1
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(encode_request_frame(api, version, self._correlation_id, self._client_id, body))
        answer = await self._answer
        if int.from_bytes(answer[:4], "big") != self._correlation_id:
            raise LoginError("an answer to another request")
        return answer

    # -- asyncio.Protocol ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._fail(LoginError(f"it ends the connection in the login{f': {exc}' if exc else ''}"))

    def data_received(self, data: bytes) -> None:
        try:
            frames = self._reader.feed(data)
        except WireError as error:
            self._fail(LoginError(str(error)))
            return
        for frame in frames:
            if self._answer is None or self._answer.done():
                self._fail(LoginError("an answer that nobody waits for"))
                return
            self._answer.set_result(frame)

    def _fail(self, error: LoginError) -> None:
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)
