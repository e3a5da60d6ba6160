"""The operator in Kubernetes: client, caches, watch and elector around the reconcile loop."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

import structlog
from aiohttp import web

from muster_operator.api.models import GROUP, VERSION
from muster_operator.clock import SYSTEM_CLOCK, Clock
from muster_operator.kube.backup_manifests import BACKUP_LABEL
from muster_operator.kube.certificates import Certificates
from muster_operator.kube.claims import LOOK_EVERY_S, RESYNC_S
from muster_operator.kube.client import Json, KubeClient, connect
from muster_operator.kube.elector import Elector, ElectorSettings
from muster_operator.kube.events import EventRecorder
from muster_operator.kube.health import build_app
from muster_operator.kube.leading import Leading
from muster_operator.kube.objects_seen import RESOURCES
from muster_operator.kube.store import KubeStore
from muster_operator.kube.workload import SELECTOR, KubeWorkload
from muster_operator.store.port import Store, StoreError
from muster_operator.store.workload import Workload
from muster_operator.watch.watcher import RETRY_S, Deliver, NewWatch, Source, Watch, Watcher

log = structlog.get_logger(__name__)

LEASE_NAME = "muster-operator"


T = TypeVar("T")

Reconcile = Callable[[Store, Workload, str], Awaitable[None]]
"""The loop of an operator that acts in a namespace: runs until it is cancelled. Called anew whenever the Lease of that
namespace is won.
"""


@dataclass(frozen=True, slots=True)
class KubeOptions:
    """The options of the operator process, from the environment (see `from_environment`)."""

    pod: str
    """Name of this pod."""
    namespace: str
    """Namespace of this pod."""
    watch_namespace: str | None = None
    """The namespace to look after; None: all."""
    image: str = ""
    """Image for clusters that name none; "": the image of this pod."""
    tls_directory: str = ""
    """The directory in which this process keeps keys of its own, in memory; "": new pods have no certificates, and are
    plain.
    """
    tracing_endpoint: str = ""
    """URL of a collector of OpenTelemetry's spans; "": none are sent."""
    health_host: str = "0.0.0.0"
    health_port: int = 9641

    @property
    def identity(self) -> str:
        """The name of this operator on Leases. Pods of two installs may have the same name."""
        return f"{self.namespace}/{self.pod}"

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> KubeOptions:
        """MUSTER_OPERATOR_POD, _NAMESPACE, _WATCH_NAMESPACE, _IMAGE, _TLS_DIR, _TRACING_ENDPOINT, _HEALTH_PORT; all
        optional outside Kubernetes."""
        return cls(
            pod=environment.get("MUSTER_OPERATOR_POD") or socket.gethostname(),
            namespace=environment.get("MUSTER_OPERATOR_NAMESPACE") or "default",
            watch_namespace=environment.get("MUSTER_OPERATOR_WATCH_NAMESPACE") or None,
            image=environment.get("MUSTER_OPERATOR_IMAGE", ""),
            tls_directory=environment.get("MUSTER_OPERATOR_TLS_DIR", ""),
            tracing_endpoint=environment.get("MUSTER_OPERATOR_TRACING_ENDPOINT", ""),
            health_port=int(environment.get("MUSTER_OPERATOR_HEALTH_PORT") or 9641),
        )


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The operator's surroundings beside the API server and the pods. `random` gives numbers in [0, 1).

    `lease`: name of the Lease in each namespace; operators with different ones know nothing of each other.
    """

    clock: Clock = SYSTEM_CLOCK
    random: Callable[[], float] = random.random
    new_watch: NewWatch = Watcher
    elector: ElectorSettings = field(default_factory=ElectorSettings)
    lease: str = LEASE_NAME
    heard: Callable[[str], None] = lambda resource: None
    """Called with the plural of what a watch has told of, and with `list` after all was listed."""


async def run(
    options: KubeOptions,
    reconcile: Reconcile,
    metrics: Callable[[], bytes],
    heard: Callable[[str], None],
    wrote: Callable[[str, str], None],
) -> None:
    """Run until SIGTERM or SIGINT: watch always (a standby's caches are warm), reconcile where the Lease is held.

    `metrics` gives the page for /metrics; `heard` is told what the API server has told of, and `wrote` the verb and the
    resource of each write to it.
    """
    try:
        client = await connect(wrote=wrote)
    except StoreError as error:
        raise SystemExit(f"muster-operator: {error}") from error
    loaded = asyncio.Event()
    health = await _serve_health(options, build_app(loaded.is_set, metrics))
    main = asyncio.create_task(operate(options, client, loaded, reconcile, Surroundings(heard=heard)))
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, main.cancel)
    try:
        await main
    except asyncio.CancelledError:
        log.info("stopping")
    finally:
        await health.cleanup()
        await client.close()


async def operate(
    options: KubeOptions,
    client: KubeClient,
    loaded: asyncio.Event,
    reconcile: Reconcile,
    around: Surroundings,
) -> None:
    """Run until cancelled; sets `loaded` once the caches are filled. Leases are released on the way out."""
    clock = around.clock
    events = EventRecorder(client, options.pod, clock)
    again = asyncio.Event()
    store = KubeStore(
        client, lambda namespace: leading.token(namespace), options.watch_namespace, events, clock, again.set
    )
    image = options.image or await _until_it_works("own_image", lambda: own_image(client, options))
    certificates = None
    if options.tls_directory:
        certificates = Certificates(client, Path(options.tls_directory), clock.monotonic)
    workload = KubeWorkload(client, image, options.watch_namespace, clock.monotonic, again.set, certificates)

    async def load() -> None:
        await store.load()
        await workload.load()
        around.heard("list")

    await _until_it_works("list", load)
    loaded.set()
    log.info("loaded", keys=len(await store.clusters()), image=image)
    watch = around.new_watch(sources(store, workload, around.heard), options.watch_namespace, again.set)
    watch.start()
    background = (
        events.run(),
        _resync(load, again),
        _watch_what_comes(store, watch),
        workload.follow(),
        workload.look_at_secrets(),
    )
    tasks = [asyncio.create_task(each) for each in background]

    def elector(namespace: str) -> Elector:
        return Elector(client, namespace, around.lease, options.identity, around.elector, clock, around.random)

    leading = Leading(store.seen, elector, partial(reconcile, store, workload))
    try:
        await leading.run()
    finally:
        for task in tasks:
            task.cancel()
        await watch.close()


async def _resync(load: Callable[[], Awaitable[None]], again: asyncio.Event) -> None:
    while True:
        try:
            await asyncio.wait_for(again.wait(), RESYNC_S)
        except TimeoutError:
            pass
        again.clear()
        await _until_it_works("list", load)


async def _watch_what_comes(store: KubeStore, watch: Watch) -> None:
    """Watches kinds whose definition, or the right to which, came after this operator."""
    while True:
        await store.lacking.wait()
        await asyncio.sleep(LOOK_EVERY_S)
        if await store.look_for_lacking():
            watch.again()


async def _until_it_works(what: str, attempt: Callable[[], Awaitable[T]]) -> T:
    while True:
        try:
            return await attempt()
        except StoreError as error:
            log.warning("retrying", what=what, error=str(error))
            await asyncio.sleep(RETRY_S)


async def own_image(client: KubeClient, options: KubeOptions) -> str:
    """The image of this pod. Raises StoreError."""
    pod = await client.get(f"/api/v1/namespaces/{options.namespace}/pods/{options.pod}")
    return str(pod["spec"]["containers"][0]["image"])


async def _serve_health(options: KubeOptions, app: web.Application) -> web.AppRunner:
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, options.health_host, options.health_port).start()
    return runner


def sources(
    store: KubeStore, workload: KubeWorkload, heard: Callable[[str], None] = lambda resource: None
) -> tuple[Source, ...]:
    """Everything that the operator watches, and who takes its events. `heard` is called with the plural of each."""

    def ours(plural: str) -> Source:
        return source(GROUP, VERSION, plural, lambda event, raw: store.seen.deliver(plural, event, raw), "")

    def source(group: str, version: str, plural: str, deliver: Deliver, selector: str = SELECTOR) -> Source:
        def take(event: str | None, raw: Json) -> None:
            heard(plural)
            deliver(event, raw)

        return Source(group, version, plural, take, selector)

    return (
        *(ours(resource.plural) for resource in RESOURCES),
        source("", "v1", "pods", workload.deliver_pod),
        source("", "v1", "services", workload.deliver_service),
        source("apps", "v1", "statefulsets", workload.deliver_stateful_set),
        source("apps", "v1", "deployments", workload.gateways.deliver),
        source("batch", "v1", "jobs", workload.backups.deliver, BACKUP_LABEL),
        source("policy", "v1", "poddisruptionbudgets", workload.deliver_budget),
    )
