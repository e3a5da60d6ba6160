"""Messages of a reset to the shard of a group that has members."""

from __future__ import annotations

import msgspec


class ParkGroupRequest(msgspec.Struct, frozen=True, gc=False):
    """Put the group's members out, and keep all out for `for_ms`; 0: let them in again."""

    group_id: str
    for_ms: int


class ParkGroupResponse(msgspec.Struct, frozen=True, gc=False):
    """`reason`: why its members are still there; "": nobody is. With an error code nothing was looked at."""

    error_code: int = 0
    reason: str = ""
