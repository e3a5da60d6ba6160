"""The requests by which offsets are written to the upstream. They go to the broker that leads the group's partition as
far as this pod knows; another broker refuses them.

Offsets are written in transactions, for what Kafka does with a transactional id: once a producer of it has started,
nothing more is taken from an earlier one, however late it comes. Source: docs/adr/0048.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from muster_coordinator.errors import ErrorCode
from muster_coordinator.mirror.moving.at_kafka import describing
from muster_coordinator.mirror.write_back import ToWrite, has_members
from muster_coordinator.pod.mirroring.connection import UpstreamConnection, UpstreamError
from muster_coordinator.pod.mirroring.describing import describe
from muster_coordinator.pod.mirroring.upstream import UpstreamCluster
from muster_coordinator.requests.cluster import KEY_TYPE_TRANSACTION
from muster_coordinator.requests.groups import OffsetFetchResponse
from muster_coordinator.tuning.pacing import POLL_S
from muster_coordinator.wire import (
    k09_offset_fetch,
    k10_find_coordinator,
    k22_init_producer_id,
    k25_add_offsets_to_txn,
    k26_end_txn,
    k28_txn_offset_commit,
)

TRANSACTION_LEASES = 5
"""Kafka ends a transaction that is open for longer than so many leases last. Consumers that start at Kafka wait for as
long, at most."""

_MOVED = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
"""The broker does not coordinate the group or the transactional id, now."""
_FENCED = (
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.TRANSACTION_ABORTABLE,
)
_UNSETTLED = (
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)

_T = TypeVar("_T")


class RefusedError(Exception):
    """Kafka does not take an offset of the group; the message says why. `has_members`: because the group has members
    there."""

    def __init__(self, message: str, *, has_members: bool = False) -> None:
        super().__init__(message)
        self.has_members = has_members


class TransactionError(UpstreamError):
    """The transaction is lost, or none can be had now; groups' own broker has nothing to do with it."""


class _UnsettledError(Exception):
    """A transaction of a moment ago is not at its end, or a coordinator not ready; the message says what."""


@dataclass(frozen=True)
class Producer:
    """The one that writes offsets of a partition's groups now, as Kafka knows it. `node_id`: who coordinates it."""

    node_id: int
    transactional_id: str
    producer_id: int
    epoch: int


