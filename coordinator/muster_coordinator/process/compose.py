"""Puts one pod together, runs it until it is asked to stop, and takes it down in order.

Up: storage finds the replicas, the peer network listens and finds the others by the last image, the pod API listens (so
that the operator sees the pod at once), the Kafka listener listens; the logs are recovered meanwhile.
Down: drain (the operator moves the partitions away, what is left is resigned), close the listener, write everything
out.
"""

from __future__ import annotations

import asyncio
import base64
import signal
import uuid
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import structlog

from muster_coordinator.groups.consumer.config import KafkaVersion
from muster_coordinator.groups.consumer.tables import ConsumerTables
from muster_coordinator.groups.coordinator import GroupCoordinator
from muster_coordinator.listener.handlers.table import handler_table
from muster_coordinator.listener.listener import KafkaListeners
from muster_coordinator.listener.pod_callers import PodCallers
from muster_coordinator.listener.state import Handler
from muster_coordinator.log.cleaning.archive import DirectoryArchive
from muster_coordinator.log.disk import OsDisk
from muster_coordinator.mirror.coordinator import MirrorCoordinator
from muster_coordinator.mirror.routes import Routes
from muster_coordinator.outgoing.connector import Connector
from muster_coordinator.partition_numbers import TRANSACTIONS, index_of
from muster_coordinator.peers.network import PeerIdentity, PeerNetwork
from muster_coordinator.pod.chores.archiving import ArchiverSettings
from muster_coordinator.pod.chores.checkpointing import CheckpointerSettings
from muster_coordinator.pod.chores.cleaning import CleanerSettings
from muster_coordinator.pod.cluster_view import ClusterView
from muster_coordinator.pod.consumer_topics import DeclaredTopics
from muster_coordinator.pod.control import Pod, PodIdentity
from muster_coordinator.pod.data_directory import WRITE_AT_END_S, StorageSettings
from muster_coordinator.pod.drain import LONGEST_DRAIN_S
from muster_coordinator.pod.events import PodEvents
from muster_coordinator.pod.last_image import LastImage
from muster_coordinator.pod.leaders import PromisedLeaders
from muster_coordinator.pod.marker_writer import MarkerWriter
from muster_coordinator.pod.mirroring.connection import CLIENT_ID
from muster_coordinator.pod.mirroring.health import MirrorHealth
from muster_coordinator.pod.mirroring.mirror import Mirror
from muster_coordinator.pod.mirroring.release import UpstreamRelease
from muster_coordinator.pod.mirroring.topics import UpstreamTopics
from muster_coordinator.pod.partitions import Partitions
from muster_coordinator.pod.pod_connections import PodConnections
from muster_coordinator.pod.regex_resolver import RegexResolver
from muster_coordinator.pod.replica_manager import ManagerSettings, ReplicaManager
from muster_coordinator.pod.resets import Resets
from muster_coordinator.pod.routes.access import access_routes
from muster_coordinator.pod.routes.fences import fence_routes
from muster_coordinator.pod.routes.marker_holds import marker_hold_routes
from muster_coordinator.pod.routes.mirror import mirror_routes
from muster_coordinator.pod.routes.moves import move_routes
from muster_coordinator.pod.routes.resets import reset_routes
from muster_coordinator.pod.routes.segments import segment_routes
from muster_coordinator.pod.site_lease import SiteLease
from muster_coordinator.podapi.models import SiteStatus
from muster_coordinator.podapi.server import build_app
from muster_coordinator.process.access import ClientAccess, WatchedFiles, given_access
from muster_coordinator.process.clock import SystemClock
from muster_coordinator.process.data_dir import DataDirInUseError, DataDirLock
from muster_coordinator.process.logging import configure_logging
from muster_coordinator.process.metrics import PodMetrics
from muster_coordinator.process.ports import InnerPorts, plain_ports
from muster_coordinator.process.tracing import pod_spans, watched
from muster_coordinator.records import batch as records_batch
from muster_coordinator.security.exposure import warn_of_plain_ports
from muster_coordinator.security.tls import TlsError
from muster_coordinator.security.watched_file import SecurityFileError
from muster_coordinator.setting_fields import parse_prefixes
from muster_coordinator.shard.fencing import Fencing
from muster_coordinator.sites.address import open_claims, parse_site
from muster_coordinator.sites.claims import ClaimError
from muster_coordinator.sites.origin import read_origin
from muster_coordinator.state_machine import StateMachine
from muster_coordinator.tracing.opening import TracingError
from muster_coordinator.transactions.coordinator import TransactionCoordinator
from muster_coordinator.tuning.descriptors import DescriptorShares, SpareDescriptors, descriptor_shares
from muster_coordinator.wire.served import KAFKA_4_3, KAFKA_4_4

