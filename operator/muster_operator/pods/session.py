"""The session with one pod: it keeps a watch stream open, and knows the pod's last status."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import aclosing
from typing import Any, TypeVar

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
from muster_coordinator.podapi.models import PartitionEvent, PodStatus, ReplicaStatus, StatusEvent
from muster_coordinator.states import ReplicaRole, ShardState
from muster_operator.api.reshard import Layout
from muster_operator.clock import Clock
from muster_operator.plan.observation import Connection, PodView
from muster_operator.pods.detector import DETAILS, TRANSITIONS, Event
from muster_operator.store.workload import PodInfo, PodPhase

log = structlog.get_logger(__name__)

T = TypeVar("T")

RETRY_S = 0.1
"""Seconds between attempts to reach a pod that is down. Nothing tells the operator that the pod listens again, and a
refused connection costs little."""


class PodSession:
    """`changed` is called on the event loop whenever `view` changes in something that a plan can depend on.

    `suspect_after_s`: a pod that sends nothing for this time is SUSPECT.
    """

    def __init__(
        self,
        http: aiohttp.ClientSession,
        info: PodInfo,
        suspect_after_s: float,
        clock: Clock,
        changed: Callable[[], None],
    ) -> None:
        self.info = info
        self.client = PodClient(http, info.name, info.api_address, info.tls)
        self.runs = 0
        """Streams opened so far. A new stream means that the pod may have restarted."""
        self._suspect_after_s = suspect_after_s
        self._clock = clock
        self._changed = changed
        self._connection = Connection.UNSURE if info.api_address else Connection.DOWN
        self._detail = "" if info.api_address else "it has no address yet"
        self._steady_since = self._heard_at = clock.monotonic()
        self._noticed_s = 0.0
        self._status = PodStatus(info.name, info.node_id, "", "", "", "", ready=False)  # nothing is known yet
        self._replicas: dict[int, ReplicaStatus] = {}
        self._ended: Event | None = None
        self._waiting: list[asyncio.Future[None]] = []  # of calls under way, done when there is another stream
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"PodSession({self.info.name}, {self._connection.value}, {self._detail or 'well'})"

    def start(self, crashed: Callable[[BaseException], None] | None = None) -> None:
        """`crashed` is called with the error if the session ends by a defect of its own."""

        def check(task: asyncio.Task[None]) -> None:
            error = None if task.cancelled() else task.exception()
            if error is not None and crashed is not None:
                crashed(error)

        if self.info.api_address:
            self._task = asyncio.create_task(self._run(), name=f"session-{self.info.name}")
            self._task.add_done_callback(check)

    def stop(self) -> asyncio.Task[None] | None:
        """Cancel the session. Return its task, which is about to end; None if the session was not started."""
        if self._task is not None:
            self._task.cancel()
        return self._task

    @property
    def is_up(self) -> bool:
        """Its stream delivers."""
        return self._connection is Connection.UP

    def update(self, info: PodInfo, suspect_after_s: float) -> None:
        """The workload says something new of the same pod at the same address."""
        self.info, self._suspect_after_s = info, suspect_after_s

    def view(self) -> PodView:
        status, info = self._status, self.info
        connection, detail = self._connection, self._detail
        if detail and info.node_lost:
            detail += f", and nothing is heard of its node {info.node}"
        if connection is not Connection.UP and info.phase in (PodPhase.PENDING, PodPhase.FAILED):
            connection, detail = Connection.DOWN, detail or "its process does not run"
        if connection is Connection.UP and not status.started:
            # The pod has not opened its logs and does not know its replicas. Without this a plan would call them lost.
            connection = Connection.UNSURE
        return PodView(
            name=info.name,
            node_id=status.node_id,
            connection=connection,
            kafka_address=status.kafka_address or info.kafka_address,  # it answers at the same one when it is back
            ready=status.ready,
            draining=info.phase in _ENDING or status.draining,
            gone=info.phase is PodPhase.GONE,
            image=(status.metadata_token, status.metadata_version),
            replicas=dict(self._replicas),
            detail=detail,
            peer_address=status.peer_address,
            fencing_token=status.fencing_token,
            lost_peers=frozenset(status.lost_peers),
            steady_s=self._clock.monotonic() - self._steady_since,
            noticed_s=self._noticed_s,
            node=info.node,
            zone=info.zone,
            outdated=info.outdated,
            cordoned=info.cordoned,
            node_lost=info.node_lost,
            uid=info.uid,
            cluster_id=status.cluster_id,
            mirror_problem=status.mirror_problem,
            mirror_bypassed=status.mirror_bypassed,
            container_image=info.image,
            trouble=info.trouble,
            endpoints=info.endpoints,
            layouts=tuple(Layout(*each) for each in status.layouts),
            access=status.access,
            site_problem=status.site.problem if status.site is not None else "",
        )

    async def while_it_runs(self, call: Coroutine[Any, Any, T]) -> T:
        """The result of a call. Raises PodUnreachableError when the pod has another stream before that: a machine that
        lost power and is back resets no connection on which it owes an answer. Calls can be repeated.
        """
        again: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        task = asyncio.ensure_future(call)
        self._waiting.append(again)
        try:
            await asyncio.wait((task, again), return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise PodUnreachableError(f"{self.info.name} has restarted, or its connections broke, before it answered")
        finally:
            task.cancel()
            self._waiting.remove(again)

    # The answer to a call is as true as an event, and often earlier. `run` is the value of `runs` when the call was
    # sent: an answer from before a restart of the pod says nothing about the pod that runs now.

    def learn_elections(self, run: int, asked: Mapping[int, int], results: Iterable[CallResult]) -> None:
        """Learn the results of elections. `asked`: the epoch of each call, by partition."""
        for result in results if run == self.runs else ():
            before = self._replicas.get(result.partition)
            if before is None or result.log_id != before.log_id or result.partition not in asked:
                continue
            state = _LEADS.get(result.status)
            if state is not None and result.epoch == asked[result.partition]:
                if before.epoch < result.epoch or before.state in _NOT_ACTIVE_YET:  # else an event was faster
                    self._put(_leading(before, result.epoch, state))
            elif result.epoch > before.epoch:
                self._put(msgspec.structs.replace(before, epoch=result.epoch, used=True))

    def learn_replicas(self, run: int, results: Iterable[CallResult]) -> None:
        """Learn the log ids of replicas that the pod has created."""
        for result in results if run == self.runs else ():
            if result.log_id and result.partition not in self._replicas:
                self._replicas[result.partition] = ReplicaStatus(
                    result.partition, ShardState.INITIAL, log_id=result.log_id, used=result.used
                )

    def learn_partitions(self, run: int, partitions: Iterable[ReplicaStatus]) -> None:
        """Learn positions that are newer than those of the last events."""
        for each in partitions if run == self.runs else ():
            self._put(each)

    def learn_image(self, run: int, answer: MetadataAnswer) -> None:
        """Learn which image the pod serves now."""
        if run == self.runs:
            self._status = msgspec.structs.replace(
                self._status, metadata_token=answer.token, metadata_version=answer.version
            )

    def learn_access(self, run: int, fingerprint: str) -> None:
        """Learn which users and ACLs the pod has now."""
        if run == self.runs:
            self._status = msgspec.structs.replace(self._status, access=fingerprint)

    def _put(self, status: ReplicaStatus) -> bool:
        """Keep the status unless it is older than the known one: events and answers overtake each other.

        Return whether a plan can depend on what is new. It does not depend on positions, which move with every commit:
        a plan that needs one asks for it.
        """
        before = self._replicas.get(status.partition)
        if before is not None and before.log_id == status.log_id and _is_older(status, before):
            return False
        self._replicas[status.partition] = status
        return before is None or before.without_positions() != status.without_positions()

    # The stream

    async def _run(self) -> None:
        while True:
            if not await self._follow():  # after a stream that delivered reconnect at once: a refusal says that it died
                await asyncio.sleep(RETRY_S)

    async def _follow(self) -> bool:
        """Follow one stream from its opening to its end. Return whether it ever delivered."""
        delivered = False
        event = Event.ENDED
        try:
            async with aclosing(self.client.watch(self._suspect_after_s)) as events:
                async for each in events:
                    self._heard_at = self._clock.monotonic()
                    if isinstance(each, StatusEvent):
                        self._take_status(each.status, first=not delivered)
                        delivered = True
                    elif isinstance(each, PartitionEvent):
                        self._take_replica(each.partition)
        except PodApiError as error:
            event = _event_of(error, delivered)
            if self._ended is not event:  # log each way of being down once, not at every attempt
                log.info("pod_stream_ended", pod=self.info.name, how=event.value, error=str(error))
        self._ended = event
        self._move(event)
        return delivered

    def _take_status(self, status: PodStatus, *, first: bool) -> None:
        self._status = status
        self._replicas = {each.partition: each for each in status.partitions}
        if first:
            self.runs += 1
            for again in self._waiting:
                if not again.done():
                    again.set_result(None)
            self._ended = None
            log.info("pod_stream_opened", pod=self.info.name, partitions=len(status.partitions))
            self._move(Event.STATUS)
        self._changed()

    def _take_replica(self, status: ReplicaStatus) -> None:
        if self._put(status):
            self._changed()

    def _move(self, event: Event) -> None:
        before = self._connection, self._detail
        self._connection = TRANSITIONS[self._connection, event]
        in_doubt = self._connection in (Connection.DOWN, Connection.SUSPECT)
        self._detail = DETAILS[event] if in_doubt else ""
        if (self._connection is Connection.UP) != (before[0] is Connection.UP):
            self._steady_since = self._clock.monotonic()
            self._noticed_s = self._steady_since - self._heard_at
        # A plan cannot act on UNSURE, and would only delay the reconnect that is under way.
        if (self._connection, self._detail) != before and self._connection is not Connection.UNSURE:
            self._changed()


_ENDING = (PodPhase.TERMINATING, PodPhase.GONE)
_NOT_ACTIVE_YET = (ShardState.INITIAL, ShardState.LOADING)
_LEADS = {CallStatus.ACCEPTED: ShardState.ACTIVE, CallStatus.LOADING: ShardState.LOADING}


def _is_older(status: ReplicaStatus, known: ReplicaStatus) -> bool:
    """Within one log promises only rise, and a leader that is ACTIVE or FAILED in an epoch loads in it no more."""
    if status.epoch != known.epoch:
        return status.epoch < known.epoch
    return (
        status.state is ShardState.LOADING
        and known.state in (ShardState.ACTIVE, ShardState.FENCED, ShardState.FAILED)
        and status.leader_epoch == known.leader_epoch
    )


def _leading(before: ReplicaStatus, epoch: int, state: ShardState) -> ReplicaStatus:
    """The event that this leader will send, but for sets and followers, which the result does not have."""
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
