"""Clients of both protocols, as the Java client behaves, against a coordinator in memory: each knows what it owns."""

from __future__ import annotations

from typing import Any

from tests.unit.groups.consumer.consumer_harness import request
from tests.unit.groups.harness import Pending
from tests.unit.groups.two_kinds import TwoKinds

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.consumer.embedded import read_assignment, read_subscription, write_assignment
from muster_coordinator.records.primitives import INT16, INT32

TOPIC = "t"
Owned = frozenset[int]
NOTHING: Owned = frozenset()
SESSION_MS = 10_000


def subscription_of(owned: Owned, version: int, topics: tuple[str, ...] = (TOPIC,)) -> bytes:
    """ConsumerProtocolSubscription; v1 says what the member owns of TOPIC."""
    names = b"".join([INT16.pack(len(topic)) + topic.encode() for topic in topics])
    data = INT16.pack(version) + INT32.pack(len(topics)) + names + INT32.pack(-1)
    if version >= 1:
        data += INT32.pack(1) + INT16.pack(len(TOPIC)) + TOPIC.encode() + INT32.pack(len(owned))
        data += b"".join([INT32.pack(each) for each in sorted(owned)])
    return data


class Consumer:
    """A member of the consumer protocol."""

    def __init__(self, h: TwoKinds, name: str) -> None:
        self._h = h
        self.member_id = name
        self.owned: Owned = NOTHING
        self.epoch = 0

    def poll(self) -> None:
        """One heartbeat."""
        joining: dict[str, Any] = {}
        if self.epoch == 0:
            joining = {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": (TOPIC,)}
        topic_id = self._h.consumer_topics.find(TOPIC)
        assert topic_id is not None
        partitions = ((topic_id[0], tuple(sorted(self.owned))),) if self.owned else ()
        sent = request(self.member_id, self.epoch, topic_partitions=partitions, **joining)
        answer = self._h.send(sent).response
        if answer.error_code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            self.owned, self.epoch = NOTHING, 0
            return
        if answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND:  # it was alone with classic members, and put out
            self.owned, self.epoch = NOTHING, 0
            return
        if answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return
        assert answer.error_code == 0, answer
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.owned = frozenset([each for _, of_topic in answer.assignment for each in of_topic])

    def leave(self) -> None:
        self.owned = NOTHING
        if self.epoch:
            self._h.send(request(self.member_id, -1))
            self.epoch = 0


class Classic:
    """A member of the classic protocol. `cooperative`: it keeps what it has while it joins anew (KIP-429)."""

    def __init__(self, h: TwoKinds, name: str, *, cooperative: bool) -> None:
        self._h = h
        self.name = name
        self.version = 1 if cooperative else 0
        self.member_id = ""
        self.owned: Owned = NOTHING
        self.generation = -1
        self._join: Pending | None = None
        self._sync: Pending | None = None
        self._joins = True
        self._assigned_count: int | None = None  # partitions of the topic when it assigned them, as a leader

    def poll(self) -> None:
        """Take up what was answered, or send what comes next."""
        if self._join is not None:
            if self._join.response is not None:
                answer, self._join = self._join.response, None
                self._joined(answer)
        elif self._sync is not None:
            if self._sync.response is not None:
                answer, self._sync = self._sync.response, None
                self._synced(answer)
        elif self._joins:
            self._send_join()
        else:
            self._heartbeat()

    def leave(self) -> None:
        self.owned = NOTHING
        if self.member_id:
            self._h.leave("g", self.member_id)
        self._lose()

    def _lose(self) -> None:
        self.owned, self.member_id, self.generation = NOTHING, "", -1
        self._join = self._sync = None
        self._joins = True

    def _send_join(self) -> None:
        if self.version == 0:
            self.owned = NOTHING
        self._joins = False
        self._join = self._h.join(
            "g",
            self.member_id,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=30_000,
            protocols=(("range", subscription_of(self.owned, self.version)),),
            client_id=self.name,
        )

    def _joined(self, answer: Any) -> None:
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id, self._joins = answer.member_id, True
        elif self._failed(answer.error_code):
            return
        else:
            self.member_id, self.generation = answer.member_id, answer.generation_id
            leads = answer.leader == self.member_id
            self._assigned_count = self._h.consumer_topics.counts[TOPIC] if leads else None
            assignments = self._assign(answer) if leads else {}
            self._sync = self._h.sync("g", self.generation, self.member_id, assignments)

    def _synced(self, answer: Any) -> None:
        if self._failed(answer.error_code):
            return
        given = frozenset([p for _, partitions in read_assignment(answer.assignment).partitions for p in partitions])
        lost = self.owned - given
        self.owned = given
        self._joins = bool(lost)  # what it gave back is for another one

    def _heartbeat(self) -> None:
        code = self._h.heartbeat("g", self.generation, self.member_id)
        if not self._failed(code) and self._assigned_count not in (None, self._h.consumer_topics.counts[TOPIC]):
            self._joins = True

    def _failed(self, code: int) -> bool:
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._joins = True
            return True
        if code == ErrorCode.ILLEGAL_GENERATION:
            self.owned, self.generation, self._joins = NOTHING, -1, True
            return True
        if code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
            self._joins = True
            return True
        if code:
            assert code == ErrorCode.UNKNOWN_MEMBER_ID, code
            self._lose()
            return True
        return False

    def _assign(self, answer: Any) -> dict[str, bytes]:
        """Evenly; a partition that another member of the cooperative protocol still has is given to nobody."""
        count = self._h.consumer_topics.counts[TOPIC]
        ids = sorted([each.member_id for each in answer.members])
        claimed = {
            partition: each.member_id
            for each in answer.members
            for _, partitions in read_subscription(each.metadata).owned
            for partition in partitions
        }
        given: dict[str, list[int]] = {member_id: [] for member_id in ids}
        for partition in range(count):
            member_id = ids[partition * len(ids) // count]
            if claimed.get(partition, member_id) == member_id:
                given[member_id].append(partition)
        return {member_id: write_assignment([(TOPIC, partitions)], 0) for member_id, partitions in given.items()}
