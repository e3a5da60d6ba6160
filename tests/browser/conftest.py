"""Pages of `muster ui` in a headless Chromium: of an instance of this machine, and of a recorded cluster."""

from __future__ import annotations

import asyncio
import base64
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.support.fake_kubernetes import FakeKubernetes, fake_kubernetes
from tests.support.local_cluster import LocalCluster
from tests.unit.cli.oncall.test_command import fill

from muster_cli.ui.login import password_line

playwright = pytest.importorskip("playwright.sync_api", reason="what drives a browser comes with: make test-browser")

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), "")
INTERVAL_S = 0.4
"""Between two looks of a page: the tests need not wait for long."""
USER, PASSWORD = "anna", "correct horse"
HOSTILE = '"><img src=x onerror=alert(1)><script>alert(1)</script>'


@dataclass
class Server:
    """A process of `muster ui`."""

    process: subprocess.Popen[str]
    address: str
    """With a slash at its end."""

    def end(self) -> int:
        self.process.terminate()
        return self.process.wait(30)


def start_ui(*arguments: str, port: int = 0, **environment: str) -> Server:
    """Waits until it listens."""
    command = [sys.executable, "-m", "muster_cli", "ui", "--port", str(port), "--interval", str(INTERVAL_S), *arguments]
    kept = {name: value for name, value in os.environ.items() if name != "KUBERNETES_SERVICE_HOST"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=kept | environment)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("http"), f"it ended with {process.wait(10)}"
    return Server(process, line.split()[0])


@dataclass
class Local:
    """An instance of three pods with its pages."""

    cluster: LocalCluster
    bootstrap: str
    server: Server

    @property
    def overview(self) -> str:
        return f"{self.server.address}cluster/local/muster"


@pytest.fixture(scope="session")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Local]:
    data = tmp_path_factory.mktemp("local") / "data"
    with LocalCluster(data, "--partitions", "12", "--transaction-partitions", "3", "--any-topic") as cluster:
        bootstrap = cluster.wait_ready()
        server = start_ui("--data-dir", str(data))
        try:
            yield Local(cluster, bootstrap, server)
        finally:
            assert server.end() == 0, "stopped as asked"
            cluster.stop()


@dataclass
class Recorded:
    """A recorded cluster on an API server in a thread of its own, with its pages behind a login."""

    kubernetes: FakeKubernetes
    loop: asyncio.AbstractEventLoop
    server: Server

    @property
    def overview(self) -> str:
        return f"{self.server.address}cluster/shop/orders"

    def change(self, path: str, body: dict[str, Any]) -> None:
        """Puts an object, or its status."""

        async def put() -> None:
            answer = self.kubernetes.objects.handle("PUT", path, {}, body)
            assert answer.code == 200, answer

        asyncio.run_coroutine_threadsafe(put(), self.loop).result(10)


@contextmanager
def api_server(directory: Path, name: str) -> Iterator[tuple[FakeKubernetes, asyncio.AbstractEventLoop, Path]]:
    """Pods on nodes in two zones, and one in none."""
    started, stop = threading.Event(), asyncio.Event()
    found: list[tuple[FakeKubernetes, asyncio.AbstractEventLoop, Path]] = []

    async def serve() -> None:
        async with fake_kubernetes(directory) as (kubernetes, kubeconfig):
            fill(kubernetes, name)
            _give_zones(kubernetes)
            found.append((kubernetes, asyncio.get_running_loop(), kubeconfig))
            started.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert started.wait(30)
    try:
        yield found[0]
    finally:
        found[0][1].call_soon_threadsafe(stop.set)
        thread.join(30)


def _give_zones(kubernetes: FakeKubernetes) -> None:
    for number, pod in enumerate(kubernetes.objects.all("pods")):
        labels = {"topology.kubernetes.io/zone": f"zone-{'ab'[number]}"} if number < 2 else {}
        kubernetes.create("/api/v1/nodes", {"metadata": {"name": f"node-{number}", "labels": labels}, "spec": {}})
        path = f"/api/v1/namespaces/shop/pods/{pod['metadata']['name']}"
        spec = {**pod["spec"], "nodeName": f"node-{number}"}
        answer = kubernetes.objects.handle("PUT", path, {}, {**pod, "spec": spec})
        assert answer.code == 200, answer


@pytest.fixture(scope="session")
def recorded_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    """`majority_lost`: two of four partitions have no leader."""
    directory = tmp_path_factory.mktemp("recorded")
    logins = directory / "logins"
    logins.write_text(password_line(USER, PASSWORD) + "\n")
    with api_server(directory, "majority_lost") as (kubernetes, loop, kubeconfig):
        server = start_ui("-n", "shop", "--login-file", str(logins), KUBECONFIG=str(kubeconfig))
        try:
            yield Recorded(kubernetes, loop, server)
        finally:
            server.end()


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    if not CHROMIUM:
        pytest.skip("no browser: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@dataclass
class Browser:
    """Opens pages, and remembers what they complain of."""

    chromium: Any
    complaints: list[str] = field(default_factory=list)
    contexts: list[Any] = field(default_factory=list)

    def page(self, *, login: bool = True, **options: Any) -> Any:
        """An empty one. `options`: of its context. `login`: it sends user and password."""
        secret = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        headers = {"extra_http_headers": {"Authorization": f"Basic {secret}"}} if login else {}
        context = self.chromium.new_context(**{"viewport": {"width": 1280, "height": 900}, **headers, **options})
        context.set_default_timeout(20_000)
        self.contexts.append(context)
        page = context.new_page()
        page.on("console", lambda said: self._complain(f"console: {said.text}") if said.type == "error" else None)
        page.on("pageerror", lambda error: self._complain(f"script: {error}"))
        page.on("dialog", self._dismiss)
        page.on("request", self._look_at)
        return page

    def _complain(self, text: str) -> None:
        self.complaints.append(text)

    def _dismiss(self, dialog: Any) -> None:
        self._complain(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _look_at(self, request: Any) -> None:
        if not request.url.startswith(("http://127.0.0.1:", "data:")):
            self._complain(f"asks elsewhere: {request.url}")


@pytest.fixture
def browser(chromium: Any) -> Iterator[Browser]:
    """No page of a test may complain; a test that provokes it takes it out of the list."""
    opened = Browser(chromium)
    yield opened
    for context in opened.contexts:
        context.close()
    assert opened.complaints == []
