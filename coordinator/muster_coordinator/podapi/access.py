"""The rights of callers that a pod knows by their certificates (ADR 30).

A reader may read, hold markers back for the moment of a backup (`podapi.cuts`), which bounds itself, and have leases
(`podapi.leases`), as gateways do, which end by themselves. Everything else, and to watch as the operator, needs the
operator. Plain connections, which have no certificate, may call everything: without TLS the port has to be closed by
other means.
"""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp import web

from muster_coordinator.podapi.control import RefusedCallError
from muster_coordinator.security.roles import Member, Role, member_of

HOLDS = "/v1/marker-holds/"
LEASES = "/v1/leases"
CALLERS = (Role.OPERATOR, Role.READER)
"""Roles that the port lets in at all; pods have no business with each other's API."""


def caller_of(request: web.Request) -> Member | None:
    """The member at the other end; None: the connection is plain."""
    transport = request.transport
    certificate = transport.get_extra_info("peercert") if transport is not None else None
    return member_of(certificate) if certificate else None


def require_role(caller: Member | None, method: str, path: str, query: Mapping[str, str]) -> None:
    """Raises RefusedCallError (403) unless `caller` may make this call."""
    if caller is None or caller.role is Role.OPERATOR:
        return
    reads = method in ("GET", "HEAD") and not (path == "/v1/watch" and "operator" in query)
    cuts = method in ("POST", "DELETE") and path.startswith(HOLDS)
    leases = method == "POST" and path == LEASES
    if caller.role is not Role.READER or not (reads or cuts or leases):
        raise RefusedCallError(403, "NotAllowed", f"{caller.uri} may not call {method} {path}: the operator may")
