"""Watch streams of kopf, in a thread with an event loop of its own.

kopf takes over the loop that it runs in: it installs signal handlers, and when it ends it cancels every task that was
created after it, the operator's included. `call_soon_threadsafe` passes events to the operator's loop. A watch that
ends (because of an answer that kopf takes for fatal) starts again, and no election notices.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import kopf
import structlog

log = structlog.get_logger(__name__)

Deliver = Callable[[str | None, dict[str, Any]], None]
"""Takes (ADDED, MODIFIED, DELETED, or None if the object was listed; the raw object). Runs on the operator's loop."""

RETRY_S = 1.0
"""Seconds from the failure of a watch, or of the look at its objects, to the next attempt."""


@dataclasses.dataclass(frozen=True, slots=True)
class Source:
    """One kind to watch, and the function that takes its events. `label_selector` "": all objects."""

    group: str
    version: str
    plural: str
    deliver: Deliver
    label_selector: str = ""


class Watch(Protocol):
    """Has the events of all sources delivered on the operator's loop."""

    def start(self) -> None:
        """Call it on the operator's loop."""
        ...

    def again(self) -> None:
        """Begin anew: there are kinds that were not there when it began."""
        ...

    async def close(self) -> None:
        """Nothing is delivered any more when it returns."""
        ...


NewWatch = Callable[[tuple[Source, ...], str | None, Callable[[], None]], Watch]
"""Makes the watch of these sources, in one namespace or in all; see `Watcher` for the last argument."""


class _ToStructlog(logging.Handler):
    """Writes kopf's warnings and errors to the operator's log."""

    def emit(self, record: logging.LogRecord) -> None:
        log.log(record.levelno, "kopf", message=record.getMessage(), logger=record.name)


def _take_logs() -> None:
    logger = logging.getLogger("kopf")
    logger.setLevel(logging.WARNING)
    logger.propagate = False
    if not any(isinstance(handler, _ToStructlog) for handler in logger.handlers):
        logger.addHandler(_ToStructlog())
    # kopf warns that it is not in the main thread and handles no signals, which is intended here.
    logging.getLogger("kopf._core.reactor.running").setLevel(logging.ERROR)


class Forever:
    """The endless delays, in seconds, between kopf's attempts to reach the API server: no outage ends the watch."""

    def __iter__(self) -> Iterator[float]:
        yield from (0.1, 0.2, 0.5)
        while True:
            yield 1.0


def watch_settings(sources: tuple[Source, ...]) -> kopf.OperatorSettings:
    """kopf's settings, with everything but watching switched off."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.peering.standalone = True
    # Otherwise kopf watches CustomResourceDefinitions and Namespaces too, which needs more rights.
    settings.scanning.disabled = True
    settings.networking.error_backoffs = Forever()
    settings.networking.connect_timeout = 5.0
    settings.watching.reconnect_backoff = 0.05
    for source in sources:
        if source.label_selector:
            settings.watching.label_selectors[source.group, source.version, source.plural] = source.label_selector
    return settings


class Watcher:
    """Watches `sources`, in one namespace or in all of them, from `start` to `close`."""

    def __init__(self, sources: tuple[Source, ...], namespace: str | None, on_restart: Callable[[], None]) -> None:
        """`on_restart` runs on the operator's loop after the watch was interrupted and may have missed deletions."""
        self._sources = sources
        self._namespace = namespace
        self._on_restart = on_restart
        self._stop = threading.Event()
        self._round = threading.Event()  # ends the present run of kopf
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Start the thread. Call it on the operator's loop."""
        _take_logs()
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def again(self) -> None:
        """kopf looks for kinds once, when it begins: to scan for those that come, it would need more rights."""
        self._round.set()

    async def close(self) -> None:
        """Stop watching, and wait for the thread to end."""
        self._stop.set()
        self._round.set()
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        while True:
            self._round = threading.Event()
            if self._stop.is_set():  # looked at after there is a new round, which `close` would end
                return
            try:
                asyncio.run(self._watch())
            except Exception as error:
                log.warning("watch_failed", error=repr(error))
            if not self._stop.wait(RETRY_S):
                self._call(self._on_restart)

    async def _watch(self) -> None:
        # Without an identity kopf asks for the name of the user, and fails where the container's uid has none.
        identity: Any = "muster-operator"
        await kopf.operator(
            identity=identity,
            registry=self._registry(),
            settings=watch_settings(self._sources),
            standalone=True,
            clusterwide=self._namespace is None,
            namespaces=[self._namespace] if self._namespace else [],
            stop_flag=self._round,
        )

    def _registry(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()
        kopf.on.login(registry=registry)(_login)
        for source in self._sources:
            kopf.on.event(source.group, source.version, source.plural, registry=registry)(self._handler(source))
        return registry

    def _handler(self, source: Source) -> Callable[..., Any]:
        async def handle(event: Any, **_: Any) -> None:
            self._call(source.deliver, event["type"], event["object"])

        return handle

    def _call(self, function: Callable[..., None], *arguments: Any) -> None:
        assert self._loop is not None, "started before anything can arrive"
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            self._stop.set()  # the operator's loop is closed: the operator ends
            self._round.set()


def _login(**kwargs: Any) -> kopf.ConnectionInfo | None:
    """Log in with the service account of this pod, or else with KUBECONFIG, as `kube.client.connect` does."""
    account = kopf.login_with_service_account(**kwargs)
    if account is None:
        return kopf.login_with_kubeconfig(**kwargs)
    # The address from the pod's environment: kopf's own choice, kubernetes.default.svc, depends on cluster DNS.
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    return dataclasses.replace(account, server=f"https://{f'[{host}]' if ':' in host else host}:{port}")
