"""The measures of transactions, mirror and gateways, from the metrics of pods. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from muster_cli.ui.source import Scraped

OPEN = ("Ongoing", "PrepareCommit", "PrepareAbort")
"""States of transactional ids that have an open transaction."""


@dataclass(frozen=True)
class TransactionsOfPod:
    """The transactions that one pod coordinates. `decided`: their end is, and markers are being written. `missing`:
    partitions without a marker yet. `refused`: attempts to write one that failed, since the pod started.
    """

    pod: str
    ongoing: int
    decided: int
    missing: int
    refused: int
    timed_out: int

    @property
    def hangs(self) -> bool:
        """Tells whether brokers refuse markers that are still missing."""
        return self.missing > 0 and self.refused > 0


@dataclass(frozen=True)
class MirrorOfPod:
    """The mirrors of the partitions that one pod leads. `lag`: records that are not read yet. `problems`: partitions of
    which nothing can be read now.
    """

    pod: str
    lag: int
    problems: int
    taken_in: int
    left_out: int
    read_again: int


@dataclass(frozen=True)
class GatewayMeasures:
    """One gateway process. `unreachable`: the clusters that did not answer it last. `waiting`: requests that wait for a
    leader now. `given_up`: those that no leader took in time.
    """

    pod: str
    connections: int
    waiting: int
    delayed: int
    given_up: int
    unreachable: tuple[str, ...]


def transactions_of(scraped: Iterable[Scraped]) -> tuple[TransactionsOfPod, ...]:
    """The measures of pods that answered."""
    return tuple(_transactions(each.pod, found) for each, found in _read(scraped))


def mirrors_of(scraped: Iterable[Scraped]) -> tuple[MirrorOfPod, ...]:
    """The measures of pods that answered."""
    return tuple(_mirror(each.pod, found) for each, found in _read(scraped))


def gateways_of(scraped: Iterable[Scraped]) -> tuple[GatewayMeasures, ...]:
    """The measures of processes that answered."""
    return tuple(_gateway(each.pod, found) for each, found in _read(scraped))


class _Samples:
    """Samples by name, without the prefix and a counter's ending."""

    def __init__(self, text: str) -> None:
        self._found: dict[str, list[tuple[dict[str, str], float]]] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                name = sample.name.removeprefix("muster_").removesuffix("_total")
                self._found.setdefault(name, []).append((sample.labels, sample.value))

    def of(self, name: str, **labels: str) -> int:
        """The sum of those that have the labels."""
        samples = self._found.get(name, ())
        return int(sum(value for own, value in samples if labels.items() <= own.items()))

    def by(self, name: str, label: str) -> Iterator[tuple[str, float]]:
        for labels, value in self._found.get(name, ()):
            yield labels.get(label, ""), value


def _read(scraped: Iterable[Scraped]) -> Iterator[tuple[Scraped, _Samples]]:
    for each in scraped:
        if not each.problem:
            yield each, _Samples(each.text)


def _transactions(pod: str, found: _Samples) -> TransactionsOfPod:
    return TransactionsOfPod(
        pod=pod,
        ongoing=found.of("transactional_ids", state="Ongoing"),
        decided=sum(found.of("transactional_ids", state=each) for each in OPEN[1:]),
        missing=found.of("transaction_markers_missing"),
        refused=found.of("transaction_markers_refused"),
        timed_out=found.of("transactions_timed_out"),
    )


def _mirror(pod: str, found: _Samples) -> MirrorOfPod:
    return MirrorOfPod(
        pod=pod,
        lag=found.of("mirror_lag"),
        problems=found.of("mirror_problems"),
        taken_in=found.of("mirror_records_taken_in"),
        left_out=found.of("mirror_records_left_out"),
        read_again=found.of("mirror_read_again"),
    )


def _gateway(pod: str, found: _Samples) -> GatewayMeasures:
    return GatewayMeasures(
        pod=pod,
        connections=found.of("gateway_connections"),
        waiting=found.of("gateway_group_requests_waiting"),
        delayed=found.of("gateway_group_requests_delayed"),
        given_up=found.of("gateway_group_requests_given_up"),
        unreachable=tuple(name for name, value in found.by("gateway_reachable", "cluster") if value == 0),
    )
