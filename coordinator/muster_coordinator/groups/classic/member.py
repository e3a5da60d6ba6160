"""One member of a classic group, as an active leader knows it (Kafka: ClassicGroupMember)."""

from __future__ import annotations

from muster_coordinator.groups.effects import session_timer
from muster_coordinator.state_machine import SetTimer, Token

Protocols = tuple[tuple[str, bytes], ...]
"""(name, metadata) in the member's order of preference; names differ."""

_OBJECT_BYTES = 150
"""The memory of a protocol besides its name and metadata."""


def protocol_bytes(protocols: Protocols) -> int:
    """The memory that a member's protocols take, about."""
    return sum([_OBJECT_BYTES + len(name) + len(metadata) for name, metadata in protocols])


class Member:
    """`join_token` and `sync_token` name the request of this member that is parked; None: none is."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "group_instance_id",
        "is_new",
        "join_token",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "session_timers",
        "sync_token",
    )

    def __init__(
        self,
        group_id: str,
        member_id: str,
        group_instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: Protocols,
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.protocols = protocols
        self.assignment = assignment
        self.is_new = False
        self.join_token: Token | None = None
        self.sync_token: Token | None = None
        self.set_session_timeout(group_id, session_timeout_ms)

    def __repr__(self) -> str:
        parked = "join" if self.join_token is not None else "sync" if self.sync_token is not None else "nothing"
        return f"Member({self.member_id!r}, instance={self.group_instance_id!r}, parked={parked}, new={self.is_new})"

    def set_session_timeout(self, group_id: str, session_timeout_ms: int) -> None:
        self.session_timeout_ms = session_timeout_ms
        # Built once: every heartbeat and every commit of a member returns it.
        self.session_timers = (SetTimer(session_timer(group_id, self.member_id), session_timeout_ms),)

    @property
    def protocol_names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.protocols)

    def metadata(self, protocol: str | None) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        raise KeyError(f"member {self.member_id} does not support protocol {protocol}")

    def satisfies_session(self) -> bool:
        """A parked request stands for a heartbeat, except that of a new member: its connection may be long gone."""
        return not self.is_new and (self.join_token is not None or self.sync_token is not None)
