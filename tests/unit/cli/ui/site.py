"""The pages of recorded clusters, asked for as a browser does, with groups that were answered before."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import cast

from aiohttp import ClientResponse
from aiohttp.test_utils import TestClient, TestServer
from tests.support.recorded_clusters import NAMESPACE, RecordedServer

from muster_cli.errors import CliError
from muster_cli.oncall.asking import Brokers
from muster_cli.oncall.groups import GroupLine, GroupReport, Member, build_group
from muster_cli.oncall.kafka import KafkaGroups
from muster_cli.oncall.kubernetes import KubernetesReader
from muster_cli.oncall.options import Where
from muster_cli.ui.app import Application
from muster_cli.ui.login import Doorkeeper
from muster_cli.ui.source import KubernetesSource
from muster_cli.ui.transactions import Described, OpenTransactions, judged
from muster_cli.ui.views import Views
from muster_operator.api.durations import format_time
from muster_operator.kube.client import Json

HOSTILE = '"><script>alert(1)</script>&amp;\u202e/../%2e'


@dataclass
class RecordedGroups:
    """Brokers that have told of groups. `problem`: what they say in place of it."""

    names: list[str] = field(default_factory=lambda: ["billing", HOSTILE])
    problem: str = ""
    described_ones: list[str] = field(default_factory=list)

    def listed(self) -> list[GroupLine]:
        if self.problem:
            raise CliError(self.problem)
        return [GroupLine(name, "STABLE", "CLASSIC") for name in self.names]

    def described(self, group: str, ends: object) -> GroupReport:
        self.described_ones.append(group)
        if group not in self.names:
            raise CliError(f"there is no group {group}")
        members = {Member("one-id", HOSTILE, "10.0.0.1", "", ("orders-0",)): [("orders", 0)]}
        known = {("orders", 0): 50} if ends is not None else {}
        line = GroupLine(group, "STABLE", "CLASSIC")
        return build_group(line, "range", "pod:9092", members, {("orders", 0): 42}, known)


@dataclass(frozen=True)
class RecordedBrokers(Brokers):
    """Answers with `groups`, whoever is asked."""

    groups: RecordedGroups = field(default_factory=RecordedGroups)

    def client_of(self, bootstrap: str) -> KafkaGroups:
        return cast(KafkaGroups, self.groups)


@dataclass
class RecordedLedger:
    """Coordinators that have told of transactions."""

    described: list[Described] = field(default_factory=list)
    problem: str = ""

    def open(self, now: float) -> OpenTransactions:
        if self.problem:
            raise CliError(self.problem)
        return judged(self.described, 0, now)


@dataclass
class Site:
    """A server of pages. `objects` may be changed between two looks."""

    client: TestClient  # type: ignore[type-arg]
    objects: Json
    server: RecordedServer
    groups: RecordedGroups
    ledger: RecordedLedger

    async def get(self, path: str, **headers: str) -> ClientResponse:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.client.get(path, headers={"Host": "localhost", **named})

    async def text(self, path: str) -> str:
        answer = await self.get(path)
        assert answer.status == 200, (answer.status, await answer.text())
        return await answer.text()

    async def words(self, path: str) -> str:
        return words(await self.text(path))


@asynccontextmanager
async def site(
    objects: Json,
    *,
    login_file: Path | None = None,
    refused: tuple[str, ...] = (),
    lag_from: str = "",
) -> AsyncIterator[Site]:
    """With an operator that acts. It looks anew for each request."""
    for lease in objects["leases"]:
        lease["spec"]["renewTime"] = format_time(time.time())
    server, groups = RecordedServer(objects, refused), RecordedGroups()
    where = Where(NAMESPACE, False, "", "", None)
    brokers = RecordedBrokers(where, "", "", "", None, groups)
    ledger = RecordedLedger()
    source = KubernetesSource(KubernetesReader(server.client, NAMESPACE))
    views = Views(source, brokers, lag_from, 0.0, lambda _: ledger)
    app = Application(views, Doorkeeper(login_file) if login_file else None, 2.0).made()
    async with TestClient(TestServer(app)) as client:
        yield Site(client, objects, server, groups, ledger)


class _Words(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_data(self, data: str) -> None:
        self.found.append(data)


def words(html: str) -> str:
    """What a reader sees, with single spaces."""
    parser = _Words()
    parser.feed(html)
    return " ".join(" ".join(parser.found).split())
