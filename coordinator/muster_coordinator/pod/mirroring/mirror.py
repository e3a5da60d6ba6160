"""Follows all upstream partitions whose mirrors this pod leads: one task for each broker of the upstream cluster.

The position stands in the log of the partition, so a new leader goes on where the last one's committed records end.
A task fetches the partitions that its broker leads and that wait for no shard, gives what came to the shards, and waits
for them before it fetches more. Source: docs/adr/0032.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial

import structlog

from muster_coordinator.errors import ErrorCode
from muster_coordinator.mirror.coordinator import MirrorCoordinator
from muster_coordinator.outgoing.connector import Connector
from muster_coordinator.partition_numbers import OFFSETS
from muster_coordinator.pod.mirroring.barrier import Barrier
from muster_coordinator.pod.mirroring.bypass_log import BypassLog
from muster_coordinator.pod.mirroring.connection import UpstreamConnection, UpstreamError
from muster_coordinator.pod.mirroring.ends import EndsOfKafka
from muster_coordinator.pod.mirroring.followed import Followed
from muster_coordinator.pod.mirroring.health import MirrorHealth
from muster_coordinator.pod.mirroring.lag import GroupLag
from muster_coordinator.pod.mirroring.moving.kafka import KafkaOfMoves
from muster_coordinator.pod.mirroring.moving.moves import Moves
from muster_coordinator.pod.mirroring.offsets import EARLIEST, LATEST, list_offsets
from muster_coordinator.pod.mirroring.records_of import RecordsOfKafka
from muster_coordinator.pod.mirroring.release import UpstreamRelease
from muster_coordinator.pod.mirroring.topics import UpstreamTopics
from muster_coordinator.pod.mirroring.upstream import Topic, UpstreamCluster
from muster_coordinator.pod.mirroring.writing.kafka import KafkaOfWrites
from muster_coordinator.pod.mirroring.writing.writes import WriteBack
from muster_coordinator.podapi.mirror import MirrorAnswer
from muster_coordinator.requests.upstream import FetchRecordsRequest
from muster_coordinator.setting_fields import parse_addresses
from muster_coordinator.settings import UpstreamSettings
from muster_coordinator.shard.ports import Clock
from muster_coordinator.shard.shard import Shard
from muster_coordinator.states import ShardState
from muster_coordinator.wire import k01_fetch

logger = structlog.get_logger(__name__)

PARTITION_BYTES = 128 << 10
"""The bytes of one answer for each partition: a few milliseconds of work for the event loop."""
FETCH_BYTES = 512 << 10
TOPICS_EVERY = 20
"""The number of rests between two looks at the upstream's topics: 5 s by default. A new partition has consumers
then."""
BYPASSES_NAMED = 3
"""Groups in a pod's status that are used at the upstream; the log has all."""


