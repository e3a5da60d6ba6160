"""TLS contexts from files, made again when the files change: connections that are open keep what they were made with.

The file names are those of a Secret of type kubernetes.io/tls, as cert-manager writes it too. `ca.crt` may hold several
certificates: during a rotation the old CA and the new one are trusted together.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from muster_coordinator.security.watched_file import file_stamp

logger = structlog.get_logger(__name__)

CERTIFICATE, KEY, AUTHORITIES = "tls.crt", "tls.key", "ca.crt"

Certificate = dict[str, Any]
"""A certificate as `ssl.SSLSocket.getpeercert` gives it; empty: the other side showed none."""

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

    @property
    def paths(self) -> tuple[Path, ...]:
        return (self.certificate, self.key, *([self.authorities] if self.authorities is not None else []))


@dataclass(frozen=True)
class TrustFiles:
    """Paths of PEM files of a client of servers that others run. `authorities`: who signs their certificates; None:
    those that the system knows. `certificate` and `key`: what a server is shown that asks; None: nothing."""

    authorities: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    @property
    def paths(self) -> tuple[Path, ...]:
        return tuple(path for path in (self.authorities, self.certificate, self.key) if path is not None)


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
    """The context for servers that are known by what `check` reads in their certificate, not by a host name: pods are
    dialled by their IP address. Raises TlsError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    return _filled(context, files, ssl.CERT_REQUIRED, check, minimum)


def trusting_context(files: TrustFiles, *, check_hostname: bool) -> ssl.SSLContext:
    """The context for servers that others run, such as brokers of Kafka: they are known by the host name that is
    dialled, or by their CA alone. Raises TlsError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = check_hostname
    if files.authorities is None:
        context.load_default_certs()
    else:
        _trust(context, files.authorities)
    if files.certificate is not None and files.key is not None:
        _show(context, files.certificate, files.key)
    return context


def _filled(
    context: ssl.SSLContext, files: TlsFiles, verify: ssl.VerifyMode, check: Check | None, minimum: ssl.TLSVersion
) -> ssl.SSLContext:
    context.minimum_version = minimum
    context.verify_mode = verify
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    if check is not None:
        context.sslobject_class, context.sslsocket_class = _checked_by(check)
    _show(context, files.certificate, files.key)
    if files.authorities is not None:
        _trust(context, files.authorities)
    return context


def _show(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    """Raises TlsError."""
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise TlsError(f"{certificate} with {key}: {_said(error)}") from None


def _trust(context: ssl.SSLContext, authorities: Path) -> None:
    """Raises TlsError."""
    try:
        context.load_verify_locations(authorities)
    except (OSError, ssl.SSLError) as error:
        raise TlsError(f"{authorities}: {_said(error)}") from None


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


class WatchedContext:
    """`context` is for the next connection. `make` makes it of the files at `paths`; it raises TlsError."""

    def __init__(self, paths: Iterable[Path], make: Callable[[], ssl.SSLContext]) -> None:
        """Reads the files. Raises TlsError."""
        self._paths = tuple(paths)
        self._make = make
        self._seen = self._stamps()
        self.context = make()

    def look(self) -> bool:
        """Read the files again if one has changed; returns whether `context` is a new one. Files that cannot be used,
        as in the middle of an exchange, are logged, and what was read before stays in force until they change again."""
        stamps = self._stamps()
        if stamps == self._seen:
            return False
        self._seen = stamps
        try:
            self.context = self._make()
        except TlsError as error:
            logger.error("tls_files_refused", error=str(error))
            return False
        logger.info("tls_files_read", certificate=str(self._paths[0]))
        return True

    def _stamps(self) -> tuple[tuple[int, int, int] | None, ...]:
        return tuple(map(file_stamp, self._paths))


class Tls(WatchedContext):
    """The TLS of a side that shows a certificate."""

    def __init__(self, files: TlsFiles, make: Callable[[TlsFiles], ssl.SSLContext]) -> None:
        """Reads the files. Raises TlsError."""
        super().__init__(files.paths, partial(make, files))
        self._files = files

    def __repr__(self) -> str:
        return f"<Tls {self._files.certificate}>"
