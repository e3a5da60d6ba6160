"""Certificates for tests: CAs, leaves of every role, and wrong ones."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import warnings
from datetime import UTC, datetime, timedelta
from pathlib import Path

from muster_coordinator.security.roles import Member, Role
from muster_coordinator.security.tls import AUTHORITIES, CERTIFICATE, KEY, TlsFiles
from muster_operator.certificates.issuing import Issued, new_authority, new_leaf

CLUSTER = "local/muster"
HOUR = timedelta(hours=1)


def operator(cluster: str = CLUSTER) -> Member:
    return Member(cluster, Role.OPERATOR)


def reader(cluster: str = CLUSTER) -> Member:
    return Member(cluster, Role.READER)


def pod(name: str = "muster-0", cluster: str = CLUSTER) -> Member:
    return Member(cluster, Role.POD, name)


class Authority:
    """A CA of `cluster` that writes leaves into directories of their own."""

    def __init__(self, root: Path, cluster: str = CLUSTER) -> None:
        self.issued: Issued = new_authority(cluster, datetime.now(UTC), 10 * HOUR)
        self._root = root

    def write(self, name: str, member: Member, lifetime: timedelta = HOUR, trusted: bytes | None = None) -> TlsFiles:
        """The files of `member` in the directory `name`; what was there before is replaced. `trusted`: ca.crt."""
        leaf = new_leaf(self.issued, member, ["localhost", "127.0.0.1"], datetime.now(UTC), lifetime)
        directory = self._root / name
        directory.mkdir(parents=True, exist_ok=True)
        contents = {KEY: leaf.key, AUTHORITIES: trusted or self.issued.certificate, CERTIFICATE: leaf.certificate}
        for file, content in contents.items():
            new = directory / f"{file}.new"
            new.write_bytes(content)
            new.replace(directory / file)
        return TlsFiles.of(directory)


def unchecked_context(files: TlsFiles | None, *, version: ssl.TLSVersion | None = None) -> ssl.SSLContext:
    """An attacker's client: it trusts every server and shows what it has. `version`: no other is offered."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if version is not None:
        context.set_ciphers("ALL:@SECLEVEL=0")
        context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of TLS 1.1, which is the point
            context.maximum_version = version
    if files is not None:
        context.load_cert_chain(files.certificate, files.key)
    return context


async def spoken(port: int, context: ssl.SSLContext | None, data: bytes, host: str = "127.0.0.1") -> bytes:
    """The bytes that the port answers to `data`; none when it refuses or closes. 2 s of silence count as none."""
    try:
        reader, writer = await asyncio.open_connection(
            host, port, ssl=context, server_hostname="muster-0" if context is not None else None
        )
        writer.write(data)
        async with asyncio.timeout(2.0):
            return await reader.read(65536)
    except (OSError, ssl.SSLError, TimeoutError):
        return b""
    finally:
        with contextlib.suppress(UnboundLocalError):
            writer.transport.abort()
