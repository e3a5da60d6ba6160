"""The rights to ask for leases, and to move groups."""

from __future__ import annotations

import pytest

from muster_coordinator.podapi.access import require_role
from muster_coordinator.podapi.control import RefusedCallError
from muster_coordinator.security.roles import Member, Role

READER, OPERATOR, POD = Member("ns/c", Role.READER), Member("ns/c", Role.OPERATOR), Member("ns/c", Role.POD, "p")


@pytest.mark.parametrize(
    ("caller", "method", "path", "may"),
    [
        (READER, "POST", "/v1/leases", True),
        (READER, "GET", "/v1/moves", True),
        (READER, "POST", "/v1/moves", False),
        (OPERATOR, "POST", "/v1/leases", True),
        (OPERATOR, "POST", "/v1/moves", True),
        (POD, "POST", "/v1/leases", False),
        (None, "POST", "/v1/moves", True),
    ],
)
def test_readers_have_leases_and_operators_move(caller: Member | None, method: str, path: str, may: bool) -> None:
    if may:
        require_role(caller, method, path, {})
        return
    with pytest.raises(RefusedCallError, match="may not call"):
        require_role(caller, method, path, {})
