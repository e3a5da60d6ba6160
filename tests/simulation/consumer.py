"""Members of consumer groups: join, sync, heartbeat, commit what is assigned to them, leave, fall silent."""

from __future__ import annotations

from typing import Any

from tests.simulation.client import PATIENCE_MS, TOPIC, Caller, commit_request, fetch_request, fetched_version
from tests.simulation.history import History
from tests.simulation.members import REBALANCE_MS, SESSION_MS

from muster_coordinator.errors import ErrorCode
from muster_coordinator.requests import groups as m

__all__ = ["Consumer"]

PROTOCOL = (("range", b""),)
MEMBER_ID_REQUIRED_SINCE = 4
HEARTBEAT_MS = 100
JOIN_PATIENCE_MS = REBALANCE_MS + PATIENCE_MS


class Consumer:
    """``histories``: of the group's partitions, one each. ``answered`` counts heartbeats and commits that went well."""

    def __init__(self, name: str, group: str, caller: Caller, histories: list[History]) -> None:
        self.name = name
        self.answered = 0
        self._group = group
        self._caller = caller
        self._world = caller.world
        self._histories = histories
        self._forget()
        self._again()

    def _forget(self) -> None:
        self._member = ""
        self._generation = -1
        self._assigned: list[int] = []

    def _again(self, delay_ms: int = 50) -> None:
        self._world.at(1 + self._world.random.randint(0, delay_ms), self._join)

    def _failed(self, code: int) -> None:
        """By the error: another member id, or only another generation."""
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self._forget()
        self._again()

    # -- join and sync ------------------------------------------------------------------------------------------------

    def _join(self) -> None:
        request = m.JoinGroupRequest(
            self._group,
            SESSION_MS,
            REBALANCE_MS,
            self._member,
            None,
            "test",
            PROTOCOL,
            None,
            self.name,
            "/127.0.0.1",
            MEMBER_ID_REQUIRED_SINCE,
        )
        self._caller.call(request, self._joined, JOIN_PATIENCE_MS)

    def _joined(self, response: m.JoinGroupResponse | None) -> None:
        if response is None:
            self._again()
        elif response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member = response.member_id
            self._join()
        elif response.error_code:
            self._failed(response.error_code)
        else:
            self._member, self._generation = response.member_id, response.generation_id
            self._sync(response)

    def _sync(self, joined: m.JoinGroupResponse) -> None:
        assignments: dict[str, list[int]] = {member.member_id: [] for member in joined.members}
        names = list(assignments)
        for partition in range(len(self._histories) if names else 0):
            assignments[names[partition % len(names)]].append(partition)
        request = m.SyncGroupRequest(
            self._group,
            self._generation,
            self._member,
            None,
            "test",
            "range",
            tuple((name, bytes(partitions)) for name, partitions in assignments.items()),
            5,
        )
        self._caller.call(request, self._synced, JOIN_PATIENCE_MS)

    def _synced(self, response: m.SyncGroupResponse | None) -> None:
        if response is None:
            self._again()
        elif response.error_code:
            self._failed(response.error_code)
        else:
            self._assigned = list(response.assignment)
            self._next()

    # -- as a member --------------------------------------------------------------------------------------------------

    def _next(self) -> None:
        world = self._world
        world.at(world.random.randint(1, HEARTBEAT_MS), self._work)

    def _work(self) -> None:
        random, faults = self._world.random, self._world.faults
        if faults and random.random() < 0.01:
            self._again(2 * SESSION_MS)  # it falls silent, and comes back
        elif faults and random.random() < 0.01:
            self._leave()
        elif self._assigned and random.random() < 0.5:
            self._commit(random.choice(self._assigned))
        elif self._assigned and random.random() < 0.2:
            self._fetch(random.choice(self._assigned))
        else:
            heartbeat = m.HeartbeatRequest(self._group, self._generation, self._member, None)
            self._caller.call(heartbeat, lambda response: self._answered(response and response.error_code))

    def _answered(self, code: int | None) -> None:
        if code is None:
            self._next()
        elif code:
            self._failed(code)
        else:
            self.answered += 1
            self._next()

    def _commit(self, partition: int) -> None:
        history = self._histories[partition]
        version = history.tried + 1
        history.tries(version)
        start = history.start()

        def answered(response: m.OffsetCommitResponse | None) -> None:
            code = None if response is None else response.topics[0][1][0][1]
            if code == ErrorCode.NONE:
                history.acknowledged(version, start)
            self._answered(code)

        self._caller.call(commit_request(self._group, partition, version, self._generation, self._member), answered)

    def _fetch(self, partition: int) -> None:
        history = self._histories[partition]
        start = history.start()

        def answered(response: m.OffsetFetchResponse | None) -> None:
            if response is not None:
                history.read(fetched_version(response), start)
            self._next()

        self._caller.call(fetch_request(self._group, partition), answered)

    def _leave(self) -> None:
        request = m.LeaveGroupRequest(self._group, (m.LeavingMember(self._member, None),))

        def left(_: Any) -> None:
            self._forget()
            self._again()

        self._caller.call(request, left)


def histories_of(group: str, partitions: int) -> list[History]:
    return [History(f"{group} {TOPIC}-{index}") for index in range(partitions)]
