#!/usr/bin/env python3
"""The gateway beside the same without it: MB/s of Kafka's own consumer and producer, the gateway's CPU, the time of
small requests, and its memory.

Direct, through a process that only passes bytes on (relay.py), and through the gateway in turns, in one run; medians.
Broker, clients and gateway share this machine, so the share of direct is what a gateway on the same machine costs, and
its CPU beside the relay's what is its own. With --tls all connections have TLS and logins (PLAIN) that pass to the
broker, and there is no relay. The results are also written to bench/results/.

Exit codes: 0 measured; 1 a process failed; 2 a program is missing; 130 interrupted.
"""

from __future__ import annotations

import argparse
import json
import socket
import ssl
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import builds
import servers
from ending import exit_code
from measure import cpu_seconds, resident_bytes
from relay import relayed_kafka
from report import REPOSITORY, machine, write
from secured import USER, Secured

from muster_cli.local.ports import free_ports

TOPIC_PARTITIONS = 4
RECORD_BYTES = 1024
SETTLE_S = 1.0
TIMEOUT_S = 300


@dataclass(frozen=True)
class Site:
    """The addresses for clients on each path: "direct", "relay", "through" the gateway. `pids`: the processes between.
    `secured`: the login that clients use."""

    bootstraps: dict[str, str]
    muster: str
    pids: dict[str, int]
    secured: Secured | None = None
    properties: Path | None = None
    """The file with which Kafka's tools log in."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="of each measurement (default 5)")
    parser.add_argument("--megabytes", type=int, default=1000, help="of records to produce and consume (default 1000)")
    parser.add_argument("--connections", type=int, default=1000, help="for the memory of each (default 1000)")
    parser.add_argument("--tls", action="store_true", help="with TLS and logins on all connections")
    options = parser.parse_args()
    with servers.data_directory(REPOSITORY) as directory, running(directory, tls=options.tls) as site:
        report = {"machine": machine(), "tls": options.tls, **measured(site, options)}
    written = write("gateway-tls" if options.tls else "gateway", report)
    print(table(report))
    print(f"written to {written}", file=sys.stderr)
    return 0


@contextmanager
def running(directory: Path, *, tls: bool) -> Iterator[Site]:
    """A broker, a pod of Muster, and a gateway in front of both. Raises BenchError."""
    secured = Secured.made(directory / "secured") if tls else None
    with ExitStack() as stack:
        counts = {"partitions": 5, "topic_partitions": TOPIC_PARTITIONS}
        bootstraps, pids = {}, {}
        if secured is None:
            bootstraps["direct"], bootstraps["relay"], pids["relay"] = stack.enter_context(
                relayed_kafka(directory, **counts)
            )
        else:
            bootstraps["direct"] = stack.enter_context(
                servers.kafka(directory, partitions=5, topic_partitions=TOPIC_PARTITIONS, secured=secured)
            ).bootstrap
        muster = stack.enter_context(servers.muster(directory, **counts, config=[], secured=secured))
        (port,) = free_ports(1)
        command = [sys.executable, "-m", "muster_gateway.main"]
        for setting in (
            f"upstream.bootstrap.servers={bootstraps['direct']}",
            f"muster.bootstrap.servers={muster.bootstrap}",
            "muster.groups=*",
            "listen.host=127.0.0.1",
            f"bootstrap.port={port}",
            "broker.port.base=0",
            "pod.port.base=0",
            *(outgoing(secured) if secured is not None else ()),
        ):
            command += ["--config", setting]
        output = directory / "gateway.out"
        gateway = stack.enter_context(servers.process(command, output))
        deadline = time.monotonic() + servers.START_DEADLINE_S
        while "gateway_ready" not in output.read_text(encoding="utf-8"):
            error = servers.ended_or_late(gateway, deadline, output)
            if error:
                raise builds.BenchError(error)
            time.sleep(0.05)
        properties = login_properties(secured) if secured is not None else None
        bootstraps["through"], pids["through"] = f"127.0.0.1:{port}", gateway.pid
        yield Site(bootstraps, muster.bootstrap, pids, secured, properties)


def outgoing(secured: Secured) -> list[str]:
    """The gateway's settings of TLS and logins, on all sides."""
    account = secured.directory / "account"
    account.mkdir()
    (account / "username").write_text(USER)
    (account / "password").write_text(secured.password)
    asked = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.dir": account,
        "ssl.truststore.location": secured.directory / "ca.crt",
    }
    both = [f"{side}.{name}={value}" for side in ("upstream", "muster") for name, value in asked.items()]
    return [*both, f"listener.tls.dir={secured.directory}"]