class KafkaOfWrites:
    """`cluster_id`: of this Muster cluster, which each transactional id has. `lease_ms`: how long offsets may be
    pending, and a transaction be about to end, for which Kafka needs some milliseconds. Its calls raise UpstreamError
    if a broker cannot be asked, RefusedError if it answers with another error."""

    def __init__(self, upstream: UpstreamCluster, cluster_id: Callable[[], str], lease_ms: int) -> None:
        self._upstream = upstream
        self._cluster_id = cluster_id
        self._lease_ms = lease_ms

    def broker_of(self, partition: int) -> int:
        """The node id; -1: nobody leads the partition, as far as this pod knows."""
        topic = self._upstream.topic
        return topic.leaders.get(partition, (-1, -1))[0] if topic is not None else -1

    async def offsets(self, partition: int, group_id: str) -> OffsetFetchResponse:
        """All that Kafka has of the group, when none is pending."""

        async def ask() -> OffsetFetchResponse:
            answer = await self._group_broker(partition).ask(
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

        return await self._settled(ask, "offsets of the group are in a transaction at Kafka that is open")

    async def check_without_members(self, partition: int, group_id: str) -> None:
        """Raises RefusedError if the group has members there."""
        described = await describe(self._group_broker(partition), group_id)
        _check(described.error_code, describing(described))
        if has_members(described):
            raise RefusedError("the group has members at Kafka, so that no offsets of it are written", has_members=True)

    # -- transactions --------------------------------------------------------------------------------------------------

    async def fence(self, partition: int) -> Producer:
        """Start as the producer of the partition. Nothing comes to Kafka any more of what an earlier one has sent, or
        will send; what it has not ended is gone."""
        transactional_id = f"muster-{self._cluster_id()}-{partition}"
        node_id = await self._coordinator_of(transactional_id)

        async def ask() -> Producer:
            answer = await self._connection(node_id).ask(
                k22_init_producer_id.API,
                k22_init_producer_id.MIRROR_VERSION,
                k22_init_producer_id.encode_request(transactional_id, TRANSACTION_LEASES * self._lease_ms),
                k22_init_producer_id.decode_response,
            )
            _check(answer.error_code, "InitProducerId", transactional_id)
            return Producer(node_id, transactional_id, answer.producer_id, answer.producer_epoch)

        return await self._transaction(ask)

    async def begin(self, producer: Producer, group_id: str) -> None:
        """Begin a transaction for offsets of this group, and of all groups of its partition."""

        async def ask() -> None:
            code = await self._connection(producer.node_id).ask(
                k25_add_offsets_to_txn.API,
                k25_add_offsets_to_txn.MIRROR_VERSION,
                k25_add_offsets_to_txn.encode_request(
                    producer.transactional_id, producer.producer_id, producer.epoch, group_id
                ),
                k25_add_offsets_to_txn.decode_response,
            )
            _check(code, "AddOffsetsToTxn", producer.transactional_id)

        await self._transaction(ask)

    async def commit(self, producer: Producer, partition: int, group_id: str, topics: ToWrite) -> None:
        """Give Kafka offsets, which are the group's when the transaction ends."""

        async def ask() -> None:
            answer = await self._group_broker(partition).ask(
                k28_txn_offset_commit.API,
                k28_txn_offset_commit.MIRROR_VERSION,
                k28_txn_offset_commit.encode_request(
                    producer.transactional_id, producer.producer_id, producer.epoch, group_id, topics
                ),
                k28_txn_offset_commit.decode_response,
            )
            for topic, results in answer:
                for index, code in results:
                    _check(code, f"TxnOffsetCommit of {topic}-{index}", producer.transactional_id)

        await self._settled(ask, "Kafka has not ended the transaction before")

    async def end(self, producer: Producer) -> None:
        """Ends the transaction: with the answer Kafka has what was given to it, durably."""

        async def ask() -> None:
            code = await self._connection(producer.node_id).ask(
                k26_end_txn.API,
                k26_end_txn.MIRROR_VERSION,
                k26_end_txn.encode_request(producer.transactional_id, producer.producer_id, producer.epoch),
                k26_end_txn.decode_response,
            )
            _check(code, "EndTxn", producer.transactional_id)

        await self._transaction(ask)

    async def _coordinator_of(self, transactional_id: str) -> int:
        """The node id."""

        async def ask() -> int:
            answer = await self._connection(next(iter(self._upstream.brokers), -1)).ask(
                k10_find_coordinator.API,
                k10_find_coordinator.MIRROR_VERSION,
                k10_find_coordinator.encode_request((transactional_id,), KEY_TYPE_TRANSACTION),
                k10_find_coordinator.decode_response,
            )
            (found,) = answer.coordinators
            _check(found.error_code, "FindCoordinator", transactional_id)
            return found.node_id

        return await self._transaction(ask)

    async def _transaction(self, ask: Callable[[], Awaitable[_T]]) -> _T:
        """Raises TransactionError for UpstreamError: about a transaction, and no group's broker."""
        try:
            return await self._settled(ask, "Kafka has not ended the transaction before")
        except TransactionError:
            raise
        except UpstreamError as error:
            raise TransactionError(str(error)) from error

    async def _settled(self, ask: Callable[[], Awaitable[_T]], problem: str) -> _T:
        """Ask again while a transaction ends. Raises RefusedError if that takes long."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._lease_ms / 1000
        while True:
            try:
                return await ask()
            except _UnsettledError as error:
                if loop.time() >= until_s:
                    raise RefusedError(f"{problem}: {error}") from None
            await asyncio.sleep(POLL_S)

    def _group_broker(self, partition: int) -> UpstreamConnection:
        connection = self._upstream.for_writes(self.broker_of(partition))
        if connection is None:
            raise UpstreamError("the upstream partition has no leader")
        return connection

    def _connection(self, node_id: int) -> UpstreamConnection:
        connection = self._upstream.for_writes(node_id)
        if connection is None:
            raise UpstreamError(f"broker {node_id} is not known")
        return connection


def _check(code: int, what: str, transactional_id: str = "") -> None:
    """Raises UpstreamError, _UnsettledError or RefusedError for an error code."""
    if not code:
        return
    name = ErrorCode(code).name if code in set(ErrorCode) else f"error code {code}"
    if code in _MOVED:
        raise UpstreamError(f"a broker answers {what} with {name}")
    if code in _FENCED:
        raise TransactionError(f"Kafka has ended the transaction of {transactional_id}: {what}: {name}")
    if code in _UNSETTLED:
        raise _UnsettledError(f"{what}: {name}")
    if code in (ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED):
        name += ": the account of the mirror needs READ on the group and on the topics of its offsets"
    if code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
        name += f": the account of the mirror needs WRITE on transactional id {transactional_id}"
    raise RefusedError(f"Kafka answers {what} with {name}")
