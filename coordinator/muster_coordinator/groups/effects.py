"""Collects what one operation brings about, and names the timers of the group state."""

from __future__ import annotations

from muster_coordinator.state_machine import (
    CancelTimer,
    Record,
    Reply,
    Result,
    SetTimer,
    TimerKey,
    Token,
    Transaction,
)

EXPIRE_OFFSETS_TIMER: TimerKey = ("expire-offsets", "", "")
"""Search for expired offsets and groups, one per offsets partition."""

DELETE_PARTITIONS_TIMER: TimerKey = ("delete-partitions", "", "")
"""Timer after a deletion of topics, for the groups that were not looked at yet."""

START_SESSIONS_TIMER: TimerKey = ("start-sessions", "", "")
"""Timer after a load, for the groups whose sessions were not started yet."""


def session_timer(group_id: str, member_id: str) -> TimerKey:
    """Session of a member, of a member that waits for its first JoinGroup answer, or of a pending member."""
    return ("session", group_id, member_id)


def join_timer(group_id: str) -> TimerKey:
    """End of the join phase: initial rebalance delay or rebalance timeout."""
    return ("join", group_id, "")


def sync_timer(group_id: str) -> TimerKey:
    """Time by which every member must have sent SyncGroup (KAFKA-12890)."""
    return ("sync", group_id, "")


def parked_timer(group_id: str) -> TimerKey:
    """Time at which a group whose members were put out lets them in again."""
    return ("parked", group_id, "")


class Effects:
    """Records, answers and timers of one operation, in the order in which they came about.

    `token` is the operation's own request, None for a timer: an answer to it becomes the result's response, an
    answer to any other token a reply to a parked request.
    """

    __slots__ = ("_records", "_replies", "_response", "_timers", "_token")

    def __init__(self, token: Token | None = None) -> None:
        self._token = token
        self._response: object | None = None
        self._records: list[Record] = []
        self._replies: list[Reply] = []
        self._timers: list[SetTimer | CancelTimer] = []

    @property
    def record_count(self) -> int:
        return len(self._records)

    @property
    def records(self) -> list[Record]:
        """Those so far; nobody changes the list."""
        return self._records

    def record(self, record: Record) -> None:
        self._records.append(record)

    def reply(self, token: Token, response: object) -> None:
        if token is self._token:
            assert self._response is None, "a request is answered once"
            self._response = response
        else:
            self._replies.append(Reply(token, response))

    def answer(self, response: object) -> Result:
        """The result, with `response` to this operation's own request."""
        assert self._response is None, "a request is answered once"
        self._response = response
        return self.result()

    def set_timer(self, key: TimerKey, delay_ms: int) -> None:
        self._timers.append(SetTimer(key, delay_ms))

    def cancel_timer(self, key: TimerKey) -> None:
        self._timers.append(CancelTimer(key))

    def result(self, transaction: Transaction | None = None) -> Result:
        return Result(self._records, self._response, self._replies, self._timers, transaction)
