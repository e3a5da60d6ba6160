"""Writes offsets of groups that have moved to Kafka, every few seconds those that Kafka does not have yet.

What is written is committed here, and only the leader of its partition writes it: it first makes Kafka take nothing
more of what earlier ones send, and then has a majority confirm that it leads. It asks Kafka what it has, so nothing has
to be remembered, and a new leader goes on where the last one was. A broker that does not answer holds up nobody but the
groups that it coordinates. Source: docs/adr/0048.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import structlog

from muster_coordinator.mirror.write_back import in_parts, to_write
from muster_coordinator.pod.mirroring.connection import UpstreamError
from muster_coordinator.pod.mirroring.followed import Followed
from muster_coordinator.pod.mirroring.writing.kafka import KafkaOfWrites, Producer, RefusedError, TransactionError
from muster_coordinator.pod.mirroring.writing.partition import UNKNOWN, PartitionWrites
from muster_coordinator.pod.shard_question import ShardRefusedError, ask_shard
from muster_coordinator.requests.groups import OffsetFetchRequest, OffsetFetchResponse
from muster_coordinator.settings import UpstreamSettings
from muster_coordinator.shard.ports import Clock

logger = structlog.get_logger(__name__)

AT_ONCE = 1_000
"""Offsets of one request: some 50 KB."""
GROUPS_AT_ONCE = 100
"""Groups of one transaction, which Kafka ends itself when it takes too long."""
LONG_LEASES = 20
"""Members of a group that moved are gone from Kafka after their session, 45 s by default. Who is there for longer than
so many leases last comes by another way."""
_NO_LEADER = "this pod leads the partition no more"


class WriteBack:
    """`current`: the partitions that this pod leads and follows now. `look_again` is called when another broker leads
    a partition than was known."""

    def __init__(
        self,
        settings: UpstreamSettings,
        kafka: KafkaOfWrites,
        current: Callable[[], Mapping[int, Followed]],
        clock: Clock,
        look_again: Callable[[], None],
    ) -> None:
        self.offsets_written = 0
        self._interval_ms = settings.upstream_write_back_interval_ms
        self._lease_ms = settings.upstream_lease_ms
        self._kafka = kafka
        self._current = current
        self._clock = clock
        self._look_again = look_again
        self._by_partition: dict[int, PartitionWrites] = {}
        self._problem = ""
        self._round: asyncio.Task[None] | None = None
        self._of_broker: dict[int, asyncio.Task[None]] = {}

    def start(self) -> None:
        if self._interval_ms:
            self._round = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        for task in (self._round, *self._of_broker.values()):
            if task is not None:
                task.cancel()

    # -- status --------------------------------------------------------------------------------------------------------

    def unwritten_ms(self, partition: int, group_id: str) -> int:
        """Returns what `PartitionWrites` says; UNKNOWN too where nothing is written."""
        writes = self._of(partition)
        return UNKNOWN if writes is None else writes.unwritten_ms(group_id, self._clock.monotonic_ms())

    def problem_of(self, partition: int, group_id: str) -> str:
        """The reason why Kafka has not all offsets of the group; "" if nothing is wrong."""
        writes = self._of(partition)
        refused = writes.refused.get(group_id) if writes is not None else None
        return "" if refused is None else refused.reason

    @property
    def longest_ms(self) -> int:
        """The longest time (ms) for which something of a group led here may not have been at Kafka."""
        now_ms = self._clock.monotonic_ms()
        return max((each.longest_ms(now_ms) for each in self._all()), default=0)

    @property
    def refused(self) -> int:
        """Groups led here of which Kafka takes no offsets now."""
        return sum(len(each.refused) for each in self._all())

    @property
    def used_there(self) -> list[str]:
        """Groups that have had members at Kafka for long."""
        now_ms = self._clock.monotonic_ms()
        return [
            group
            for writes in self._all()
            for group, refused in writes.refused.items()
            if refused.has_members and now_ms - refused.since_ms >= LONG_LEASES * self._lease_ms
        ]

    # -- the way back --------------------------------------------------------------------------------------------------

    def hold(self, followed: Followed, group_id: str) -> None:
        """Write nothing of the group but by `write_now`. `followed`: of now."""
        self._made(followed).held.add(group_id)

    def release(self, followed: Followed, group_id: str) -> None:
        """Go on."""
        writes = self._by_partition.get(followed.partition)
        if writes is not None and writes.followed is followed:
            writes.held.discard(group_id)

    async def make_ready(self, followed: Followed) -> None:
        """Have a producer, which a cluster without transactions makes a topic for. `followed`: of now. Raises
        UpstreamError, RefusedError."""
        writes = self._made(followed)
        async with writes.writing, self._transaction(writes):
            pass

    async def write_now(self, followed: Followed, group_id: str) -> None:
        """Give Kafka the offsets that are here, of a group that is held. What was under way to Kafka has come there
        then, or never comes. Raises UpstreamError, RefusedError."""
        writes = self._of(followed.partition)
        if writes is None or writes.followed is not followed:
            raise UpstreamError(_NO_LEADER)
        async with writes.writing, self._transaction(writes) as transaction:
            await self._write(transaction, group_id)
            if group_id not in transaction.done:
                raise UpstreamError(_NO_LEADER)

    # -- rounds --------------------------------------------------------------------------------------------------------

    def _of(self, partition: int) -> PartitionWrites | None:
        writes = self._by_partition.get(partition)
        return writes if writes is not None and self._current().get(partition) is writes.followed else None

    def _made(self, followed: Followed) -> PartitionWrites:
        writes = self._by_partition.get(followed.partition)
        if writes is None or writes.followed is not followed:
            now_ms = self._clock.monotonic_ms()
            writes = self._by_partition[followed.partition] = PartitionWrites(followed, now_ms)
        return writes

    def _all(self) -> list[PartitionWrites]:
        current = self._current() if self._by_partition else {}
        return [each for number, each in self._by_partition.items() if current.get(number) is each.followed]

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval_ms / 1000)
            self.round()

    def round(self) -> None:
        """Let all that has changed be written."""
        now_ms = self._clock.monotonic_ms()
        current = self._current()
        for partition in set(self._by_partition) - set(current):
            del self._by_partition[partition]
        of_broker: dict[int, list[PartitionWrites]] = {}
        for partition, followed in current.items():
            writes = self._made(followed)
            writes.look(now_ms)
            if writes.waiting:
                of_broker.setdefault(self._kafka.broker_of(partition), []).append(writes)
        for node_id, partitions in of_broker.items():
            if node_id not in self._of_broker:
                task = asyncio.get_running_loop().create_task(self._write_all(partitions))
                self._of_broker[node_id] = task
                task.add_done_callback(lambda _, node_id=node_id: self._of_broker.pop(node_id))  # type: ignore[misc]
        self._tell()

    async def _write_all(self, partitions: list[PartitionWrites]) -> None:
        """Those that one broker coordinates, one after the other."""
        for writes in partitions:
            waiting = writes.waiting
            for first in range(0, len(waiting), GROUPS_AT_ONCE):
                groups = waiting[first : first + GROUPS_AT_ONCE]
                try:
                    async with writes.writing:
                        await self._write_some(writes, groups)
                except TransactionError as error:
                    self._refuse(writes, str(error))
                    self._look_again()
                    break
                except UpstreamError as error:
                    for each in partitions:
                        self._refuse(each, str(error))
                    self._look_again()
                    return
                except RefusedError as error:
                    self._refuse(writes, str(error))
                    break
                except Exception as error:
                    logger.exception("write_back_failed", partition=writes.followed.partition)
                    self._refuse(writes, f"{type(error).__name__}: {error}")
                    break

    def _refuse(self, writes: PartitionWrites, reason: str) -> None:
        for group_id in writes.waiting:
            writes.refuse(group_id, reason, self._clock.monotonic_ms(), has_members=False)

    async def _write_some(self, writes: PartitionWrites, groups: Sequence[str]) -> None:
        """Writes in one transaction. Raises UpstreamError; RefusedError for what is wrong with all of them."""
        async with self._transaction(writes) as transaction:
            for group_id in groups:
                if group_id in writes.held:
                    continue
                try:
                    await self._write(transaction, group_id)
                except RefusedError as error:
                    now_ms = self._clock.monotonic_ms()
                    writes.refuse(group_id, str(error), now_ms, has_members=error.has_members)

    @asynccontextmanager
    async def _transaction(self, writes: PartitionWrites) -> AsyncIterator[_Transaction]:
        """Raises UpstreamError, RefusedError: it is not known what Kafka has of it then, and the next one begins by
        making sure that nothing more comes."""
        producer, writes.producer = writes.producer, None
        if producer is None:
            producer = await self._kafka.fence(writes.followed.partition)
        transaction = _Transaction(writes, producer)
        yield transaction
        if transaction.is_open:
            await self._kafka.end(producer)
        writes.producer = producer
        for group_id in transaction.done:
            writes.written(group_id)

    async def _write(self, transaction: _Transaction, group_id: str) -> None:
        """Give Kafka what it lacks of the group, if this pod leads it still. Raises UpstreamError, RefusedError."""
        writes, producer = transaction.writes, transaction.producer
        followed = writes.followed
        there = await self._kafka.offsets(followed.partition, group_id)
        writes.taken(group_id)
        here = await _offsets_here(followed, group_id)
        if here is None or not self._may_write(writes, group_id):
            return
        missing = to_write(here, there)
        if missing:
            await self._kafka.check_without_members(followed.partition, group_id)
            if not transaction.is_open:
                await self._kafka.begin(producer, group_id)
                transaction.is_open = True
        for part in in_parts(missing, AT_ONCE):
            if not self._may_write(writes, group_id):
                return
            followed.machine.bypasses.writes(group_id, part)
            await self._kafka.commit(producer, followed.partition, group_id, part)
            self.offsets_written += sum(len(partitions) for _, partitions in part)
        transaction.done.append(group_id)

    def _may_write(self, writes: PartitionWrites, group_id: str) -> bool:
        """True if this pod leads the partition, as far as it knows, and the group is at Muster."""
        return self._of(writes.followed.partition) is writes and writes.is_written(group_id)

    def _tell(self) -> None:
        refused = [(group, each) for writes in self._all() for group, each in writes.refused.items()]
        problem = refused[0][1].reason if refused else ""
        if problem and not self._problem:
            logger.warning("write_back_problem", group=refused[0][0], problem=problem, groups=len(refused))
        elif self._problem and not problem:
            logger.info("write_back_goes_on")
        self._problem = problem


@dataclass
class _Transaction:
    """`done`: groups of which Kafka has everything when it ends."""

    writes: PartitionWrites
    producer: Producer
    is_open: bool = False
    done: list[str] = field(default_factory=list)


async def _offsets_here(followed: Followed, group_id: str) -> OffsetFetchResponse | None:
    """The group's offsets, all of which are committed, from a leader whom a majority has confirmed since it was asked;
    None: this leadership ends."""
    request = OffsetFetchRequest(group_id, None, -1, None, require_stable=False)
    try:
        answer: OffsetFetchResponse = await ask_shard(followed.shard, request)
    except ShardRefusedError:
        return None
    return None if answer.error_code else answer