def login_properties(secured: Secured) -> Path:
    """A file for Kafka's tools."""
    path = secured.directory / "client.properties"
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    path.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={module} username="{USER}" password="{secured.password}";\n'
        f"ssl.truststore.type=PEM\nssl.truststore.location={secured.directory / 'ca.crt'}\n"
    )
    return path


def measured(site: Site, options: argparse.Namespace) -> dict[str, Any]:
    records = options.megabytes * 1_000_000 // RECORD_BYTES
    rows: dict[str, list[dict[str, float]]] = {}
    for number in range(options.rounds):
        for what, measure in (("produce", produce), ("consume", consume)):
            for path in site.bootstraps:
                print(f"{what} {path}, round {number + 1} of {options.rounds}", file=sys.stderr)
                rows.setdefault(f"{what} {path}", []).append(measure(site, path, records))
    for number in range(options.rounds):
        for path in ("direct", "through"):
            bootstrap = site.bootstraps[path]
            print(f"small requests {path}, round {number + 1} of {options.rounds}", file=sys.stderr)
            rows.setdefault(f"broker's {path}", []).append({"p50_us": p50_us(site, bootstrap, list_offsets)})
            pods = site.muster if path == "direct" else bootstrap
            rows.setdefault(f"group's {path}", []).append({"p50_us": p50_us(site, pods, offset_fetch)})
    medians = {
        name: {key: statistics.median(each[key] for each in found) for key in found[0]} for name, found in rows.items()
    }
    return {"medians": medians, "memory": memory(site, options.connections)}


# -- MB/s -------------------------------------------------------------------------------------------------------------


def produce(site: Site, path: str, records: int) -> dict[str, float]:
    arguments = ["--topic", servers.TOPIC, "--num-records", str(records), "--record-size", str(RECORD_BYTES)]
    arguments += ["--throughput", "-1", "--producer-props", f"bootstrap.servers={site.bootstraps[path]}", "acks=all"]
    arguments += ["batch.size=65536", "linger.ms=5"]
    arguments += ["--command-config", str(site.properties)] if site.properties is not None else []
    said, used = with_cpu(site.pids.get(path), ["org.apache.kafka.tools.ProducerPerformance", *arguments])
    last = next(line for line in reversed(said.splitlines()) if "MB/sec" in line)
    return {"mb_s": float(last.partition("(")[2].split()[0]), "cpu_s_per_gb": used / (records * RECORD_BYTES / 1e9)}


def consume(site: Site, path: str, records: int) -> dict[str, float]:
    arguments = ["--bootstrap-server", site.bootstraps[path], "--topic", servers.TOPIC, "--hide-header"]
    arguments += ["--messages", str(records), "--timeout", "60000", "--group", f"bench-{time.time_ns()}"]
    arguments += ["--command-config", str(site.properties)] if site.properties is not None else []
    said, used = with_cpu(site.pids.get(path), ["org.apache.kafka.tools.ConsumerPerformance", *arguments])
    fields = next(line for line in said.splitlines() if line.count(",") >= 9).split(",")
    return {"mb_s": float(fields[8]), "cpu_s_per_gb": used / (float(fields[2]) * (1 << 20) / 1e9)}


