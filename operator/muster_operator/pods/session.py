"""Session with one pod: keeps a watch stream open and the view of the pod current."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import aclosing

import aiohttp
import msgspec
import structlog

from muster_coordinator.calls import CallResult, CallStatus
from muster_coordinator.podapi.client import (
    PodApiError,
    PodClient,
    PodRefusedError,
    PodTimeoutError,
    PodUnreachableError,
)
from muster_coordinator.podapi.image import MetadataAnswer
from muster_coordinator.podapi.models import (
    PartitionEvent,
    PodStatus,
    ReplicaStatus,
    StatusEvent,
)
from muster_coordinator.states import ReplicaRole, ShardState
from muster_operator.clock import Clock
from muster_operator.plan.observation import Connection, PodView
from muster_operator.pods.detector import DETAILS, TRANSITIONS, Event
from muster_operator.store.workload import PodInfo, PodPhase

__all__ = ["PodSession"]

log = structlog.get_logger(__name__)

RETRY_MIN_S = 0.05
"""The shortest pause between attempts to reach a pod that is down."""
RETRY_MAX_S = 0.25
"""The longest one: it is part of every failover."""
RETRY_SHARE = 0.02
"""Between attempts to reach a pod that is down: this share of the time that it has been away, within these bounds.
Nobody tells that a port is open again, and how soon that is noticed is part of every failover; a refused connection
costs little."""


class PodSession:
    """`changed` is called, on the loop's thread, whenever `view` differs in what a plan could depend on."""

    def __init__(
        self,
        http: aiohttp.ClientSession,
        info: PodInfo,
        suspect_after_s: float,
        clock: Clock,
        changed: Callable[[], None],
    ) -> None:
        self.info = info
        self.client = PodClient(http, info.name, info.api_address)
        self.suspect_after_s = suspect_after_s
        self.runs = 0
        """Streams opened so far: another one means that the pod may have restarted."""
        self._clock = clock
        self._changed = changed
        self._connection = Connection.UNSURE if info.api_address else Connection.DOWN
        self._detail = "" if info.api_address else "it has no address yet"
        self._steady_since = clock.monotonic()
        self._status: PodStatus | None = None
        self._replicas: dict[int, ReplicaStatus] = {}
        self._ended: Event | None = None
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"PodSession({self.info.name}, {self._connection.value}, {self._detail or 'well'})"

    def start(self, crashed: Callable[[BaseException], None] | None = None) -> None:
        """`crashed` gets what must not happen: the error that ended the session by itself."""

        def check(task: asyncio.Task[None]) -> None:
            error = None if task.cancelled() else task.exception()
            if error is not None and crashed is not None:
                crashed(error)

        if self.info.api_address:
            self._task = asyncio.create_task(self._run(), name=f"session-{self.info.name}")
            self._task.add_done_callback(check)

    def stop(self) -> asyncio.Task[None] | None:
        """The task that is ending, if there is one."""
        if self._task is not None:
            self._task.cancel()
        return self._task

    @property
    def is_up(self) -> bool:
        """Its stream delivers."""
        return self._connection is Connection.UP

    def view(self) -> PodView:
        status, info = self._status, self.info
        connection, detail = self._connection, self._detail
        if detail and info.node_lost:
            detail += f", and nothing is heard of its node {info.node}"
        if connection is not Connection.UP and info.phase in (PodPhase.PENDING, PodPhase.FAILED):
            connection, detail = Connection.DOWN, detail or "its process does not run"
        if connection is Connection.UP and status is not None and not status.started:
            # Before it has opened its logs a pod knows nothing of its replicas; to believe it would call them lost.
            connection = Connection.UNSURE
        return PodView(
            name=info.name,
            node_id=info.node_id if status is None else status.node_id,
            connection=connection,
            kafka_address="" if status is None else status.kafka_address,
            ready=status is not None and status.ready,
            draining=info.phase in _ENDING or (status is not None and status.draining),
            gone=info.phase is PodPhase.GONE,
            image=(-1, -1) if status is None else (status.metadata_token, status.metadata_version),
            replicas=dict(self._replicas),
            detail=detail,
            peer_address="" if status is None else status.peer_address,
            fencing_token=-1 if status is None else status.fencing_token,
            lost_peers=frozenset(() if status is None else status.lost_peers),
            steady_s=self._clock.monotonic() - self._steady_since,
            node=info.node,
            zone=info.zone,
            outdated=info.outdated,
            cordoned=info.cordoned,
            node_lost=info.node_lost,
            uid=info.uid,
        )

    # What answers to calls say is as true as an event, and often earlier. `run` is that of `runs` when the call was
    # sent: an answer of an earlier life of the pod says nothing about this one.

    def learn_elections(self, run: int, asked: Mapping[int, int], results: Iterable[CallResult]) -> None:
        """`asked`: the epoch that was asked for, by partition."""
        for result in results if run == self.runs else ():
            before = self._replicas.get(result.partition)
            if before is None or result.log_id != before.log_id or result.partition not in asked:
                continue
            state = _LEADS.get(result.status)
            if state is not None and result.epoch == asked[result.partition]:
                if before.epoch < result.epoch or before.state in _NOT_ACTIVE_YET:  # else an event was faster
                    self._put(result.partition, _leading(before, result.epoch, state))
            elif result.epoch > before.epoch:
                self._put(result.partition, msgspec.structs.replace(before, epoch=result.epoch, used=True))

    def learn_replicas(self, run: int, results: Iterable[CallResult]) -> None:
        for result in results if run == self.runs else ():
            if result.log_id and result.partition not in self._replicas:
                self._replicas[result.partition] = ReplicaStatus(
                    result.partition, ShardState.INITIAL, log_id=result.log_id, used=result.used
                )

    def learn_partitions(self, run: int, partitions: Iterable[ReplicaStatus]) -> None:
        """Newer positions than those of the last events."""
        for each in partitions if run == self.runs else ():
            self._put(each.partition, each)

    def learn_image(self, run: int, answer: MetadataAnswer) -> None:
        if self._status is not None and run == self.runs:
            self._status = msgspec.structs.replace(
                self._status, metadata_token=answer.token, metadata_version=answer.version
            )

    def _put(self, partition: int, view: ReplicaStatus) -> bool:
        """Take the view unless it is older than what is known, as events and answers overtake each other. Whether a
        plan could depend on what is new: positions move with every commit, and who waits for one asks for it."""
        before = self._replicas.get(partition)
        if before is not None and before.log_id == view.log_id and _is_older(view, before):
            return False
        self._replicas[partition] = view
        return before is None or before.without_positions() != view.without_positions()

    # The stream

    async def _run(self) -> None:
        lost_at = self._clock.monotonic()
        while True:
            if await self._follow():
                lost_at = self._clock.monotonic()  # and reconnect at once: whether that is refused is the question
            else:
                away_s = self._clock.monotonic() - lost_at
                await asyncio.sleep(min(max(away_s * RETRY_SHARE, RETRY_MIN_S), RETRY_MAX_S))

    async def _follow(self) -> bool:
        """One stream, from its opening to its end. Whether it ever delivered."""
        delivered = False
        event = Event.ENDED
        try:
            async with aclosing(self.client.watch(self.suspect_after_s)) as events:
                async for each in events:
                    if isinstance(each, StatusEvent):
                        self._take_status(each.status, first=not delivered)
                        delivered = True
                    elif isinstance(each, PartitionEvent):
                        self._take_partition(each.partition)
        except PodApiError as error:
            event = _event_of(error, delivered)
            if self._ended is not event:  # once per way of being down, not at every attempt
                log.info("pod stream ended", pod=self.info.name, how=event.value, error=str(error))
        self._ended = event
        self._move(event)
        return delivered

    def _take_status(self, status: PodStatus, *, first: bool) -> None:
        self._status = status
        self._replicas = {each.partition: each for each in status.partitions}
        if first:
            self.runs += 1
            self._ended = None
            log.info("pod stream opened", pod=self.info.name, partitions=len(status.partitions))
            self._move(Event.STATUS)
        self._changed()

    def _take_partition(self, partition: ReplicaStatus) -> None:
        if self._put(partition.partition, partition):
            self._changed()

    def _move(self, event: Event) -> None:
        before = self._connection, self._detail
        self._connection = TRANSITIONS[self._connection, event]
        in_doubt = self._connection in (Connection.DOWN, Connection.SUSPECT)
        self._detail = DETAILS[event] if in_doubt else ""
        if (self._connection is Connection.UP) != (before[0] is Connection.UP):
            self._steady_since = self._clock.monotonic()
        # UNSURE is nothing to act on, and the reconnect that is under way shall not wait for a plan.
        if (self._connection, self._detail) != before and self._connection is not Connection.UNSURE:
            self._changed()


