"""Prometheus metrics of what a pod has to do with the Kafka cluster that it mirrors."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from muster_coordinator.pod.mirroring.mirror import Mirror


def mirror_metrics(mirror: Mirror | None) -> Iterator[Metric]:
    """Those of a pod without an upstream are 0, or have no samples."""
    mirrored = mirror.status().partitions if mirror is not None else ()
    refused = mirror.refused_connections if mirror is not None else {}
    family = CounterMetricFamily(
        "muster_mirror_connections_refused",
        "Connections to brokers of the upstream that their login, or TLS on either side, has refused.",
        labels=["reason"],
    )
    for reason in ("login", "tls"):
        family.add_metric([reason], refused.get(reason, 0))
    yield family
    yield GaugeMetricFamily(
        "muster_mirror_lag",
        "Records of the upstream that the mirrors led here have not read yet.",
        sum(max(each.lag, 0) for each in mirrored),
    )
    yield GaugeMetricFamily(
        "muster_mirror_problems",
        "Partitions led here of which nothing can be read from the upstream now.",
        sum(bool(each.problem) for each in mirrored),
    )
    yield CounterMetricFamily(
        "muster_mirror_read_again",
        "Times that a partition led here was taken back, to be read from the start.",
        sum(each.read_again for each in mirrored),
    )
    writes = mirror.writes if mirror is not None else None
    yield GaugeMetricFamily(
        "muster_mirror_write_back_age_seconds",
        "For how long an offset of a group that has moved, led here, may not be at Kafka: the "
        "longest. It would be lost with all pods.",
        writes.longest_ms / 1000 if writes is not None else 0,
    )
    yield GaugeMetricFamily(
        "muster_mirror_write_back_refused",
        "Groups that have moved, led here, whose offsets Kafka does not get now; `muster groups moves` says why.",
        writes.refused if writes is not None else 0,
    )
    yield CounterMetricFamily(
        "muster_mirror_write_back_offsets",
        "Offsets of groups that have moved that were written to Kafka.",
        writes.offsets_written if writes is not None else 0,
    )
    lag = GaugeMetricFamily(
        "muster_group_lag",
        "Records that a group is behind, in the partitions of a topic for which it has committed offsets: of groups "
        "that Muster coordinates and this pod leads, the first muster.upstream.group.lag.max.groups by name.",
        labels=["group", "topic"],
    )
    for each in mirror.lag.shown() if mirror is not None else ():
        lag.add_metric([each.group, each.topic], each.records)
    yield lag
    left_out = GaugeMetricFamily(
        "muster_group_lag_left_out",
        "Groups led here, with committed offsets, whose lag is not shown, where that is asked for: limit, they are "
        "beyond muster.upstream.group.lag.max.groups; unknown, Kafka does not say where a partition ends.",
        labels=["reason"],
    )
    for reason, count in (mirror.lag.left_out if mirror is not None else {}).items():
        left_out.add_metric([reason], count)
    yield left_out
