"""One moment in the logs of all partitions: where each is cut, and which pod has it (ADR 45)."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import aiohttp

from muster_cli.backup.manifest import Layout
from muster_cli.backup.site import PodsOfCluster
from muster_cli.errors import CliError
from muster_coordinator.partition_numbers import OFFSETS, TRANSACTIONS, InternalTopic, partition_name
from muster_coordinator.podapi.client import PodApiError, PodClient
from muster_coordinator.podapi.cuts import MarkerHoldAnswer
from muster_coordinator.podapi.models import PodStatus, ReplicaStatus, SiteStatus
from muster_coordinator.podapi.segments import PartitionEntry

HOLD_MS = 1500
"""A hold that takes longer has failed."""
TRY_FOR_S, ENDS_FOR_S = 60.0, 10.0
RETRY_S = 0.1
REST, LONGEST_REST_S = 11, 20.0
"""After a hold of some pods only, all must have had their rests: else there is always one that refuses."""


@dataclass(frozen=True)
class LedLog:
    """A log up to the cut, and the pod that led it then."""

    pod: PodClient
    entry: PartitionEntry


@dataclass(frozen=True)
class Cut:
    """`held_ms`: for how long markers of transactions have waited. `logs`: one for each partition of both topics."""

    taken_at_ms: int
    held_ms: float
    cluster_id: str
    layout: Layout
    pods: int
    logs: tuple[LedLog, ...]


@dataclass(frozen=True)
class Ends:
    """The ends of all logs, each at another moment: `read_at_ms` is before the first of them."""

    read_at_ms: int
    cluster_id: str
    logs: tuple[LedLog, ...]


class OtherHistoryError(CliError):
    """The cluster is not the one of the backup, or not what became of it."""


class _AgainError(Exception):
    """Something has changed meanwhile, or is not ready."""


@dataclass(frozen=True)
class _Pods:
    """The addresses of the pods by name, and those that answer, with what they say. One that is silent, or that nobody
    knows of, leads nothing while a majority of each partition's replicas has promised no later epoch than that of the
    leader."""

    addresses: dict[str, str]
    answering: tuple[PodClient, ...]
    statuses: tuple[PodStatus, ...]

    @property
    def silent(self) -> list[str]:
        return sorted(self.addresses.keys() - {pod.pod for pod in self.answering})


@dataclass(frozen=True)
class _Seen:
    """The layout and cluster id that all pods know, and the replicas on them by partition."""

    layout: Layout
    cluster_id: str
    replicas: dict[int, list[ReplicaStatus]]


async def take_cut(site: PodsOfCluster, http: aiohttp.ClientSession) -> Cut:
    """Cut all logs at one moment. Raises CliError if that does not succeed within a minute."""
    deadline = time.monotonic() + TRY_FOR_S
    while True:
        began = time.monotonic()
        try:
            return await _try(site, http)
        except (_AgainError, PodApiError) as error:
            if time.monotonic() > deadline:
                raise CliError(f"no cut of all partitions for {TRY_FOR_S:.0f} s: {error}") from error
        took_s = time.monotonic() - began
        await asyncio.sleep(min(max(RETRY_S, REST * took_s), LONGEST_REST_S))


async def read_ends(site: PodsOfCluster, http: aiohttp.ClientSession) -> Ends:
    """The ends of all logs, while markers go on: enough to count records, not for a backup. Raises CliError."""
    deadline = time.monotonic() + ENDS_FOR_S
    while True:
        try:
            pods = await _pods(site, http)
            before = _seen(pods.statuses)
            now_ms = time.time_ns() // 1_000_000
            logs = await _led(pods.answering, TRANSACTIONS) | await _led(pods.answering, OFFSETS)
            return Ends(now_ms, before.cluster_id, await _whole(site, pods, before, logs))
        except (_AgainError, PodApiError) as error:
            if time.monotonic() > deadline:
                raise CliError(f"the ends of all logs were not to be read for {ENDS_FOR_S:.0f} s: {error}") from error
        await asyncio.sleep(RETRY_S)


async def read_sites(
    site: PodsOfCluster, http: aiohttp.ClientSession
) -> tuple[dict[str, SiteStatus | None], list[str]]:
    """The site of each pod that answers, and the names of the others. Raises CliError: none answers."""
    try:
        pods = await _pods(site, http)
    except (_AgainError, PodApiError) as error:
        raise CliError(str(error)) from error
    return {status.pod: status.site for status in pods.statuses}, pods.silent


async def _try(site: PodsOfCluster, http: aiohttp.ClientSession) -> Cut:
    """Raises _AgainError, PodApiError."""
    found = await _pods(site, http)
    pods = found.answering
    before = _seen(found.statuses)
    name = secrets.token_hex(16)
    began, now_ms = time.monotonic(), time.time_ns() // 1_000_000
    try:
        await _hold(pods, name)
        transactions = await _led(pods, TRANSACTIONS)
        groups = await _led(pods, OFFSETS)
    finally:
        ended = await asyncio.gather(*(pod.let_markers_go(name) for pod in pods), return_exceptions=True)
    held_ms = (time.monotonic() - began) * 1000
    if not all(isinstance(each, MarkerHoldAnswer) and each.held for each in ended):
        raise _AgainError("a pod has not held markers back all the time")
    logs = await _whole(site, found, before, transactions | groups)
    return Cut(now_ms, held_ms, before.cluster_id, before.layout, len(found.addresses), logs)


async def _pods(site: PodsOfCluster, http: aiohttp.ClientSession) -> _Pods:
    """Raises _AgainError: none runs; PodApiError: none answers."""
    addresses = await site.pods()
    if not addresses:
        raise _AgainError("no pod runs")
    pods = [PodClient(http, name, address, site.tls) for name, address in sorted(addresses.items())]
    answers = await asyncio.gather(*(pod.status() for pod in pods), return_exceptions=True)
    failures = [each for each in answers if isinstance(each, BaseException)]
    for failure in failures:
        if len(failures) == len(pods) or not isinstance(failure, PodApiError):
            raise failure
    answered = [(pod, each) for pod, each in zip(pods, answers, strict=True) if isinstance(each, PodStatus)]
    return _Pods(addresses, tuple(pod for pod, _ in answered), tuple(each for _, each in answered))


async def _whole(site: PodsOfCluster, pods: _Pods, before: _Seen, logs: dict[int, LedLog]) -> tuple[LedLog, ...]:
    """One log for each partition. Raises _AgainError: one is missing, or what was found is not what is there now."""
    after = _seen(await asyncio.gather(*(pod.status() for pod in pods.answering)))
    changed = (after.layout, after.cluster_id) != (before.layout, before.cluster_id)
    if changed or await site.pods() != pods.addresses:
        raise _AgainError("pods or partitions have changed meanwhile")
    silent = f" ({', '.join(pods.silent)} silent)" if pods.silent else ""
    wanted = [*after.layout.offsets, *after.layout.transactions]
    missing = [partition_name(number) for number in wanted if number not in logs]
    if missing:
        more = " and others" if len(missing) > 5 else ""
        raise _AgainError(f"no pod leads {', '.join(missing[:5])}{more}{silent}")
    for number in wanted:
        why = _why_not_led(logs[number].entry, after.replicas.get(number, []))
        if why:
            raise _AgainError(f"{partition_name(number)}: {why}{silent}")
    if pods.silent and any(each.fence is not None and each.fence.closed for each in _all(after)):
        raise _AgainError(f"a re-shard runs, and may have ended at a pod that does not answer{silent}")
    return tuple(logs[number] for number in wanted)


def _all(seen: _Seen) -> Iterable[ReplicaStatus]:
    return (each for replicas in seen.replicas.values() for each in replicas)


def _why_not_led(entry: PartitionEntry, replicas: Sequence[ReplicaStatus]) -> str:
    """Returns why another pod may have led the partition after this log's, and committed what it lacks; "": none has.
    An election takes promises of a majority of each set, of replicas that are not rebuilt."""
    if any(each.epoch > entry.leader_epoch for each in replicas):
        return "a pod has promised it to a later leader than the one that was found"
    leader = next((each for each in replicas if each.log_id == entry.log_id), None)
    if leader is None or leader.leader_epoch != entry.leader_epoch or not leader.replicas:
        return "its leader has changed meanwhile"
    sure = {each.log_id for each in replicas if each.log_end_offset >= 0 and not each.rebuilding}
    for counting in (leader.replicas, leader.previous_replicas):
        if counting and 2 * len(sure.intersection(counting)) <= len(counting):
            return (
                f"of its {len(counting)} replicas only {len(sure.intersection(counting))} answer, which is no majority"
            )
    return ""


async def _hold(pods: Sequence[PodClient], name: str) -> None:
    """Have all pods hold markers. Ends when all have answered: one that is asked to let them go before it holds them
    would do so for the whole time. Raises PodApiError."""
    answers = await asyncio.gather(*(pod.hold_markers(name, HOLD_MS) for pod in pods), return_exceptions=True)
    for each in answers:
        if isinstance(each, BaseException):
            raise each


def _seen(statuses: Sequence[PodStatus]) -> _Seen:
    """Raises _AgainError: they do not know the same."""
    for status in statuses:
        site = status.site
        if site is not None and site.holder not in ("", site.name):
            raise OtherHistoryError(
                f"pod {status.pod} is of site {site.name}, and site {site.holder} has taken over: end this cluster, and"
                " follow that one"
            )
    found = {(_layout(status), status.cluster_id) for status in statuses}
    if len(found) != 1:
        raise _AgainError("the pods do not know of the same partitions")
    layout, cluster_id = found.pop()
    if not layout.offsets_partitions or not cluster_id:
        raise _AgainError("the pods know of no partitions yet")
    replicas: dict[int, list[ReplicaStatus]] = {}
    for replica in (each for status in statuses for each in status.partitions):
        replicas.setdefault(replica.partition, []).append(replica)
    return _Seen(layout, cluster_id, replicas)


def _layout(status: PodStatus) -> Layout:
    return Layout(
        status.offsets_base, status.offsets_partitions, status.transaction_base, status.transaction_partitions
    )


async def _led(pods: Sequence[PodClient], topic: InternalTopic) -> dict[int, LedLog]:
    """The logs of the topic's partitions, each from the pod that leads it in the highest epoch."""
    found: dict[int, LedLog] = {}
    for pod, listed in zip(pods, await asyncio.gather(*(pod.segments() for pod in pods)), strict=True):
        for entry in listed.partitions:
            other = found.get(entry.partition)
            if entry.partition not in topic.numbers or entry.leader_epoch < 0:
                continue
            if other is None or other.entry.leader_epoch < entry.leader_epoch:
                found[entry.partition] = LedLog(pod, entry)
    return found
