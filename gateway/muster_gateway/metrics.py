"""Prometheus metrics of a gateway, at a port of their own. They name no client, group or topic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from muster_coordinator.podapi.side_ports import metrics_app
from muster_gateway.gateway import Gateway
from muster_gateway.moves import MoveCounts, Moves


class GatewayCollector(Collector):
    """Names and meanings are listed in docs/metrics.md; a test pins them."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def collect(self) -> Iterator[Metric]:
        yield from self._connections()
        yield from self._nodes()
        yield from self._groups()
        yield from self._moves(self._gateway.moves)

    def _connections(self) -> Iterator[Metric]:
        gateway = self._gateway
        yield GaugeMetricFamily("muster_gateway_connections", "Open connections of clients.", gateway.connections)
        yield _by_label(
            CounterMetricFamily(
                "muster_gateway_connections_ended",
                "Connections that ended: client, client_ended, idle, stopped, broker_lost; "
                "broker_not_reachable, broker_answer_malformed, muster_failed, upstream_failed; "
                "parked_too_long, lease_ended and movable_groups_learned where groups can move; "
                "too_many_connections, no_descriptors, held_most as aborted; a client's own faults, such "
                "as unsupported_request.",
                labels=["reason"],
            ),
            gateway.ended,
        )
        yield GaugeMetricFamily(
            "muster_gateway_held_bytes",
            "Bytes that connections hold in requests and answers that are read (limit: max.held.bytes).",
            gateway.held_bytes,
        )
        yield _by_label(
            CounterMetricFamily(
                "muster_gateway_bytes",
                "Bytes that passed without being read, to brokers and to clients.",
                labels=["to"],
            ),
            {"brokers": gateway.traffic.to_brokers, "clients": gateway.traffic.to_clients},
        )

    def _nodes(self) -> Iterator[Metric]:
        gateway = self._gateway
        yield _by_label(
            GaugeMetricFamily("muster_gateway_nodes", "Nodes that clients are told of.", labels=["kind"]),
            {"broker": gateway.nodes.told_brokers, "pod": len(gateway.nodes.shown_pods())},
        )
        yield _by_label(
            GaugeMetricFamily(
                "muster_gateway_reachable",
                "0: upstream or muster did not answer when it was asked last, which is every two seconds.",
                labels=["cluster"],
            ),
            {"upstream": not gateway.upstream.failing, "muster": not gateway.muster.failing},
        )
        refused = CounterMetricFamily(
            "muster_gateway_connections_refused",
            "Connections of the gateway's own to upstream or muster that their login, or TLS on "
            "either side, has refused.",
            labels=["cluster", "reason"],
        )
        for cluster, failed in gateway.refused.items():
            for reason, count in sorted(failed.items()):
                refused.add_metric([cluster, reason], count)
        yield refused

    def _groups(self) -> Iterator[Metric]:
        counts = self._gateway.muster.counts
        yield CounterMetricFamily(
            "muster_gateway_group_requests", "Requests about groups that Muster answered.", counts.answered
        )
        yield GaugeMetricFamily(
            "muster_gateway_group_requests_waiting",
            "Requests that wait in the gateway for a leader of their group's partition.",
            counts.waiting,
        )
        yield CounterMetricFamily(
            "muster_gateway_group_requests_delayed",
            "Requests that have had to wait for a leader: a failover.",
            counts.delayed,
        )
        yield CounterMetricFamily(
            "muster_gateway_group_requests_given_up",
            "Requests that no leader took within park.ms, or that must not be sent twice: clients see it.",
            counts.given_up,
        )

    def _moves(self, moves: Moves | None) -> Iterator[Metric]:
        counts = moves.counts if moves is not None else MoveCounts()
        yield GaugeMetricFamily(
            "muster_gateway_leases",
            "Partitions of Muster's offsets topic for which a pod's lease holds: all of them, where "
            "the gateway asks for leases.",
            moves.held if moves is not None else 0,
        )
        yield GaugeMetricFamily(
            "muster_gateway_movable_groups_learned",
            "Beginnings of ids that pods let move and this gateway's muster.movable.groups does not "
            "name: it counts them as movable, and its settings want them.",
            len(moves.prefixes) - len(moves.own) if moves is not None else 0,
        )
        yield GaugeMetricFamily(
            "muster_gateway_movable_requests_parked",
            "Requests about movable groups that wait: their group moves, or there is no lease.",
            counts.parked,
        )
        yield CounterMetricFamily(
            "muster_gateway_movable_requests_delayed", "Requests that have had to wait so.", counts.delayed
        )
        yield CounterMetricFamily(
            "muster_gateway_movable_requests_given_up",
            "Requests that waited for longer than park.ms: their connections were closed.",
            counts.given_up,
        )
        yield CounterMetricFamily(
            "muster_gateway_movable_answers_withheld",
            "Answers of Kafka's about movable groups that clients did not get, because a lease had ended.",
            counts.withheld,
        )


def _by_label(
    family: CounterMetricFamily | GaugeMetricFamily, values: Mapping[str, int]
) -> CounterMetricFamily | GaugeMetricFamily:
    for label, value in sorted(values.items()):
        family.add_metric([label], value)
    return family


class MetricsPort:
    """`start` listens, and raises OSError when it cannot."""

    def __init__(self, gateway: Gateway) -> None:
        registry = CollectorRegistry()
        registry.register(GatewayCollector(gateway))
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        GCCollector(registry=registry)
        self._runner = web.AppRunner(metrics_app(lambda: generate_latest(registry), None), access_log=None)

    async def start(self, host: str, port: int) -> None:
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port).start()

    async def stop(self) -> None:
        await self._runner.cleanup()
