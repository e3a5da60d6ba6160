"""Watch streams by kopf, on an event loop of their own.

kopf takes over the loop that it runs in: it installs signal handlers, and when it ends it cancels every task that was
created after it, ours included. So it gets a thread with a loop of its own; events cross over by call_soon_threadsafe.
A watch that dies (an answer that kopf holds to be fatal) is started again without touching a single election.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import kopf
import structlog

__all__ = ["Deliver", "Source", "Watcher", "watch_settings"]

log = structlog.get_logger(__name__)

Deliver = Callable[[str | None, dict[str, Any]], None]
"""Takes (ADDED, MODIFIED, DELETED or None for listed, the raw object). Called on the operator's loop."""

RESTART_PAUSE_S = 1.0


@dataclasses.dataclass(frozen=True, slots=True)
class Source:
    """One kind to watch: its group, version, plural, an optional label selector, and who takes its events."""

    group: str
    version: str
    plural: str
    deliver: Deliver
    label_selector: str = ""


class _ToStructlog(logging.Handler):
    """kopf's warnings and errors as lines of our log."""

    def emit(self, record: logging.LogRecord) -> None:
        log.log(record.levelno, "kopf", message=record.getMessage(), logger=record.name)


def _take_logs() -> None:
    logger = logging.getLogger("kopf")
    logger.setLevel(logging.WARNING)
    logger.propagate = False
    if not any(isinstance(handler, _ToStructlog) for handler in logger.handlers):
        logger.addHandler(_ToStructlog())
    # It warns that it is not in the main thread and handles no signals, which is what we want.
    logging.getLogger("kopf._core.reactor.running").setLevel(logging.ERROR)


class Forever:
    """Delays between attempts of kopf to reach the API server, without an end: an outage must not end the watch."""

    def __iter__(self) -> Iterator[float]:
        yield from (0.1, 0.2, 0.5)
        while True:
            yield 1.0


def watch_settings(sources: tuple[Source, ...]) -> kopf.OperatorSettings:
    """kopf's settings for watching only."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.peering.standalone = True
    # Without it kopf wants to watch CustomResourceDefinitions and Namespaces: more rights than the operator needs.
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
        """`on_restart` is called on the operator's loop after the watch was interrupted: deletions may be missed."""
        self._sources = sources
        self._namespace = namespace
        self._on_restart = on_restart
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Start the thread. Must be called on the operator's loop."""
        _take_logs()
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    async def close(self) -> None:
        """Stop watching; returns when the thread has ended."""
        self._stop.set()
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                asyncio.run(self._watch())
            except Exception as error:
                log.warning("watch_failed", error=repr(error))
            if not self._stop.wait(RESTART_PAUSE_S):
                self._call(self._on_restart)

    async def _watch(self) -> None:
        # Left out, kopf makes one from the user's name, which a container's uid need not have, and dies of that.
        identity: Any = "muster-operator"
        await kopf.operator(
            identity=identity,
            registry=self._registry(),
            settings=watch_settings(self._sources),
            standalone=True,
            clusterwide=self._namespace is None,
            namespaces=[self._namespace] if self._namespace else [],
            stop_flag=self._stop,
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
            self._stop.set()  # the operator's loop is closed: it is over


def _login(**kwargs: Any) -> kopf.ConnectionInfo | None:
    """The service account of this pod, or else KUBECONFIG: as `kube.client.connect` does."""
    account = kopf.login_with_service_account(**kwargs)
    if account is None:
        return kopf.login_with_kubeconfig(**kwargs)
    # The address that kubelet gives: kopf's own choice, kubernetes.default.svc, needs cluster DNS to be up.
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    return dataclasses.replace(account, server=f"https://{f'[{host}]' if ':' in host else host}:{port}")
