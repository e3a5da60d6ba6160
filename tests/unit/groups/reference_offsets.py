"""The reference model's offsets: commits, transactions, deletion, expiry."""

from __future__ import annotations

import itertools

from tests.unit.groups.reference_state import Commit, Group, Partition, ReferenceState

from muster_coordinator.errors import ErrorCode as E
from muster_coordinator.requests import groups as m


class Offsets(ReferenceState):
    # -- offsets (4.5, 4.8, 4.9) ---------------------------------------------------------------------------------------

    def commit(self, request: m.OffsetCommitRequest) -> dict[Partition, int]:
        group = self.groups.get(request.group_id)
        member_id, generation = request.member_id, request.generation_id
        code = self._commit_error(group, request)
        if group is None and generation >= 0:
            code = E.GROUP_ID_NOT_FOUND if request.api_version >= 9 else E.ILLEGAL_GENERATION
        elif not code and group is not None and not (generation < 0 and group.state == "Empty"):
            if not (generation >= 0 or member_id or request.group_instance_id is not None):
                code = E.UNKNOWN_MEMBER_ID
            elif group.state == "CompletingRebalance":
                code = E.REBALANCE_IN_PROGRESS
        expires_ms = -1 if request.retention_time_ms == -1 else self.now_ms + request.retention_time_ms
        codes, commits = self._commits(request, code, expires_ms)
        if not code and any(each != E.UNKNOWN_TOPIC_OR_PARTITION for each in codes.values()):
            self._group_of_commit(request.group_id, bool(commits))
            self.committed.update(commits)
            if group is not None and group.state != "Empty":
                self._session(group, group.members[member_id])
        return codes

    def commit_in_transaction(self, request: m.TxnOffsetCommitRequest) -> dict[Partition, int]:
        group = self.groups.get(request.group_id)
        producer = request.producer_id
        code = self._commit_error(group, request)
        if not request.group_id:
            every = [(topic, each[0]) for topic, partitions in request.topics for each in partitions]
            return dict.fromkeys(every, int(E.INVALID_GROUP_ID))
        if request.producer_epoch < self.producer_epochs.get(producer, -1):
            code = E.INVALID_PRODUCER_EPOCH
        elif group is None and request.generation_id >= 0:
            code = E.ILLEGAL_GENERATION
        codes, commits = self._commits(request, code, -1)
        if not code and any(each != E.UNKNOWN_TOPIC_OR_PARTITION for each in codes.values()):
            self._group_of_commit(request.group_id, bool(commits))
            if commits:
                self.pending.setdefault(producer, {}).update(commits)
                self.producer_epochs[producer] = request.producer_epoch
        return codes

    @staticmethod
    def _commit_error(group: Group | None, request: m.OffsetCommitRequest | m.TxnOffsetCommitRequest) -> int:
        """Who commits: nobody (a generation below 0 and no member), or a member in its generation."""
        member_id, instance, generation = request.member_id, request.group_instance_id, request.generation_id
        if group is None or (generation < 0 and group.state == "Empty"):
            return E.NONE
        if generation < 0 and not member_id and instance is None:
            return E.NONE
        code = group.error(member_id, instance)
        return code or (E.NONE if generation == group.generation else E.ILLEGAL_GENERATION)

    def _commits(
        self, request: m.OffsetCommitRequest | m.TxnOffsetCommitRequest, code: int, expires_ms: int
    ) -> tuple[dict[Partition, int], dict[tuple[str, str, int], Commit]]:
        codes: dict[Partition, int] = {}
        commits = {}
        for topic, partitions in request.topics:
            for partition, offset, _, metadata in partitions:
                if (topic, partition) in self.missing:
                    codes[topic, partition] = E.UNKNOWN_TOPIC_OR_PARTITION
                elif code or len(metadata or "") > self.config.offset_metadata_max_size:
                    codes[topic, partition] = code or E.OFFSET_METADATA_TOO_LARGE
                else:
                    codes[topic, partition] = E.NONE
                    commit = Commit(offset, self.now_ms, expires_ms, next(self._writes))
                    commits[request.group_id, topic, partition] = commit
        return codes, commits

    def _group_of_commit(self, group_id: str, written: bool) -> None:
        group = self.groups.setdefault(group_id, Group(group_id, empty_since_ms=self.now_ms))
        group.logged |= written

    def end_transaction(self, producer_id: int, producer_epoch: int, committed: bool) -> int:
        if producer_epoch < self.producer_epochs.get(producer_id, -1):
            return E.INVALID_PRODUCER_EPOCH
        self.producer_epochs[producer_id] = producer_epoch
        for key, commit in self.pending.pop(producer_id, {}).items():
            existing = self.committed.get(key)
            if committed and (existing is None or existing.number < commit.number):
                self.committed[key] = commit
        return E.NONE

    def _is_pending(self, key: tuple[str, str, int]) -> bool:
        return any(key in of_producer for of_producer in self.pending.values())

    def _remove_offset(self, key: tuple[str, str, int]) -> None:
        self.committed.pop(key, None)
        for producer_id in list(self.pending):
            self.pending[producer_id].pop(key, None)
            if not self.pending[producer_id]:
                del self.pending[producer_id]

    def fetch(self, group_id: str, partitions: list[Partition], stable: bool) -> dict[Partition, tuple[int, int]]:
        answer = {}
        for topic, index in partitions:
            key = (group_id, topic, index)
            commit = self.committed.get(key)
            code = E.UNSTABLE_OFFSET_COMMIT if stable and self._is_pending(key) else E.NONE
            answer[topic, index] = (-1 if code or commit is None else commit.offset, int(code))
        return answer

    # -- deletion and expiry (4.7, 4.8) --------------------------------------------------------------------------------

    def delete(self, group_id: str) -> int:
        group = self.groups.get(group_id)
        if group is None:
            return E.GROUP_ID_NOT_FOUND
        if group.state != "Empty":
            return E.NON_EMPTY_GROUP
        for key in [*self.committed, *itertools.chain.from_iterable(self.pending.values())]:
            if key[0] == group_id:
                self._remove_offset(key)
        self._remove_group(group)
        return E.NONE

    def _remove_group(self, group: Group) -> None:
        del self.groups[group.group_id]
        for member_id in group.pending:
            self._not_due("session", group, member_id)

    def delete_offsets(self, request: m.OffsetDeleteRequest) -> tuple[int, dict[Partition, int]]:
        group = self.groups.get(request.group_id)
        if not request.group_id:
            return E.INVALID_GROUP_ID, {}
        if group is None:
            return E.GROUP_ID_NOT_FOUND, {}
        if group.state != "Empty" and group.protocol_type != "consumer":
            return E.NON_EMPTY_GROUP, {}
        codes: dict[Partition, int] = {}
        for topic, partitions in request.topics:
            for index in partitions:
                codes[topic, index] = E.NONE
                if (topic, index) in self.missing:
                    codes[topic, index] = E.UNKNOWN_TOPIC_OR_PARTITION
                elif group.subscribed_to(topic):
                    codes[topic, index] = E.GROUP_SUBSCRIBED_TO_TOPIC
                else:
                    self._remove_offset((request.group_id, topic, index))
        return E.NONE, codes

    def _expire(self) -> None:
        for group in list(self.groups.values()):
            of_group = [(key, commit) for key, commit in self.committed.items() if key[0] == group.group_id]
            expired = [
                key
                for key, commit in of_group
                if self._has_expired(group, key[1], commit) and not self._is_pending(key)
            ]
            for key in expired:
                self._remove_offset(key)
            is_open = any(key[0] == group.group_id for of_producer in self.pending.values() for key in of_producer)
            if len(expired) == len(of_group) and group.state == "Empty" and not is_open:
                self._remove_group(group)

    def _has_expired(self, group: Group, topic: str, commit: Commit) -> bool:
        if group.protocol_type is None:
            since_ms = commit.at_ms
        elif group.state == "Empty":
            since_ms = group.empty_since_ms
        elif group.state == "Stable" and group.subscribed is not None and topic not in group.subscribed:
            since_ms = commit.at_ms
        else:
            return False
        if commit.expires_ms != -1:
            return self.now_ms >= commit.expires_ms
        return self.now_ms - since_ms >= self.config.offsets_retention_minutes * 60_000
