"""The limit of open files: a pod serves as many connections as the machine allows."""

from __future__ import annotations

import resource
from contextlib import suppress


def raise_descriptor_limit() -> None:
    """Raise the soft limit (often 1024) to the hard one, as Go's runtime does: `max.connections` is 20,000. Where the
    system refuses, the limit stays as it is.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