if TYPE_CHECKING:
    from muster_coordinator.process.options import ProcessOptions
    from muster_coordinator.settings import CoordinatorSettings

logger = structlog.get_logger(__name__)


class StartError(Exception):
    """The pod cannot start; the message says what to do."""


class NewProcessNeededError(Exception):
    """A sync failed: only a new process, which reads what is on the disk, may go on with these logs."""


async def run(options: ProcessOptions, *, boot_id: str, version: str) -> None:
    """Run the pod until SIGTERM or SIGINT. Raises StartError, NewProcessNeededError."""
    configure_logging(options.log_format)
    stop = asyncio.Event()
    _stop_on_signals(stop)
    async with AsyncExitStack() as stack:
        pod = await _start(options, stack, boot_id, version, stop)
        await stop.wait()
        logger.info("stopping", pod=options.pod)
        alive, reason = pod.live()
        if not alive:  # it leads nothing any more
            raise NewProcessNeededError(reason)
        try:
            longest_s = max(options.settings.peers.drain_timeout_ms / 1000, LONGEST_DRAIN_S)
            await asyncio.wait_for(pod.drain(), longest_s + WRITE_AT_END_S)
        except TimeoutError:
            logger.warning("drain_timed_out", pod=options.pod)
    logger.info("stopped", pod=options.pod)


async def _start(
    options: ProcessOptions, stack: AsyncExitStack, boot_id: str, version: str, stop: asyncio.Event
) -> Pod:
    settings = options.settings
    _lock(options, stack)
    clock = SystemClock()
    try:
        spans = pod_spans(options, version, stack)
    except TracingError as error:
        raise StartError(f"muster.tracing.endpoint: {error}") from None
    events = PodEvents()
    partitions = Partitions()
    identity = PeerIdentity(options.pod, options.uid)
    ports = _inner_ports(options)
    buffer_bytes = settings.peers.peer_buffer_bytes
    network = PeerNetwork(identity, events.pod_changed, buffer_bytes=buffer_bytes, endpoint=ports.peers)
    view = ClusterView(options.pod, PromisedLeaders(options.pod, partitions, network))
    connections = PodConnections(network, 2 * settings.shard.offsets_commit_timeout_ms / 1000)
    stack.callback(connections.stop)
    markers = MarkerWriter(view, partitions.shards, connections)
    upstream_topics, upstream_release = UpstreamTopics(), UpstreamRelease()
    topics = upstream_topics if settings.upstream.upstream_bootstrap else DeclaredTopics(view)
    regexes = RegexResolver(partitions.shards, topics.names, clock.wall_ms)
    stack.callback(regexes.close)
    descriptors = _descriptor_shares(settings)
    disk = OsDisk(SpareDescriptors())
    manager = ReplicaManager(
        partitions,
        options.data_dir,
        disk,
        _manager_settings(settings, boot_id),
        clock,
        network,
        _machines(settings, view, markers, regexes, topics, upstream_release),
        events,
        must_restart=stop.set,
    )
    try:
        await manager.start()
    except Exception as error:
        raise StartError(f"the data directory {options.data_dir} cannot be used: {error}") from error
    stack.push_async_callback(manager.stop)
    given = given_access(settings, options.data_dir)
    try:
        access = ClientAccess(settings, ("", *options.listeners), view, clock, given)
    except (SecurityFileError, TlsError) as error:
        raise StartError(str(error)) from None

    warn_of_plain_ports(plain_ports(options, access.security))
    site = _site(settings, options.data_dir, clock, events)
    may_answer = site.may_answer if site is not None else None
    site_status = partial(_site_status, site)
    served = KAFKA_4_4 if settings.consumers.set_release is KafkaVersion.KAFKA_4_4 else KAFKA_4_3
    watched_files = WatchedFiles(ports, access)
    listeners = KafkaListeners(settings.listener, clock, watched_files, descriptors, may_answer, served)
    advertised = "{}:{}".format(*options.advertise)
    last_image = LastImage(disk, options.data_dir)
    health = MirrorHealth()
    pod = Pod(
        PodIdentity(options.pod, options.node_id, options.uid, boot_id, version, advertised),
        manager,
        view,
        network,
        last_image,
        settings.peers,
        health,
        delete_offsets_of_removed_topics=bool(settings.shard.delete_offsets_of_removed_topics),
        given=given,
        spans=spans,
        site=site_status,
    )
    events.watch(pod)
    stack.push_async_callback(pod.stop)
    remembered = last_image.load()
    if remembered is not None:
        pod.remember(remembered)
    mirror = _mirror(settings, manager, view, clock, stack, health, upstream_topics, upstream_release, events)
    metrics = PodMetrics(listeners, manager, network, mirror, site_status, clock).render
    api = build_app(pod, metrics)
    api.router.add_routes(segment_routes(manager.hosts, lambda: view.current_partitions or manager.hosts))
    api.router.add_routes(marker_hold_routes(markers))
    if mirror is not None:
        api.router.add_routes(mirror_routes(mirror.status))
    api.router.add_routes(move_routes(mirror.moves if mirror is not None else None))
    records = mirror.records if mirror is not None else None
    may_reset = may_answer or (lambda: True)
    resets = Resets(manager.shards, lambda: view.offsets_partitions, topics, records, may_reset)
    api.router.add_routes(reset_routes(resets))
    fencing = Fencing(manager.shards, events.partition_changed)
    api.router.add_routes(fence_routes(fencing, pod.tokens))
    if given is not None:
        api.router.add_routes(access_routes(given, pod.tokens, listeners.look))

    def handlers(listener: str, *, asked_by_pods: bool = False) -> Mapping[type, Handler]:
        barrier = mirror.barrier if mirror is not None else None
        shown, submit_early = access.shown(settings), manager.submit_early
        return handler_table(
            view, manager.shards, submit_early, connections, listener, barrier, shown, asked_by_pods, served
        )

    pods = PodCallers(settings.listener, clock, handlers("", asked_by_pods=True), served)
    stack.callback(pods.stop)
    serve = partial(ports.serve, api, pod, metrics, stack, descriptors.inner)
    await _listen(options, stack, manager, network, pods.connection, serve)

    def behind_checks(listener: str) -> Mapping[type, Handler]:
        guarded = access.guard(handlers(listener), listeners.state.audit)
        return watched(guarded, settings.tracing.slow_request_ms, clock, view, manager, spans)

    await _serve_clients(options, stack, listeners, access, behind_checks)
    if site is not None:
        stack.callback(site.stop)
        site.start(listeners.state.abort_all)
    pod.listening()
    logger.info(
        "listening",
        pod=options.pod,
        node_id=options.node_id,
        kafka="{}:{}".format(*options.kafka_listen),
        advertised=advertised,
        listeners={name: "{}:{}".format(*address) for name, address in options.listeners.items()},
        api="{}:{}".format(*options.api_listen),
        peers=network.address,
        data_dir=str(options.data_dir),
        replicas=len(manager.replicas),
        compiled=not str(records_batch.__file__).endswith(".py"),  # ADR 13
    )
    return pod


