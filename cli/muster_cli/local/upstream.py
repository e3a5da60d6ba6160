"""The consequences of `--upstream` for an instance that is made: as many partitions as there are in front of it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from muster_cli.errors import CliError
from muster_cli.local.declare import UpOptions
from muster_coordinator.outgoing.connector import Connector
from muster_coordinator.pod.mirroring.connection import CLIENT_ID, UpstreamError
from muster_coordinator.pod.mirroring.upstream import TopicMissingError, UpstreamCluster
from muster_coordinator.security.tls import TlsError
from muster_coordinator.security.watched_file import SecurityFileError
from muster_coordinator.setting_fields import parse_addresses
from muster_coordinator.settings import UpstreamSettings
from muster_coordinator.settings_by_name import parse_settings
from muster_operator.store.port import ClusterRecords

ANSWER_TIMEOUT_S = 5.0
ATTEMPTS = 50
AGAIN_S = 0.2


async def fitted_to_upstream(options: UpOptions, before: ClusterRecords) -> UpOptions:
    """The options of an instance that mirrors an upstream: as many partitions as it has, and no transaction coordinator
    of its own, as markers come from there. What was asked for, or was there before, stays. Raises CliError."""
    upstream = parse_settings(options.settings).upstream
    if not upstream.upstream_bootstrap or before.topics:
        return options
    if options.transaction_partitions is None:
        options = replace(options, transaction_partitions=0)
    if options.partitions is None:
        options = replace(options, partitions=await _offsets_partitions(upstream))
    return options


async def _offsets_partitions(upstream: UpstreamSettings) -> int:
    """The number of partitions of its `__consumer_offsets`, which a broker makes when it is first looked for."""
    try:
        connector = Connector(upstream.outgoing, CLIENT_ID)
    except (TlsError, SecurityFileError) as error:
        raise CliError(f"muster.upstream: {error}") from error
    cluster = UpstreamCluster(connector, parse_addresses(upstream.upstream_bootstrap), ANSWER_TIMEOUT_S)
    try:
        for _ in range(ATTEMPTS):
            try:
                await cluster.look()
            except TopicMissingError:
                await asyncio.sleep(AGAIN_S)
                continue
            assert cluster.topic is not None
            return len(cluster.topic.leaders)
    except UpstreamError as error:
        raise CliError(f"the upstream does not say how many partitions its groups have: {error}") from error
    finally:
        cluster.close()
    raise CliError(
        f"the upstream {upstream.upstream_bootstrap} has no topic for groups, and makes none when it is asked for a "
        "coordinator"
    )