def with_cpu(pid: int | None, tool: list[str]) -> tuple[str, float]:
    """Output of Kafka's tool, and the CPU seconds of what is between meanwhile. Raises BenchError."""
    before = cpu_seconds(pid) if pid is not None else 0.0
    done = subprocess.run(
        ["java", "-Xmx512m", "-cp", f"{builds.kafka_jars()}/*", *tool],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        raise builds.BenchError(f"{tool[0]}: {done.stdout[-500:]} {done.stderr[-500:]}")
    return done.stdout, cpu_seconds(pid) - before if pid is not None else 0.0


# -- small requests ---------------------------------------------------------------------------------------------------


def request(key: int, version: int, body: bytes) -> bytes:
    frame = struct.pack(">hhih", key, version, 1, -1) + body
    return struct.pack(">i", len(frame)) + frame


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def list_offsets() -> bytes:
    """A request for the end of one partition."""
    return request(2, 1, struct.pack(">ii", -1, 1) + text(servers.TOPIC) + struct.pack(">iiq", 1, 0, -1))


def offset_fetch() -> bytes:
    """A request for one partition of a group at Muster."""
    return request(9, 1, text("small") + struct.pack(">i", 1) + text(servers.TOPIC) + struct.pack(">ii", 1, 0))


def p50_us(site: Site, bootstrap: str, asked: Any, count: int = 3000) -> float:
    frame = asked()
    times = []
    with closing(connected(site, bootstrap)) as client:
        for _ in range(count):
            begin = time.perf_counter()
            client.sendall(frame)
            received(client)
            times.append(time.perf_counter() - begin)
    return statistics.median(times[count // 10 :]) * 1e6


def connected(site: Site, bootstrap: str) -> socket.socket:
    """Logged in, where that is asked."""
    host, _, port = bootstrap.partition(":")
    client = socket.create_connection((host, int(port)))
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if site.secured is None:
        return client
    context = ssl.create_default_context(cafile=site.secured.directory / "ca.crt")
    client = context.wrap_socket(client, server_hostname=host)
    token = f"\0{USER}\0{site.secured.password}".encode()
    for key, body in ((17, text("PLAIN")), (36, struct.pack(">i", len(token)) + token)):
        client.sendall(request(key, 1, body))
        if struct.unpack_from(">h", received(client), 4)[0]:
            raise builds.BenchError(f"{bootstrap} refuses the login")
    return client


def received(client: socket.socket) -> bytes:
    """One whole answer without its length."""
    return exactly(client, struct.unpack(">i", exactly(client, 4))[0])


def exactly(client: socket.socket, size: int) -> bytes:
    found = bytearray()
    while len(found) < size:
        more = client.recv(min(size - len(found), 1 << 20))
        if not more:
            raise builds.BenchError("a connection ended")
        found += more
    return bytes(found)


# -- memory -----------------------------------------------------------------------------------------------------------


def memory(site: Site, connections: int) -> dict[str, float]:
    """KiB of the gateway for each connection: one that has asked something, and one that gets an answer of 100 MB and
    reads nothing of it."""
    print(f"memory of {connections} connections", file=sys.stderr)
    partitions = struct.pack(">i", TOPIC_PARTITIONS)
    for number in range(TOPIC_PARTITIONS):
        partitions += struct.pack(">iiqqi", number, -1, 0, -1, 25 << 20)
    fetch = request(
        1,
        11,
        struct.pack(">iiiibii", -1, 1000, 1, 100 << 20, 0, 0, -1)
        + struct.pack(">i", 1)
        + text(servers.TOPIC)
        + partitions
        + struct.pack(">i", 0)
        + text(""),
    )
    broker = address_of_broker(site)
    begin = resident_bytes(site.pids["through"])
    with ExitStack() as stack:
        for _ in range(connections):
            client = stack.enter_context(closing(connected(site, site.bootstraps["through"])))
            client.sendall(list_offsets())
            received(client)
        time.sleep(SETTLE_S)
        asked = (resident_bytes(site.pids["through"]) - begin) / 1024 / connections
    slow = max(connections // 20, 1)
    begin = resident_bytes(site.pids["through"])
    with ExitStack() as stack:
        for _ in range(slow):
            stack.enter_context(closing(connected(site, broker))).sendall(fetch)
        time.sleep(5 * SETTLE_S)
        unread = (resident_bytes(site.pids["through"]) - begin) / 1024 / slow
    return {"kib_per_connection": round(asked, 1), "kib_per_unread_100_mb": round(unread, 1)}


def address_of_broker(site: Site) -> str:
    """The gateway's address for the only broker."""
    with closing(connected(site, site.bootstraps["through"])) as client:
        client.sendall(request(3, 0, struct.pack(">i", 0) + b""))
        answer = received(client)
    size = struct.unpack_from(">h", answer, 12)[0]
    host = answer[14 : 14 + size].decode()
    return f"{host}:{struct.unpack_from('>i', answer, 14 + size)[0]}"


def table(report: dict[str, Any]) -> str:
    medians, lines = report["medians"], ["with TLS and logins:" if report["tls"] else "without TLS:"]
    for what in ("consume", "produce"):
        direct, through = medians[f"{what} direct"], medians[f"{what} through"]
        lines.append(
            f"{what}: {through['mb_s']:.0f} of {direct['mb_s']:.0f} MB/s direct "
            f"({through['mb_s'] / direct['mb_s']:.2f}), {through['cpu_s_per_gb']:.2f} CPU-s per GB"
        )
        if (relay := medians.get(f"{what} relay")) is not None:
            lines.append(
                f"  a relay: {relay['mb_s']:.0f} MB/s, {relay['cpu_s_per_gb']:.2f} CPU-s per GB; the gateway needs "
                f"{through['cpu_s_per_gb'] / relay['cpu_s_per_gb']:.2f} times that"
            )
    for whose in ("broker's", "group's"):
        direct, through = medians[f"{whose} direct"]["p50_us"], medians[f"{whose} through"]["p50_us"]
        lines.append(f"small request, {whose}: p50 {direct:.0f} us direct, {through:.0f} us ({through - direct:+.0f})")
    found = report["memory"]
    lines.append(
        f"memory: {found['kib_per_connection']} KiB a connection, "
        f"{found['kib_per_unread_100_mb']} KiB with an answer of 100 MB that is not read"
    )
    return json.dumps(report["machine"]) + "\n" + "\n".join(lines)


if __name__ == "__main__":
    sys.exit(exit_code(main))
