"""Finds the brokers of a cluster, asks them about groups, and prints what they say."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

import click
import msgspec

from muster_cli.errors import CliUsageError
from muster_cli.oncall.groups import group_list, group_screen
from muster_cli.oncall.kafka import KafkaGroups, read_properties
from muster_cli.oncall.looking import console
from muster_cli.oncall.options import Where
from muster_cli.oncall.seen import Seen, Unreachable


@dataclass(frozen=True)
class Brokers:
    """The brokers to ask. `server`: bootstrap servers, "" for those that the cluster tells, of this `listener` if one
    is named. `client_config`: what librdkafka is given beside.
    """

    where: Where
    cluster: str
    server: str
    listener: str
    client_config: Path | None

    def client(self) -> KafkaGroups:
        """Raises Unreachable, CliError, CliUsageError."""
        return self.client_of(self.server or asyncio.run(self._told()))

    def client_of(self, bootstrap: str) -> KafkaGroups:
        """Raises CliError."""
        return KafkaGroups(bootstrap, read_properties(self.client_config))

    async def _told(self) -> str:
        async with self.where.reader(self.cluster) as reader:
            return bootstrap_of(await reader.look(), self.listener)


def bootstrap_of(clusters: tuple[Seen, ...], listener: str) -> str:
    """The bootstrap servers that the one cluster tells. Raises Unreachable, CliUsageError."""
    if len(clusters) > 1:
        names = ", ".join(each.cluster.metadata.name for each in clusters)
        raise CliUsageError(f"there are {len(clusters)} clusters, name one: {names}")
    if not clusters:
        raise Unreachable("no CoordinatorCluster")
    (seen,) = clusters
    status, name = seen.cluster.status, seen.cluster.metadata.name
    told = {seen.cluster.spec.internal.name: status.bootstrap}
    told |= {each.name: each.bootstrap for each in status.listeners}
    if listener and listener not in told:
        raise CliUsageError(f"{name} has no listener {listener}, but {', '.join(sorted(told))}")
    found = told[listener] if listener else status.bootstrap
    if not found:
        raise Unreachable(f"{name} tells no address for clients yet")
    return found


def run_list(brokers: Brokers, *, as_json: bool) -> None:
    """Raises Unreachable, CliError, CliUsageError."""
    lines = brokers.client().listed()
    if as_json:
        click.echo(msgspec.json.encode(lines))
    else:
        console().print(group_list(lines))


def run_describe(brokers: Brokers, group: str, lag_from: str, *, as_json: bool) -> None:
    """`lag_from`: bootstrap servers of the cluster that has the data, "" if lag is not asked for. Raises likewise."""
    report = brokers.client().described(group, brokers.client_of(lag_from) if lag_from else None)
    if as_json:
        click.echo(msgspec.json.encode(report))
    else:
        console().print(group_screen(report))
