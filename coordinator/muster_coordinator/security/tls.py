"""TLS contexts from files, made again when the files change: connections that are open keep what they were made with.

The file names are those of a Secret of type kubernetes.io/tls, as cert-manager writes it too. `ca.crt` may hold several
certificates: during a rotation the old CA and the new one are trusted together.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from muster_coordinator.security.watched_file import file_stamp

logger = structlog.get_logger(__name__)

CERTIFICATE, KEY, AUTHORITIES = "tls.crt", "tls.key", "ca.crt"

Certificate = dict[str, Any]
"""As `ssl.SSLSocket.getpeercert` gives it; empty: the other side showed none."""

Check = Callable[[Certificate, str], None]
"""Is called in the handshake with the verified certificate of the other side and the name that the client dialled (""
on a server). Raises ssl.SSLCertVerificationError to refuse it: nothing is sent or received then.
"""


class TlsError(Exception):
    """Certificate, key or CA cannot be used; the message names the file."""


@dataclass(frozen=True)
class TlsFiles:
    """Paths of PEM files. `authorities`: who signs the other side's certificates; None: a server that asks for none."""

    certificate: Path
    key: Path
    authorities: Path | None = None

    @classmethod
    def of(cls, directory: Path) -> TlsFiles:
        """Those of a directory in which a Secret is mounted."""
        return cls(directory / CERTIFICATE, directory / KEY, directory / AUTHORITIES)


def server_context(
    files: TlsFiles,
    *,
    clients: ssl.VerifyMode = ssl.CERT_REQUIRED,
    check: Check | None = None,
    minimum: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2,
) -> ssl.SSLContext:
    """`clients`: whether a client has to show a certificate of `authorities`. Sessions are never resumed by tickets: a
    certificate that is not valid any more gets no new connection. Raises TlsError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.num_tickets = 0
    if files.authorities is None and clients is not ssl.CERT_NONE:
        raise TlsError(f"{files.certificate}: no CA is named for the certificates of clients")
    return _filled(context, files, clients, check, minimum)


def client_context(
    files: TlsFiles, *, check: Check, minimum: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2
) -> ssl.SSLContext:
    """For servers that are known by what `check` reads in their certificate, not by a host name: pods are dialled by
    their IP address. Raises TlsError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    return _filled(context, files, ssl.CERT_REQUIRED, check, minimum)


def _filled(
    context: ssl.SSLContext, files: TlsFiles, verify: ssl.VerifyMode, check: Check | None, minimum: ssl.TLSVersion
) -> ssl.SSLContext:
    context.minimum_version = minimum
    context.verify_mode = verify
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    if check is not None:
        context.sslobject_class, context.sslsocket_class = _checked_by(check)
    try:
        context.load_cert_chain(files.certificate, files.key)
    except (OSError, ssl.SSLError) as error:
        raise TlsError(f"{files.certificate} with {files.key}: {_said(error)}") from None
    if files.authorities is not None:
        try:
            context.load_verify_locations(files.authorities)
        except (OSError, ssl.SSLError) as error:
            raise TlsError(f"{files.authorities}: {_said(error)}") from None
    return context


def _said(error: OSError) -> str:
    return getattr(error, "reason", None) or error.strerror or type(error).__name__


def _checked_by(check: Check) -> tuple[type[ssl.SSLObject], type[ssl.SSLSocket]]:
    """Their handshake fails on a certificate that `check` refuses. Event loops use the one, blocking code the other."""

    def look(connection: ssl.SSLObject | ssl.SSLSocket) -> None:
        check(connection.getpeercert() or {}, "" if connection.server_side else connection.server_hostname or "")

    class CheckedObject(ssl.SSLObject):
        def do_handshake(self) -> None:
            super().do_handshake()
            look(self)

    class CheckedSocket(ssl.SSLSocket):
        def do_handshake(self, block: bool = False) -> None:
            super().do_handshake(block)
            look(self)

    return CheckedObject, CheckedSocket


class Tls:
    """`context` is for the next connection. `make` makes it of `files`; it raises TlsError."""

    def __init__(self, files: TlsFiles, make: Callable[[TlsFiles], ssl.SSLContext]) -> None:
        """Reads the files. Raises TlsError."""
        self._files = files
        self._make = make
        self._seen = self._stamps()
        self.context = make(files)

    def __repr__(self) -> str:
        return f"<Tls {self._files.certificate}>"

    def look(self) -> bool:
        """Read the files again if one has changed; returns whether `context` is a new one. Files that cannot be used,
        as in the middle of an exchange, are logged, and what was read before stays in force until they change again."""
        stamps = self._stamps()
        if stamps == self._seen:
            return False
        self._seen = stamps
        try:
            self.context = self._make(self._files)
        except TlsError as error:
            logger.error("tls_files_refused", error=str(error))
            return False
        logger.info("tls_files_read", certificate=str(self._files.certificate))
        return True

    def _stamps(self) -> tuple[tuple[int, int, int] | None, ...]:
        paths = (self._files.certificate, self._files.key, self._files.authorities)
        return tuple(file_stamp(path) for path in paths if path is not None)
