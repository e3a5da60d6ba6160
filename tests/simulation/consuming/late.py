"""What members say that they have no right to any more: with a generation or an epoch of before, or as a process of
before whose instance id another one has now. All of it is refused, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.simulation.injected import Injected
from tests.simulation.world import Violation

from muster_coordinator.errors import ErrorCode
from muster_coordinator.requests import groups as m
from muster_coordinator.requests.consumer_groups import (
    LEAVING_EPOCH,
    LEAVING_STATIC_EPOCH,
    ConsumerGroupHeartbeatRequest,
)

if TYPE_CHECKING:
    from tests.simulation.client import Caller

__all__ = ["classic_requests", "consumer_heartbeat", "former_requests", "say_late"]

_TAKEN = frozenset({ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS})
COMMIT_VERSION = 9
JOIN_VERSION, SYNC_VERSION = 9, 5
PROTOCOLS = (("range", b"\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff"),)
"""What a consumer sends in JoinGroup that subscribes to nothing."""


def say_late(
    caller: Caller, request: Any, then: Callable[[], None], is_wrong: Callable[[], bool] | None = None
) -> None:
    """`is_wrong`: whether what was said is still wrong when it is answered; None: it always is. Raises Violation in the
    answer."""
    caller.world.injected[Injected.LATE_REQUEST] += 1

    def answered(response: Any) -> None:
        if response is not None and _code_of(response) in _TAKEN and (is_wrong is None or is_wrong()):
            raise Violation(f"{request} is taken, and answered {response}")
        then()

    caller.call(request, answered)


def _code_of(response: Any) -> int:
    match response:
        case m.OffsetCommitResponse():
            return int(response.topics[0][1][0][1])
        case m.LeaveGroupResponse(error_code=ErrorCode.NONE):
            return int(response.members[0].error_code)
        case _:
            return int(response.error_code)


def consumer_heartbeat(
    group: str,
    member: str,
    epoch: int,
    instance: str | None,
    has: tuple[tuple[bytes, tuple[int, ...]], ...] | None = None,
) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group, member, epoch, instance, None, -1, None, None, None, has, "late", "/127.0.0.1", 1
    )


def classic_requests(group: str, member: str, generation: int, instance: str | None, protocol: str) -> list[Any]:
    return [
        m.HeartbeatRequest(group, generation, member, instance),
        m.SyncGroupRequest(group, generation, member, instance, protocol, "range", (), SYNC_VERSION),
    ]


def former_requests(group: str, member: str, epoch: int, instance: str) -> list[Any]:
    """What the process `member` would say, of either protocol."""
    commit = m.OffsetCommitRequest(group, epoch, member, instance, -1, (("ct-a", ((0, 1, -1, None),)),), COMMIT_VERSION)
    join = m.JoinGroupRequest(
        group, 600, 400, member, instance, "consumer", PROTOCOLS, None, "late", "/127.0.0.1", JOIN_VERSION
    )
    return [
        consumer_heartbeat(group, member, epoch, instance),
        consumer_heartbeat(group, member, LEAVING_EPOCH, instance),
        consumer_heartbeat(group, member, LEAVING_STATIC_EPOCH, instance),
        *classic_requests(group, member, epoch, instance, "consumer"),
        m.LeaveGroupRequest(group, (m.LeavingMember(member, instance),)),
        commit,
        join,
    ]
