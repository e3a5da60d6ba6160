"""The contents of the pages: questions to the source and to brokers, and their answers as values for the templates."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import zip_longest
from typing import Any

from muster_cli.oncall.asking import Brokers, bootstrap_of
from muster_cli.oncall.explain import Kind, explain, find
from muster_cli.oncall.groups import GroupLine, GroupReport
from muster_cli.oncall.kafka import KafkaGroups
from muster_cli.oncall.seen import Seen, Unreachable
from muster_cli.oncall.status import ClusterReport, build_status
from muster_cli.ui.looks import Kept, Told
from muster_cli.ui.measures import gateways_of, mirrors_of, transactions_of
from muster_cli.ui.picture import time_line, zones_of
from muster_cli.ui.source import Source
from muster_cli.ui.transactions import Ledger, OpenTransactions
from muster_coordinator.partition_numbers import TRANSACTIONS
from muster_operator.api.conditions import ConditionType, find_condition

GROUPS_ON_A_PAGE = 25
SLOWER = 3
"""Brokers, nodes and metrics are asked so many times less often than the API server for the state."""
KINDS: Mapping[str, Kind] = {"auto": "auto", "group": "group", "transactional-id": "transactional-id"}


class NotThereError(Exception):
    """There is no such cluster, or not any more."""


@dataclass(frozen=True)
class Page:
    """The values for a template. `status`: that of HTTP."""

    template: str
    title: str
    values: Mapping[str, Any]
    status: int = 200


class Views:
    """All pages. Methods raise NotThereError, and Unreachable as long as nothing was ever seen."""

    def __init__(
        self,
        source: Source,
        brokers: Brokers,
        lag_from: str,
        interval_s: float,
        ledger_of: Callable[[str], Ledger],
    ) -> None:
        """`lag_from`: bootstrap servers of the cluster that has the data, "" if there is none. `ledger_of`: by
        bootstrap servers."""
        self._source = source
        self._brokers = brokers
        self._lag_from = lag_from
        self._often = Kept(interval_s)
        self._seldom = Kept(interval_s * SLOWER)
        self._clients: dict[str, KafkaGroups] = {}
        self._ledger_of = cache(ledger_of)

    async def clusters(self) -> Page:
        """All of them, with their verdicts."""
        looked = await self._look()
        report = build_status(looked.value or (), time.time())
        values = {"clusters": report.clusters, "trouble": looked.trouble, "source": self._source.name}
        return Page("clusters", "Clusters", values)

    async def overview(self, namespace: str, name: str) -> Page:
        """One cluster: verdict, picture, failovers, partitions."""
        seen, report, trouble = await self._cluster(namespace, name)
        zones = await self._seldom.get("zones", self._source.zones)
        values = {
            "report": report,
            "zones": zones_of(report, zones.value or {}),
            "has_zones": any((zones.value or {}).get(pod.node) for pod in report.pods),
            "line": time_line(report.failovers, [pod.name for pod in report.pods]),
            "trouble": trouble,
            "lists": (
                ("needs a person", report.needs_person),
                ("under way", report.under_way),
                ("good to know", report.notes),
            ),
            "suspended": seen.cluster.spec.suspend,
        }
        return Page("overview", f"{name}", values)

    async def groups(self, namespace: str, name: str, wanted: str, number: int) -> Page:
        """A page of the groups whose ids contain `wanted`, with members and lag. `number`: from 1 on."""
        seen, report, trouble = await self._cluster(namespace, name)
        told: Told[list[GroupLine]] = await self._seldom.get(f"groups {namespace}/{name}", lambda: self._listed(seen))
        lines = [each for each in told.value or () if wanted.lower() in each.group.lower()]
        pages = max(-(-len(lines) // GROUPS_ON_A_PAGE), 1)
        number = min(max(number, 1), pages)
        shown = lines[(number - 1) * GROUPS_ON_A_PAGE : number * GROUPS_ON_A_PAGE]
        asked = () if told.trouble else shown  # brokers that do not answer are not asked for each group as well
        described = await asyncio.gather(*(self._group(seen, each.group) for each in asked))
        values = {
            "report": report,
            "groups": list(zip_longest(shown, (each.value for each in described))),
            "count": len(lines),
            "wanted": wanted,
            "number": number,
            "pages": pages,
            "trouble": told.trouble or trouble,
            "has_lag": bool(self._lag_from),
        }
        return Page("groups", f"Groups of {name}", values)

    async def group(self, namespace: str, name: str, group: str) -> Page:
        """One group: members, positions, and where it lives."""
        seen, report, trouble = await self._cluster(namespace, name)
        told = await self._group(seen, group)
        homes = _explained([seen], group, "group")
        values = {
            "report": report,
            "group": group,
            "told": told.value,
            "homes": homes,
            "trouble": told.trouble or trouble,
            "has_lag": bool(self._lag_from),
        }
        return Page("group", f"Group {group}", values)

    async def explained(self, namespace: str, name: str, asked: str, kind: str) -> Page:
        """Explains where a partition or group lives, why it is as it is, and what happens next. `asked`: "" for nothing
        yet.
        """
        seen, report, trouble = await self._cluster(namespace, name)
        problem = ""
        told = []
        if asked:
            try:
                told = _explained([seen], asked, KINDS.get(kind, "auto"))
            except Unreachable as error:
                problem = error.message
        values = {"report": report, "asked": asked, "kind": kind, "told": told, "problem": problem, "trouble": trouble}
        return Page("explain", f"Explain {asked}" if asked else "Explain", values)

    async def transactions(self, namespace: str, name: str) -> Page:
        """Open ones by name; by pod, how many there are, and the markers that are missing."""
        seen, report, trouble = await self._cluster(namespace, name)
        told = await self._seldom.get(f"metrics {namespace}/{name}", lambda: self._source.metrics(seen))
        coordinates = any(each.spec.topic == TRANSACTIONS.name for each in seen.topics)
        ledger: Told[OpenTransactions] = Told(None)
        if coordinates:
            ledger = await self._seldom.get(f"transactions {namespace}/{name}", lambda: self._open(seen))
        values = {
            "report": report,
            "coordinates": coordinates,
            "open": ledger.value,
            "pods": transactions_of(told.value or ()),
            "silent": [each for each in told.value or () if each.problem],
            "trouble": told.trouble or ledger.trouble or trouble,
        }
        return Page("transactions", f"Transactions of {name}", values)

    async def kafka(self, namespace: str, name: str) -> Page:
        """The mirror of a Kafka cluster's groups, and the gateway in front of it."""
        seen, report, trouble = await self._cluster(namespace, name)
        key = f"{namespace}/{name}"
        upstream = seen.cluster.spec.upstream
        mirror = await self._seldom.get(f"mirror {key}", self._source.mirror)
        gateway = await self._seldom.get(f"gateway {key}", lambda: self._source.gateway(seen))
        scraped = None
        if upstream is not None:
            scraped = await self._seldom.get(f"metrics {key}", lambda: self._source.metrics(seen))
        conditions = seen.cluster.status.conditions
        values = {
            "report": report,
            "upstream": upstream.bootstrap_servers if upstream is not None else "",
            "mirrored": find_condition(conditions, ConditionType.MIRRORED),
            "bypassed": find_condition(conditions, ConditionType.BYPASSED),
            "mirror": mirror.value,
            "mirrors": mirrors_of((scraped.value or ()) if scraped is not None else ()),
            "gateway": gateway.value,
            "gateways": {each.pod: each for each in gateways_of(gateway.value.metrics if gateway.value else ())},
            "trouble": mirror.trouble or gateway.trouble or trouble,
        }
        return Page("kafka", f"Kafka in front of {name}", values)

    async def doctor(self, namespace: str, name: str) -> Page:
        """Lists what stands between the cluster and production."""
        seen, report, trouble = await self._cluster(namespace, name)
        told = await self._seldom.get(f"doctor {namespace}/{name}", lambda: self._source.diagnosis(seen))
        values = {"report": report, "told": told.value, "trouble": told.trouble or trouble}
        return Page("doctor", f"Doctor of {name}", values)

    async def _look(self) -> Told[tuple[Seen, ...]]:
        looked = await self._often.get("look", self._source.look)
        if looked.value is None:
            raise Unreachable(looked.trouble)
        return looked

    async def _cluster(self, namespace: str, name: str) -> tuple[Seen, ClusterReport, str]:
        looked = await self._look()
        for seen in looked.value or ():
            if (seen.cluster.metadata.namespace, seen.cluster.metadata.name) == (namespace, name):
                (report,) = build_status([seen], time.time()).clusters
                return seen, report, looked.trouble
        raise NotThereError(f"{self._source.name} has no cluster {namespace}/{name}")

    async def _listed(self, seen: Seen) -> list[GroupLine]:
        return await asyncio.to_thread(self._client(self._bootstrap(seen)).listed)

    async def _open(self, seen: Seen) -> OpenTransactions:
        return await asyncio.to_thread(self._ledger_of(self._bootstrap(seen)).open, time.time())

    async def _group(self, seen: Seen, group: str) -> Told[GroupReport]:
        meta = seen.cluster.metadata

        async def ask() -> GroupReport:
            ends = self._client(self._lag_from) if self._lag_from else None
            return await asyncio.to_thread(self._client(self._bootstrap(seen)).described, group, ends)

        return await self._seldom.get(f"group {meta.namespace}/{meta.name} {group}", ask)

    def _bootstrap(self, seen: Seen) -> str:
        return self._brokers.server or bootstrap_of((seen,), self._brokers.listener)

    def _client(self, bootstrap: str) -> KafkaGroups:
        """One for each address: librdkafka keeps its connections. Raises CliError."""
        if bootstrap not in self._clients:
            self._clients[bootstrap] = self._brokers.client_of(bootstrap)
        return self._clients[bootstrap]


def _explained(clusters: Sequence[Seen], asked: str, kind: Kind) -> list[Any]:
    now = time.time()
    return [explain(each, asked, now) for each in find(clusters, asked, kind)]
