"""Makes connections to the servers of one cluster, with what its listener asks of clients."""

from __future__ import annotations

import asyncio
import secrets
import ssl
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TypeVar

from muster_coordinator.outgoing.login import Login, LoginError
from muster_coordinator.outgoing.settings import OutgoingSettings
from muster_coordinator.security.sasl_client import Account, KeyCache, sasl_client
from muster_coordinator.security.tls import CERTIFICATE, KEY, TrustFiles, WatchedContext, trusting_context
from muster_coordinator.security.users import OAUTHBEARER
from muster_coordinator.security.watched_file import WatchedFile

_P = TypeVar("_P", bound=asyncio.Protocol)

USERNAME, PASSWORD, TOKEN = "username", "password", "token"
"""Files of the directory of an account, as of a Secret of type kubernetes.io/basic-auth."""
_TEXT_MAX = 65_536
SESSION_PART = 0.8
"""The share of its length for which a session is used: its last request may take long."""


class Connector:
    """`failed`: connections that were refused, by reason: "login", "tls". Files are looked at for each connection, so
    that a renewed one counts from the next on."""

    def __init__(self, settings: OutgoingSettings, client_id: str) -> None:
        """Reads the files. Raises SecurityFileError, TlsError."""
        self.failed: Counter[str] = Counter()
        self.settings = settings
        self._client_id = client_id
        self._tls = _tls(settings) if settings.tls else None
        self._account = _AccountFiles(settings) if settings.sasl else None
        self._keys = KeyCache()

    async def connect(
        self, protocol: _P, address: tuple[str, int], as_user: str = "", *, login: bool = True
    ) -> tuple[_P, float | None]:
        """`protocol` gets a connection on which the server knows who comes; returns it, and for how many seconds the
        server will know (None: as long as the connection lasts). `as_user`: on whose behalf to log in, where the server
        lets this account; "": on one's own. `login`: False leaves the login to who uses the connection. Raises OSError
        (LoginError, ssl.SSLError)."""
        account = self._account if login else None
        if account is None:
            await self._dial(protocol, address)
            return protocol, None
        talk = Login(self._client_id)
        transport = await self._dial(talk, address)
        try:
            mechanism = self.settings.mechanism
            client = sasl_client(mechanism, account.current(), secrets.token_urlsafe(24), self._keys, as_user)
            lifetime_ms = await talk.run(mechanism, client)
        except LoginError:
            self.failed["login"] += 1
            transport.abort()
            raise
        except BaseException:
            transport.abort()
            raise
        if talk.is_lost:
            raise LoginError("it ends the connection after the login")
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        return protocol, lifetime_ms / 1000 * SESSION_PART if lifetime_ms else None

    async def _dial(self, protocol: asyncio.Protocol, address: tuple[str, int]) -> asyncio.Transport:
        loop, tls = asyncio.get_running_loop(), self._tls
        if tls is None:
            transport, _ = await loop.create_connection(lambda: protocol, *address)
            return transport
        tls.look()
        try:
            transport, _ = await loop.create_connection(
                lambda: protocol, *address, ssl=tls.context, server_hostname=address[0]
            )
        except ssl.SSLError:
            self.failed["tls"] += 1
            raise
        return transport


class _AccountFiles:
    def __init__(self, settings: OutgoingSettings) -> None:
        """Raises SecurityFileError."""
        names = (TOKEN,) if settings.mechanism == OAUTHBEARER else (USERNAME, PASSWORD)
        self._files = {name: WatchedFile(Path(settings.account_dir) / name, _line) for name in names}

    def current(self) -> Account:
        for file in self._files.values():
            file.look()
        values = {name: file.value for name, file in self._files.items()}
        return Account(values.get(USERNAME, ""), values.get(PASSWORD, ""), values.get(TOKEN, ""))


def _line(content: bytes) -> str:
    """The line without the end that an editor leaves behind. Raises ValueError."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    text = text.removesuffix("\n").removesuffix("\r")
    if not text or len(text) > _TEXT_MAX or any(each in text for each in "\0\r\n\x01"):
        raise ValueError("it has to be one line of text")
    return text


def _tls(settings: OutgoingSettings) -> WatchedContext:
    directory = Path(settings.certificate_dir) if settings.certificate_dir else None
    files = TrustFiles(
        Path(settings.authorities) if settings.authorities else None,
        directory / CERTIFICATE if directory is not None else None,
        directory / KEY if directory is not None else None,
    )
    return WatchedContext(files.paths, partial(trusting_context, files, check_hostname=settings.check_host))
