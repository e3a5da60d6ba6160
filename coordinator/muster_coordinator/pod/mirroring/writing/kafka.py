"""What is asked of the upstream about offsets that are written to it, of the broker that leads the group's partition as
far as this pod knows: another one refuses."""

from __future__ import annotations

from functools import partial

from muster_coordinator.errors import ErrorCode
from muster_coordinator.mirror.write_back import ToWrite
from muster_coordinator.pod.mirroring.connection import UpstreamConnection, UpstreamError
from muster_coordinator.pod.mirroring.upstream import UpstreamCluster
from muster_coordinator.requests.groups import OffsetFetchResponse
from muster_coordinator.wire import k08_offset_commit, k09_offset_fetch

MOVED_CODES = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
"""The broker does not coordinate the group, now."""


class RefusedError(Exception):
    """Kafka does not take an offset of the group; the message says why. `has_members`: because the group has members
    there."""

    def __init__(self, message: str, *, has_members: bool = False) -> None:
        super().__init__(message)
        self.has_members = has_members


class KafkaOfWrites:
    """Its calls raise UpstreamError if the broker cannot be asked, RefusedError if it answers with another error."""

    def __init__(self, upstream: UpstreamCluster) -> None:
        self._upstream = upstream

    def broker_of(self, partition: int) -> int:
        """The node id; -1: nobody leads the partition, as far as this pod knows."""
        topic = self._upstream.topic
        return topic.leaders.get(partition, (-1, -1))[0] if topic is not None else -1

    async def offsets(self, partition: int, group_id: str) -> OffsetFetchResponse:
        """All that Kafka has of the group."""
        answer = await self._connection(partition).ask(
            k09_offset_fetch.API,
            k09_offset_fetch.MIRROR_VERSION,
            k09_offset_fetch.encode_request(group_id),
            partial(k09_offset_fetch.decode_response, group_id=group_id),
        )
        _check(answer.error_code, "OffsetFetch")
        for topic, partitions in answer.topics:
            for each in partitions:
                _check(each[4], f"OffsetFetch of {topic}-{each[0]}")
        return answer

    async def commit(self, partition: int, group_id: str, topics: ToWrite) -> None:
        """Write offsets as somebody who is no member of the group."""
        answer = await self._connection(partition).ask(
            k08_offset_commit.API,
            k08_offset_commit.MIRROR_VERSION,
            k08_offset_commit.encode_request(group_id, topics),
            k08_offset_commit.decode_response,
        )
        for topic, results in answer:
            for index, code in results:
                _check(code, f"OffsetCommit of {topic}-{index}")

    def _connection(self, partition: int) -> UpstreamConnection:
        connection = self._upstream.for_writes(self.broker_of(partition))
        if connection is None:
            raise UpstreamError("the upstream partition has no leader")
        return connection


def _check(code: int, what: str) -> None:
    if not code:
        return
    name = ErrorCode(code).name if code in set(ErrorCode) else f"error code {code}"
    if code in MOVED_CODES:
        raise UpstreamError(f"a broker answers {what} with {name}")
    if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
        raise RefusedError("the group has members at Kafka, so that Kafka takes no offsets of it", has_members=True)
    if code in (ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED):
        name += ": the account of the mirror needs READ on the group and on the topics of its offsets"
    raise RefusedError(f"Kafka answers {what} with {name}")