def _site(settings: CoordinatorSettings, data_dir: Path, clock: SystemClock, events: PodEvents) -> SiteLease | None:
    site = parse_site(settings.site.site)
    if site is None:
        return None
    try:
        claims = open_claims(site.store)
    except ClaimError as error:
        raise StartError(f"muster.site: {error}") from None
    try:
        origin = read_origin(data_dir)
    except (OSError, msgspec.MsgspecError) as error:
        raise StartError(f"{data_dir}: it cannot be read which backup it was made from: {error}") from None
    return SiteLease(site, origin.backup if origin is not None else "", claims, clock.running_s, events.pod_changed)


def _site_status(site: SiteLease | None) -> SiteStatus | None:
    return site.status if site is not None else None


def _descriptor_shares(settings: CoordinatorSettings) -> DescriptorShares:
    shares = descriptor_shares()
    wanted = settings.listener.max_connections
    log = logger.info if shares.clients > wanted else logger.warning
    log(
        "descriptors",
        limit=shares.limit,
        for_clients=shares.clients,
        kept_back=shares.limit - shares.clients,
        max_connections=wanted,
    )
    return shares


def _mirror(
    settings: CoordinatorSettings,
    manager: ReplicaManager,
    view: ClusterView,
    clock: SystemClock,
    stack: AsyncExitStack,
    health: MirrorHealth,
    topics: UpstreamTopics,
    release: UpstreamRelease,
    events: PodEvents,
) -> Mirror | None:
    upstream = settings.upstream
    if not upstream.upstream_bootstrap:
        return None
    commit_timeout_s = settings.shard.offsets_commit_timeout_ms / 1000
    try:
        connector = Connector(upstream.outgoing, CLIENT_ID)
    except (TlsError, SecurityFileError) as error:
        raise StartError(f"muster.upstream: {error}") from None
    mirror = Mirror(
        upstream,
        connector,
        commit_timeout_s,
        manager.shards,
        lambda: view.offsets_partitions,
        lambda: view.image.cluster_id if view.image is not None else "",
        clock,
        health,
        topics,
        release,
        events.pod_changed,
    )
    stack.callback(mirror.stop)
    mirror.start()
    return mirror


def _inner_ports(options: ProcessOptions) -> InnerPorts:
    try:
        return InnerPorts(options)
    except (TlsError, SecurityFileError) as error:
        raise StartError(str(error)) from None


