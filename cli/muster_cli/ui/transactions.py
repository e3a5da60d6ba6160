"""Open transactions by name, asked with kafka-python: librdkafka's admin client has no such call."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from muster_cli.errors import CliError
from muster_cli.oncall.seen import Unreachable
from muster_operator.api.durations import format_time

OPEN_MS = 10_000
"""Transactions that have been open for longer are shown; others come and go."""
SHOWN_MAX = 100
"""The most transactions that are described: those that the pods name first."""
ANSWER_MS = 5_000
LATE_MS = 15_000
"""A coordinator looks every ten seconds for transactions whose time is over."""
ONGOING, DECIDED = "Ongoing", ("PrepareCommit", "PrepareAbort")
PROPERTIES = {
    "security.protocol": "security_protocol",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.mechanisms": "sasl_mechanism",
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
    "ssl.ca.location": "ssl_cafile",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
    "ssl.key.password": "ssl_password",
}
"""Settings of librdkafka, under the names that kafka-python has for them. All others are librdkafka's own business."""


@dataclass(frozen=True)
class Described:
    """One transaction, as a coordinator describes it. `started_ms`: since 1970."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int
    partitions: tuple[str, ...]


@dataclass(frozen=True)
class OpenTransaction:
    """One that has been open for a while. `started`: RFC 3339. `hangs`: why it does, "" if it does not."""

    transactional_id: str
    state: str
    producer: str
    started: str
    timeout_ms: int
    partitions: tuple[str, ...]
    hangs: str


@dataclass(frozen=True)
class OpenTransactions:
    """Those that hang first, then by age. `more`: how many were not described."""

    shown: tuple[OpenTransaction, ...]
    more: int


class Ledger(Protocol):
    """The coordinators of transactions of one cluster."""

    def open(self, now: float) -> OpenTransactions:
        """The open transactions at `now`, in seconds since 1970. Raises Unreachable, CliError."""


def judged(described: Iterable[Described], more: int, now: float) -> OpenTransactions:
    """A transaction hangs when it is open for longer than its time-out, after which its coordinator ends it."""
    found = []
    open_ones = [each for each in described if each.state in (ONGOING, *DECIDED)]  # others have ended since
    for each in sorted(open_ones, key=lambda one: (one.started_ms, one.transactional_id)):
        late = now * 1000 > each.started_ms + each.timeout_ms + LATE_MS
        why = "its end is decided, and markers are missing" if each.state in DECIDED else "its time is over"
        found.append(
            OpenTransaction(
                transactional_id=each.transactional_id,
                state=each.state,
                producer=f"{each.producer_id}, epoch {each.producer_epoch}",
                started=format_time(each.started_ms / 1000),
                timeout_ms=each.timeout_ms,
                partitions=each.partitions,
                hangs=why if late else "",
            )
        )
    return OpenTransactions(tuple(sorted(found, key=lambda each: not each.hangs)), more)


class KafkaLedger:
    """Implements `Ledger`, for one cluster. It connects when it is asked first."""

    def __init__(self, bootstrap: str, properties: Mapping[str, str]) -> None:
        self._bootstrap = bootstrap
        self._settings: dict[str, Any] = {
            PROPERTIES[name]: value for name, value in properties.items() if name in PROPERTIES
        }
        if properties.get("ssl.endpoint.identification.algorithm") == "none":
            self._settings["ssl_check_hostname"] = False
        self._admin: Any = None
        self._asking = threading.Lock()

    def open(self, now: float) -> OpenTransactions:
        try:
            from kafka.errors import KafkaError
        except ImportError as error:
            raise CliError(f"{error.name} is missing: pip install 'muster[pipeline]'") from error
        with self._asking:
            try:
                return self._open(now)
            except (KafkaError, OSError, ValueError) as error:
                self._forget()
                raise Unreachable(f"{self._bootstrap} does not tell its transactions: {error}") from error

    def _open(self, now: float) -> OpenTransactions:
        if self._admin is None:
            from kafka import KafkaAdminClient

            servers = self._bootstrap.split(",")
            self._admin = KafkaAdminClient(
                bootstrap_servers=servers, client_id="muster", request_timeout_ms=ANSWER_MS, **self._settings
            )
        listed = self._admin.list_transactions(duration_filter_ms=OPEN_MS)
        names = [each.transactional_id for of_pod in listed.values() for each in of_pod]
        found = self._admin.describe_transactions(names[:SHOWN_MAX])
        return judged((_described(*each) for each in found.items()), max(len(names) - SHOWN_MAX, 0), now)

    def _forget(self) -> None:
        admin, self._admin = self._admin, None
        if admin is not None:
            admin.close()


def _described(name: str, raw: Any) -> Described:
    return Described(
        transactional_id=name,
        state=raw.state.value,
        producer_id=raw.producer_id,
        producer_epoch=raw.producer_epoch,
        timeout_ms=raw.transaction_timeout_ms,
        started_ms=raw.transaction_start_time_ms,
        partitions=tuple(sorted(f"{each.topic}-{each.partition}" for each in raw.topic_partitions)),
    )
