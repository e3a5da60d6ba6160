"""Options of the `muster-coordinator` process, from the command line and the environment."""

from __future__ import annotations

import argparse
import os
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from muster_coordinator.settings import CoordinatorSettings
from muster_coordinator.settings_by_name import parse_assignments, parse_settings


class UsageError(Exception):
    """A wrong option; the message names it."""


@dataclass(frozen=True)
class ProcessOptions:
    pod: str
    node_id: int
    uid: str
    data_dir: Path
    kafka_listen: tuple[str, int]
    advertise: tuple[str, int]
    listeners: Mapping[str, tuple[str, int]]  # more of them, by name; the metadata image has what they advertise
    api_listen: tuple[str, int]
    peer_listen: tuple[str, int]
    peer_advertise: tuple[str, int] | None  # None: the advertised host, with the port that the peer listener has
    probe_listen: tuple[str, int] | None  # None: the probes are on the API's port only
    metrics_listen: tuple[str, int] | None
    metrics_plain: bool  # without TLS in any case
    metrics_token_file: Path | None
    tls_dir: Path | None  # None: API and peer network are plain
    cluster: str  # <namespace>/<name>, which certificates of this cluster carry
    log_format: str
    settings: CoordinatorSettings


def parse_options(arguments: Sequence[str]) -> ProcessOptions:
    """Raises UsageError or SettingsError; argparse itself exits with 2 on an unknown option."""
    parser = argparse.ArgumentParser(
        prog="muster-coordinator",
        description="A coordinator pod of Muster: Kafka's group coordinator for the partitions that it is given.",
        epilog="Options may be environment variables instead: MUSTER_POD, MUSTER_NODE_ID, MUSTER_DATA_DIR, "
        "MUSTER_KAFKA_LISTEN, MUSTER_ADVERTISE, MUSTER_API_LISTEN, MUSTER_PEER_LISTEN, MUSTER_PEER_ADVERTISE, "
        "MUSTER_PROBE_LISTEN, MUSTER_METRICS_LISTEN, MUSTER_METRICS_TOKEN_FILE, MUSTER_TLS_DIR, MUSTER_CLUSTER, "
        "MUSTER_POD_UID, MUSTER_LOG_FORMAT, MUSTER_CONFIG and MUSTER_LISTENERS (one NAME=VALUE per line).",
    )
    env = os.environ
    parser.add_argument("--pod", default=env.get("MUSTER_POD"), help="name of this pod")
    parser.add_argument(
        "--node-id", type=int, default=env.get("MUSTER_NODE_ID"), help="Kafka node id (default: the pod name's ordinal)"
    )
    parser.add_argument("--pod-uid", default=env.get("MUSTER_POD_UID"), help="Kubernetes uid (default: random per run)")
    parser.add_argument("--data-dir", default=env.get("MUSTER_DATA_DIR"), help="directory of logs and journal")
    parser.add_argument(
        "--kafka-listen",
        default=env.get("MUSTER_KAFKA_LISTEN", "0.0.0.0:9092"),
        metavar="HOST:PORT",
        help="Kafka clients",
    )
    parser.add_argument(
        "--advertise",
        default=env.get("MUSTER_ADVERTISE"),
        metavar="HOST:PORT",
        help="what clients are told to connect to",
    )
    parser.add_argument(
        "--listener",
        action="append",
        default=[],
        metavar="NAME=HOST:PORT",
        help="one more listener for Kafka clients, which are told what the operator advertises there (repeatable)",
    )
    parser.add_argument(
        "--api-listen", default=env.get("MUSTER_API_LISTEN", "0.0.0.0:9640"), metavar="HOST:PORT", help="pod API"
    )
    parser.add_argument(
        "--peer-listen",
        default=env.get("MUSTER_PEER_LISTEN", "0.0.0.0:9641"),
        metavar="HOST:PORT",
        help="replicas in other pods",
    )
    parser.add_argument(
        "--peer-advertise",
        default=env.get("MUSTER_PEER_ADVERTISE"),
        metavar="HOST:PORT",
        help="what other pods are told to connect to (default: host of --advertise, port of --peer-listen)",
    )
    parser.add_argument(
        "--probe-listen", default=env.get("MUSTER_PROBE_LISTEN"), metavar="HOST:PORT", help="/healthz and nothing else"
    )
    parser.add_argument(
        "--metrics-listen",
        default=env.get("MUSTER_METRICS_LISTEN"),
        metavar="HOST:PORT",
        help="/metrics and nothing else, by TLS where the pod API has it",
    )
    parser.add_argument(
        "--metrics-plain",
        action="store_true",
        default=env.get("MUSTER_METRICS_PLAIN", "") == "1",
        help="serve metrics without TLS: readable by all that reach the port (or have the token)",
    )
    parser.add_argument(
        "--metrics-token-file",
        default=env.get("MUSTER_METRICS_TOKEN_FILE"),
        metavar="FILE",
        help="a bearer token that opens the metrics; read again when it changes",
    )
    parser.add_argument(
        "--tls-dir",
        default=env.get("MUSTER_TLS_DIR"),
        metavar="DIR",
        help="tls.crt, tls.key and ca.crt: pod API and peer network take only certificates of this cluster; read again "
        "when they change",
    )
    parser.add_argument(
        "--cluster",
        default=env.get("MUSTER_CLUSTER", ""),
        metavar="NAMESPACE/NAME",
        help="the cluster that certificates have to name; needed with --tls-dir",
    )
    parser.add_argument(
        "--config", action="append", default=[], metavar="NAME=VALUE", help="a setting under Kafka's name (repeatable)"
    )
    parser.add_argument("--log-format", choices=["json", "console"], default=env.get("MUSTER_LOG_FORMAT", "json"))
    given = parser.parse_args(arguments)
    for option in ("pod", "data_dir"):
        if not getattr(given, option):
            name = option.replace("_", "-")
            raise UsageError(f"--{name} is needed (or MUSTER_{option.upper()})")
    if given.tls_dir and len([part for part in given.cluster.split("/") if part]) != 2:
        raise UsageError(f"--cluster {given.cluster!r}: NAMESPACE/NAME is needed with --tls-dir")
    assignments = [*_lines(env.get("MUSTER_CONFIG", "")), *given.config]
    kafka_listen = _address(given.kafka_listen, "--kafka-listen")
    listeners = _listeners([*_lines(env.get("MUSTER_LISTENERS", "")), *given.listener])
    settings = parse_settings(parse_assignments(assignments))
    for unknown in settings.by_listener.keys() - listeners.keys():
        raise UsageError(f"listener.name.{unknown}: --listener names no such listener")
    return ProcessOptions(
        pod=given.pod,
        node_id=_node_id(given.node_id, given.pod),
        uid=given.pod_uid or str(uuid.uuid4()),
        data_dir=Path(given.data_dir),
        kafka_listen=kafka_listen,
        advertise=_address(given.advertise, "--advertise") if given.advertise else kafka_listen,
        listeners=listeners,
        api_listen=_address(given.api_listen, "--api-listen"),
        peer_listen=_address(given.peer_listen, "--peer-listen"),
        peer_advertise=_address(given.peer_advertise, "--peer-advertise") if given.peer_advertise else None,
        probe_listen=_address(given.probe_listen, "--probe-listen") if given.probe_listen else None,
        metrics_listen=_address(given.metrics_listen, "--metrics-listen") if given.metrics_listen else None,
        metrics_plain=given.metrics_plain,
        metrics_token_file=Path(given.metrics_token_file) if given.metrics_token_file else None,
        tls_dir=Path(given.tls_dir) if given.tls_dir else None,
        cluster=given.cluster,
        log_format=given.log_format,
        settings=settings,
    )


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _listeners(given: Iterable[str]) -> dict[str, tuple[str, int]]:
    found: dict[str, tuple[str, int]] = {}
    for text in given:
        name, equals, address = text.partition("=")
        if not equals or not name or name in found:
            raise UsageError(f"--listener {text!r} is not of the form NAME=HOST:PORT with a name of its own")
        found[name] = _address(address, f"--listener {name}")
    return found


def _node_id(given: int | str | None, pod: str) -> int:
    if given is not None:
        try:
            node_id = int(given)
        except ValueError:
            raise UsageError(f"--node-id {given!r} is not a number") from None
        if node_id < 0:
            raise UsageError(f"--node-id {node_id} must not be negative")
        return node_id
    ordinal = re.search(r"(\d+)$", pod)
    if ordinal is None:
        raise UsageError(f"--node-id is needed: the pod name {pod!r} does not end in an ordinal")
    return int(ordinal.group(1))


def _address(text: str, option: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    host = host.strip("[]")  # [::1]:9092
    if not colon or not host or not port.isdigit() or not 0 <= int(port) <= 65535:
        raise UsageError(f"{option} {text!r} is not of the form HOST:PORT")
    return host, int(port)
