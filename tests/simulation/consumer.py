"""Members of consumer groups: join, sync, heartbeat, commit what is assigned to them, leave, fall silent.

Beside consumers of the new protocol they also commit with generations that are not theirs, and send heartbeats without
going on in a rebalance.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.simulation.client import PATIENCE_MS, TOPIC, Caller, commit_request, fetch_request, fetched_version
from tests.simulation.cluster import Partition
from tests.simulation.consuming.late import classic_requests, say_late
from tests.simulation.history import History
from tests.simulation.injected import Injected
from tests.simulation.members import NEVER_GIVEN, OVERDUE, REBALANCE_MS, SESSION_MS
from tests.simulation.world import Violation

from muster_coordinator.errors import ErrorCode
from muster_coordinator.requests import groups as m

__all__ = ["Consumer", "histories_of", "pending_of"]

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
        self._does_more = caller.world.options.consumers > 0
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
        self._assigned = []
        if code == ErrorCode.REBALANCE_IN_PROGRESS and self._happens(0.3):
            self._linger(syncs=False)
            return
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
            is_new = response.generation_id != self._generation
            self._member, self._generation = response.member_id, response.generation_id
            self._assigned = []
            if is_new and self._happens(0.25):
                self._linger(syncs=True)
            else:
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

    # -- a member that hangs in a rebalance ---------------------------------------------------------------------------

    def _happens(self, chance: float) -> bool:
        return self._does_more and self._world.faults and self._world.random.random() < chance

    def _linger(self, *, syncs: bool) -> None:
        """It sends heartbeats alone, until it is out: the phase that waits for it ends, and at most one before it.
        `syncs`: it is to sync, not to join."""
        self._world.injected[Injected.MEMBER_HUNG] += 1
        since_ms, tenure = self._world.now_ms, self.partition.tenure
        limit_ms = 2 * REBALANCE_MS / (1 - self._world.options.drift) + HEARTBEAT_MS
        overdue = 0

        def beat() -> None:
            request = m.HeartbeatRequest(self._group, self._generation, self._member, None)
            self._caller.call(request, answered)

        def answered(response: m.HeartbeatResponse | None) -> None:
            nonlocal overdue
            code = None if response is None else response.error_code
            if self.partition.tenure != tenure or (code == ErrorCode.NONE and not syncs):
                self._again()  # another leader knows of no rebalance
            elif code in (None, ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
                overdue += code is not None and self._world.now_ms > since_ms + limit_ms
                if overdue >= OVERDUE:
                    raise Violation(f"{self._member} hangs since {since_ms}, and {self._group} has it still")
                self._world.at(self._world.random.randint(1, HEARTBEAT_MS), beat)
            else:
                self._failed(code)

        beat()

    @property
    def partition(self) -> Partition:
        return self._caller.partition

    @property
    def has(self) -> tuple[int, list[int]]:
        """(generation, partitions)."""
        return self._generation, self._assigned

    # -- as a member --------------------------------------------------------------------------------------------------

    def _next(self) -> None:
        world = self._world
        world.at(world.random.randint(1, HEARTBEAT_MS), self._work)

    def _work(self) -> None:
        random, faults = self._world.random, self._world.faults
        if self._assigned and self._happens(0.04):
            self._commit_late(random.choice(self._assigned))
        elif self._assigned and self._happens(0.04):
            generation = max(self._generation + random.choice((-2, -1, -1, NEVER_GIVEN)), 0)
            requests = classic_requests(self._group, self._member, generation, None, "test")
            say_late(self._caller, random.choice(requests), self._next)
        elif faults and random.random() < 0.01:
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

    def _commit_late(self, partition: int) -> None:
        """With a generation of before, or with one that nobody was given. This one is in the log."""
        self._world.injected[Injected.LATE_COMMIT] += 1
        generation = self._generation + self._world.random.choice((-1, -1, NEVER_GIVEN))
        version = max(self._histories[partition].tried, 1)

        def answered(response: m.OffsetCommitResponse | None) -> None:
            code = None if response is None else response.topics[0][1][0][1]
            if code == ErrorCode.NONE:
                raise Violation(
                    f"{self._group} takes a commit of {self._member} with generation {generation}, which is in"
                    f" {self._generation}"
                )
            self._next()

        self._caller.call(commit_request(self._group, partition, version, generation, self._member), answered)

    def _leave(self) -> None:
        request = m.LeaveGroupRequest(self._group, (m.LeavingMember(self._member, None),))

        def left(_: Any) -> None:
            self._forget()
            self._again()

        self._caller.call(request, left)


def pending_of(group: Sequence[Consumer], partitions: int) -> str:
    """What all members of a group lack; "": each partition is one's, in the same generation."""
    if len({one.has[0] for one in group}) > 1:
        return f"{[one.has for one in group]} are not of one generation"
    assigned = sorted(partition for one in group for partition in one.has[1])
    return "" if not group or assigned == list(range(partitions)) else f"{[one.has for one in group]} are assigned"


def histories_of(group: str, partitions: int) -> list[History]:
    return [History(f"{group} {TOPIC}-{index}") for index in range(partitions)]