def _machines(
    settings: CoordinatorSettings,
    view: ClusterView,
    markers: MarkerWriter,
    regexes: RegexResolver,
    topics: DeclaredTopics | UpstreamTopics,
    release: UpstreamRelease,
) -> Callable[[int], StateMachine]:
    """Chooses the state machine that runs a partition: the one place that does."""
    upstream = settings.upstream
    prefixes = parse_prefixes(upstream.upstream_served_groups)
    transactions = replace(settings.transactions, max_record_bytes=settings.groups.max_record_bytes)

    def new_suffix() -> str:
        return str(uuid.uuid4())

    def new_consumers(number: int) -> ConsumerTables:
        return ConsumerTables(settings.consumers, topics, regexes.of(number), new_kafka_uuid, lambda: release.version)

    def new_machine(number: int) -> StateMachine:
        if number in TRANSACTIONS.numbers:
            return TransactionCoordinator(transactions, index_of(number), view, markers.of(number))
        if not upstream.upstream_bootstrap:
            return GroupCoordinator(settings.groups, view, new_suffix, consumers=new_consumers(number))
        routes = Routes(lambda group_id: group_id.startswith(prefixes))
        groups = GroupCoordinator(settings.groups, view, new_suffix, routes.serves, new_consumers(number))
        return MirrorCoordinator(groups, routes, lambda: isinstance(topics, UpstreamTopics) and topics.known)

    return new_machine


def new_kafka_uuid() -> str:
    """A random id as Kafka writes its Uuid, 22 characters. None begins with a dash, as options of commands do."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def _lock(options: ProcessOptions, stack: AsyncExitStack) -> None:
    lock = DataDirLock(options.data_dir)
    try:
        lock.acquire()
    except (DataDirInUseError, OSError) as error:
        raise StartError(str(error)) from error
    stack.callback(lock.release)


async def _listen(
    options: ProcessOptions,
    stack: AsyncExitStack,
    manager: ReplicaManager,
    network: PeerNetwork,
    asked: Callable[[], asyncio.Protocol],
    serve: Callable[[], Awaitable[None]],
) -> None:
    """Other pods first, clients last."""
    host = options.advertise[0]
    try:
        await network.start(manager, options.peer_listen, lambda port: options.peer_advertise or (host, port), asked)
        stack.push_async_callback(network.stop)
        await serve()
    except OSError as error:
        raise StartError(f"cannot listen: {error}") from error


async def _serve_clients(
    options: ProcessOptions,
    stack: AsyncExitStack,
    listeners: KafkaListeners,
    access: ClientAccess,
    handlers: Callable[[str], Mapping[type, Handler]],
) -> None:
    stack.push_async_callback(access.stop)
    await access.start()
    stack.push_async_callback(listeners.stop)
    try:
        for name, address in {"": options.kafka_listen, **options.listeners}.items():
            await listeners.listen(*address, handlers(name), access.security[name])
    except OSError as error:
        raise StartError(f"cannot listen: {error}") from error


def _manager_settings(settings: CoordinatorSettings, boot_id: str) -> ManagerSettings:
    shard, cleaner = settings.shard, settings.cleaner
    return ManagerSettings(
        StorageSettings(
            segment_bytes=shard.offsets_topic_segment_bytes,
            journal_bytes=shard.journal_bytes,
            flush_interval_ms=shard.segment_flush_interval_ms,
            boot_id=boot_id,
            flush_os=bool(shard.flush_os),
        ),
        commit_timeout_ms=shard.offsets_commit_timeout_ms,
        cleaner=CleanerSettings(
            segment_bytes=shard.offsets_topic_segment_bytes,
            min_cleanable_ratio=cleaner.log_cleaner_min_cleanable_ratio,
            delete_retention_ms=cleaner.log_cleaner_delete_retention_ms,
            io_max_bytes_per_second=cleaner.log_cleaner_io_max_bytes_per_second,
            backoff_ms=cleaner.log_cleaner_backoff_ms,
        ),
        checkpointer=CheckpointerSettings(shard.checkpoint_interval_bytes),
        archiver=_archiver_settings(settings),
        self_nomination_ms=settings.peers.self_nomination_after_ms,
    )


def _archiver_settings(settings: CoordinatorSettings) -> ArchiverSettings | None:
    directory = settings.cleaner.archive_dir
    if not directory:
        return None
    archive = DirectoryArchive(OsDisk(directory_mode=0o777), Path(directory))  # others may read it: the umask says
    return ArchiverSettings(archive, settings.cleaner.log_cleaner_io_max_bytes_per_second)


def _stop_on_signals(stop: asyncio.Event) -> None:
    """SIGTERM and SIGINT ask for an orderly end."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