class Mirror:
    """`partitions`: our numbers of the offsets partitions, and `cluster_id`, as the image has them. `topics` and
    `release` are kept up to date. `changed` is called when a problem or a bypass begins or ends, which is in `health`
    then."""

    def __init__(
        self,
        settings: UpstreamSettings,
        connector: Connector,
        commit_timeout_s: float,
        shards: Mapping[int, Shard],
        partitions: Callable[[], range],
        cluster_id: Callable[[], str],
        clock: Clock,
        health: MirrorHealth,
        topics: UpstreamTopics,
        release: UpstreamRelease,
        changed: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._release = release
        self._connector = connector
        self._health = health
        self._changed = changed
        self._pace_s = settings.upstream_fetch_wait_ms / 1000
        self._upstream = UpstreamCluster(connector, parse_addresses(settings.upstream_bootstrap), 2 * commit_timeout_s)
        # Who is refused asks again, and then waits for a later end: behind a mirror that stays further back than a
        # commit may wait, nobody would get through. Java gives up a connection after 30 s without an answer.
        self.barrier = Barrier(self._end_of, self._position_of, 4 * commit_timeout_s)
        self._shards = shards
        self._partitions = partitions
        self._clock = clock
        self._followed: dict[int, Followed] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._looking: asyncio.Task[None] | None = None
        self._listing: asyncio.Task[None] | None = None
        self._learning: asyncio.Task[None] | None = None
        self._look_again = asyncio.Event()
        self._bypasses = BypassLog(clock, settings.upstream_fetch_wait_ms)
        self._problem = "the upstream was not asked yet"
        kafka = KafkaOfMoves(self._upstream)
        self.records = RecordsOfKafka(self._upstream)
        kafka_of_writes = KafkaOfWrites(self._upstream, cluster_id, settings.upstream_lease_ms)
        self.writes = WriteBack(settings, kafka_of_writes, self._current, clock, self._look_again.set)
        self.moves = Moves(settings, kafka, self._current, lambda: len(self._partitions()), clock, self.writes)

        most = settings.upstream_group_lag_max_groups
        new_round = partial(EndsOfKafka, self._upstream)
        self.lag = GroupLag(most, new_round, topics.count_of, self._current, clock, self._pace_s)

    def start(self) -> None:
        self._looking = asyncio.get_running_loop().create_task(self._look())
        self._listing = asyncio.get_running_loop().create_task(self._list_topics())
        learning = self._release.follow(self._upstream, self._pace_s)
        self._learning = asyncio.get_running_loop().create_task(learning)
        self.moves.start()
        self.writes.start()
        self.lag.start()

    def stop(self) -> None:
        self.moves.stop()
        self.writes.stop()
        self.lag.stop()
        for task in (self._looking, self._listing, self._learning, *self._tasks.values()):
            if task is not None:
                task.cancel()
        self.barrier.stop()
        self._upstream.close()

    def status(self) -> MirrorAnswer:
        partitions = tuple(followed.status() for _, followed in sorted(self._current().items()))
        return MirrorAnswer(self._settings.upstream_bootstrap, self._why_none(), partitions)

    @property
    def refused_connections(self) -> Mapping[str, int]:
        """Connections to brokers that TLS or a login has refused, by which of them."""
        return self._connector.failed

    async def _end_of(self, partition: int) -> int:
        """Raises UpstreamError."""
        topic = self._upstream.topic
        leader, epoch = topic.leaders.get(partition, (-1, -1)) if topic is not None else (-1, -1)
        connection = self._upstream.for_questions(leader)
        if connection is None:
            raise UpstreamError("the upstream partition has no leader")
        try:
            found = await list_offsets(connection, ((partition, epoch, LATEST),))
        except UpstreamError:
            self._look_again.set()
            raise
        code, offset = found.get(partition, (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1))
        if code or offset < 0:
            self._look_again.set()
            raise UpstreamError(f"the broker does not say where the partition ends: error code {code}")
        return offset

    def _position_of(self, partition: int) -> int:
        followed = self._current().get(partition)
        return -1 if followed is None else followed.certain_offset

    # -- who leads what ------------------------------------------------------------------------------------------------

    async def _look(self) -> None:
        while True:
            self._look_again.clear()
            try:
                await self._upstream.look()
                self._note("")
                self._note_leaderless()
            except UpstreamError as error:
                self._note(str(error))
                self._look_again.set()
            self._tell()
            self._start_tasks()
            await asyncio.sleep(self._pace_s)
            await self._look_again.wait()

    async def _list_topics(self) -> None:
        """`topics` are those of the upstream, as long as it can be asked."""
        problem = ""
        while True:
            try:
                self._topics.take(await self._upstream.topics())
                problem = ""
            except UpstreamError as error:
                if str(error) != problem:
                    logger.warning("mirror_topics", problem=str(error))
                problem = str(error)
            await asyncio.sleep(self._pace_s if problem else TOPICS_EVERY * self._pace_s)

    def _note(self, problem: str) -> None:
        if problem and problem != self._problem:
            logger.warning("mirror_upstream", problem=problem)
        self._problem = problem

    def _tell(self) -> None:
        problem, bypassed = self._why_none(), self._who_bypasses()
        before = bool(self._health.problem), bool(self._health.bypassed)
        if bool(problem) != before[0]:
            self._health.problem = problem
        if bool(bypassed) != before[1]:
            self._health.bypassed = bypassed
        if (bool(problem), bool(bypassed)) != before:
            self._changed()

    def _who_bypasses(self) -> str:
        told = {each.group_id: each for followed in self._followed.values() for each in followed.bypassed.values()}
        found = [f"{each.group_id} by {each.clients}" for each in told.values()]
        found += [f"{group} by members of before its move" for group in self.writes.used_there if group not in told]
        more = f", and {len(found) - BYPASSES_NAMED} more groups" if len(found) > BYPASSES_NAMED else ""
        return ", ".join(found[:BYPASSES_NAMED]) + more

    def _why_none(self) -> str:
        """The reason why no partition can be followed; "" if nothing is wrong."""
        topic, ours = self._upstream.topic, len(self._partitions())
        if self._problem or topic is None or not ours or len(topic.leaders) == ours:
            return self._problem
        return (
            f"the upstream has {len(topic.leaders)} partitions of {OFFSETS.name}, and this cluster {ours}: "
            "it has to have as many"
        )

    def _note_leaderless(self) -> None:
        topic, brokers = self._upstream.topic, self._upstream.brokers
        for index, followed in self._current().items():
            if topic is not None and topic.leaders.get(index, (-1, -1))[0] not in brokers:
                followed.failed("the upstream partition has no leader")
                self._look_again.set()

    def _start_tasks(self) -> None:
        brokers = self._upstream.brokers
        for node_id in brokers:
            if node_id not in self._tasks:
                self._tasks[node_id] = asyncio.get_running_loop().create_task(self._follow(node_id))
        for node_id in set(self._tasks) - set(brokers):
            self._tasks.pop(node_id).cancel()

    def _current(self) -> dict[int, Followed]:
        """The partitions that this pod leads and follows now, by the number that Kafka knows."""
        partitions = self._partitions()
        led: dict[int, Followed] = {}
        for number in partitions:
            shard = self._shards.get(number)
            machine = shard.machine if shard is not None and shard.state is ShardState.ACTIVE else None
            if shard is None or not isinstance(machine, MirrorCoordinator):
                continue
            index = number - partitions.start
            before = self._followed.get(index)
            if before is not None and before.shard is shard and before.epoch == shard.epoch:
                led[index] = before
            else:
                told = self.barrier.advanced, self._bypasses.add
                led[index] = Followed(index, shard, machine, self._clock, self._settings, *told)
        self._followed = led
        return led

    # -- one broker ----------------------------------------------------------------------------------------------------

    async def _follow(self, node_id: int) -> None:
        turn = 0
        while True:
            connection, topic = self._upstream.connection(node_id), self._upstream.topic
            ready = self._ready(node_id, topic) if connection is not None and topic is not None else []
            self.barrier.expire()
            self._bypasses.look()
            self._tell()
            if connection is None or topic is None or not ready:
                await asyncio.sleep(self._pace_s)
                continue
            turn += 1
            first = turn % len(ready)  # a broker fills an answer from its first partition on
            ready = ready[first:] + ready[:first]
            try:
                await self._read(connection, topic, ready)
            except UpstreamError as error:
                for followed in ready:
                    if followed.busy is None:
                        followed.failed(str(error))
                self._look_again.set()
            except Exception as error:
                logger.exception("mirror_failed", node_id=node_id)
                for followed in ready:
                    followed.failed(f"{type(error).__name__}: {error}")
            await self._appended(ready)

    def _ready(self, node_id: int, topic: Topic) -> list[Followed]:
        if len(topic.leaders) != len(self._partitions()):
            return []
        return [
            followed
            for index, followed in self._current().items()
            if topic.leaders.get(index, (-1, -1))[0] == node_id and followed.is_ready
        ]

    async def _read(self, connection: UpstreamConnection, topic: Topic, ready: list[Followed]) -> None:
        """Raises UpstreamError."""
        reading = [
            followed
            for followed in ready
            if not followed.take_back_if_needed(topic.topic_id, topic.leaders[followed.partition][1])
        ]
        starting = [followed for followed in reading if followed.needs_start]
        if starting:
            await self._begin(connection, topic, starting)
        reading = [followed for followed in reading if not followed.needs_start]
        if not reading:
            return
        request = FetchRecordsRequest(
            topic.topic_id,
            tuple(followed.to_fetch(topic.leaders[followed.partition][1]) for followed in reading),
            self._settings.upstream_fetch_wait_ms,
            FETCH_BYTES,
            PARTITION_BYTES,
        )
        body = k01_fetch.encode_request(request)
        answer = await connection.ask(k01_fetch.API, k01_fetch.RECORDS_VERSION, body, k01_fetch.decode_response)
        if answer.error_code:
            raise UpstreamError(f"a broker refused Fetch with error code {answer.error_code}")
        asked = {followed.partition: followed for followed in reading}
        current = self._current()
        for fetched in answer.partitions:
            followed = asked.pop(fetched.partition, None)
            if followed is None or current.get(fetched.partition) is not followed:
                continue  # its leadership ended meanwhile, or the broker answers what nobody has asked
            if followed.fetched(fetched):
                self._look_again.set()

    async def _begin(self, connection: UpstreamConnection, topic: Topic, starting: list[Followed]) -> None:
        """Find out where these partitions start. Raises UpstreamError."""
        places = tuple((each.partition, topic.leaders[each.partition][1], EARLIEST) for each in starting)
        found = await list_offsets(connection, places)
        for followed in starting:
            code, offset = found.get(followed.partition, (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1))
            if code or offset < 0:
                followed.failed(f"the broker does not say where the partition starts: error code {code}")
                self._look_again.set()
            else:
                followed.begin(topic.topic_id, offset, topic.leaders[followed.partition][1])

    async def _appended(self, ready: list[Followed]) -> None:
        """Wait until the shards have answered, but not for one that takes long."""
        waiting = [followed.busy for followed in ready if followed.busy is not None]
        if waiting:
            await asyncio.wait(waiting, timeout=self._pace_s)
