"""The warning of a process that was started by hand and takes orders from all that reach the machine."""

from __future__ import annotations

import os
from collections.abc import Mapping

import structlog

logger = structlog.get_logger(__name__)

_EVERYWHERE = frozenset(("0.0.0.0", "::"))


def warn_of_plain_ports(plain: Mapping[str, tuple[str, int]]) -> None:
    """One line if any of these ports without TLS is one of all the machine's addresses. `plain`: host and port, by
    what comes there. Not in a pod of Kubernetes: it has an address of its own, and its manifests say who reaches it.
    """
    open_to_all = {name: port for name, (host, port) in plain.items() if host in _EVERYWHERE}
    if open_to_all and "KUBERNETES_SERVICE_HOST" not in os.environ:
        logger.warning(
            "plain_on_all_addresses",
            ports=open_to_all,
            advice="set up TLS (docs/security.md), or listen at one address",
        )
