"""Reads a segment by HTTP ranges, as a pod serves it. A pod that does not answer is asked again for some time.

https: a pod with mutual TLS wants a reader's certificate: MUSTER_TLS_DIR names a directory with tls.crt, tls.key and
ca.crt, MUSTER_CLUSTER the cluster (`<namespace>/<name>`) that the pod's certificate has to name. Without them the CAs
of the machine count, as for any web server.
"""

from __future__ import annotations

import os
import re
import ssl
import time
import urllib.error
import urllib.request
from pathlib import Path

from muster_coordinator.security.roles import Role, only
from muster_coordinator.security.tls import TlsError, TlsFiles, client_context
from muster_pipeline.decode.errors import SegmentReadError

REQUEST_TIMEOUT_S = 30.0
UNREACHABLE_FOR_S = 30.0
"""Ask a pod again for this long: a pod that restarts is back within seconds."""
RETRY_EVERY_S = 0.2
_NOT_YET = (404, 503)  # a pod that has restarted opens its logs one after the other
_TOTAL = re.compile(r"bytes (?:\*|\d+-\d+)/(\d+)")


def get(url: str, wanted: str, limit: int) -> tuple[str, bytes]:
    """Return (Content-Range, body of at most `limit` bytes). `wanted` is a Range header or empty. A 416 answer has
    an empty body. Raises SegmentReadError.
    """
    request = urllib.request.Request(url, headers={"Range": wanted} if wanted else {})
    deadline = time.monotonic() + UNREACHABLE_FOR_S
    while True:
        try:
            with urllib.request.urlopen(request, timeout=REQUEST_TIMEOUT_S, context=_context(url)) as answer:
                return answer.headers.get("Content-Range", ""), answer.read(limit)
        except urllib.error.HTTPError as exc:
            if exc.code == 416:
                return exc.headers.get("Content-Range", ""), b""
            if exc.code not in _NOT_YET or time.monotonic() > deadline:
                raise SegmentReadError(url, 0, f"HTTP {exc.code}: {exc.read(300).decode(errors='replace')}") from exc
        except (OSError, EOFError) as exc:  # URLError is an OSError; EOFError: http.client's IncompleteRead
            if time.monotonic() > deadline:
                raise SegmentReadError(url, 0, str(getattr(exc, "reason", exc))) from exc
        time.sleep(RETRY_EVERY_S)


def _context(url: str) -> ssl.SSLContext | None:
    """Read anew for each request: the files are exchanged while a reader follows a pod."""
    directory = os.environ.get("MUSTER_TLS_DIR")
    if not directory or not url.startswith("https:"):
        return None
    of_the_cluster = only(os.environ.get("MUSTER_CLUSTER", ""), (Role.POD,))
    try:
        return client_context(TlsFiles.of(Path(directory)), check=lambda shown, _: of_the_cluster(shown, ""))
    except TlsError as error:
        raise SegmentReadError(url, 0, str(error)) from error


class HttpBytes:
    """A segment at a URL, as long as it was when it was opened. Raises SegmentReadError."""

    def __init__(self, url: str) -> None:
        self.name = url
        content_range, _ = get(url, "bytes=0-0", 1)
        total = _TOTAL.fullmatch(content_range)
        if total is None:
            raise SegmentReadError(url, 0, "the answer does not say how long the segment is")
        self.size = int(total[1])

    def read(self, position: int, size: int) -> bytes:
        parts: list[bytes] = []
        while size:
            _, part = get(self.name, f"bytes={position}-{position + size - 1}", size)
            if not part:
                raise SegmentReadError(self.name, position, "the segment ends here; it was longer when it was opened")
            parts.append(part)
            position += len(part)
            size -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def __enter__(self) -> HttpBytes:
        return self

    def __exit__(self, *_: object) -> None:
        pass  # each request has a connection of its own