_ENDING = (PodPhase.TERMINATING, PodPhase.GONE)
_NOT_ACTIVE_YET = (ShardState.INITIAL, ShardState.LOADING)
_LEADS = {CallStatus.ACCEPTED: ShardState.ACTIVE, CallStatus.LOADING: ShardState.LOADING}


def _is_older(view: ReplicaStatus, known: ReplicaStatus) -> bool:
    """Within one log promises only rise, and what is ACTIVE or FAILED in an epoch does not load in it again."""
    if view.epoch != known.epoch:
        return view.epoch < known.epoch
    return (
        view.state is ShardState.LOADING
        and known.state in (ShardState.ACTIVE, ShardState.FENCED, ShardState.FAILED)
        and view.leader_epoch == known.leader_epoch
    )


def _leading(before: ReplicaStatus, epoch: int, state: ShardState) -> ReplicaStatus:
    """What an event would say; only the event knows the sets and the followers."""
    return ReplicaStatus(
        before.partition,
        state,
        ReplicaRole.LEADER,
        epoch,
        epoch,
        before.log_id,
        True,
        before.log_end_offset,
        before.high_watermark,
    )


def _event_of(error: PodApiError, delivered: bool) -> Event:
    if isinstance(error, PodRefusedError):
        return Event.STRANGER
    if delivered:
        return Event.SILENT if isinstance(error, PodTimeoutError) else Event.ENDED
    refused = isinstance(error, PodUnreachableError) and error.refused
    return Event.REFUSED if refused else Event.UNREACHABLE
