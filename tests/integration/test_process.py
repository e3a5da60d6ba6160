"""The `muster-coordinator` process: what it refuses to start with, and how it ends."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.kafka import KafkaClient
from tests.support.pod import SoloPod, free_ports

pytestmark = pytest.mark.integration


def pod_options(data_dir: Path, kafka_port: int, api_port: int, peer_port: int) -> list[str]:
    ports = {"--kafka-listen": kafka_port, "--api-listen": api_port, "--peer-listen": peer_port}
    listen = [word for option, port in ports.items() for word in (option, f"127.0.0.1:{port}")]
    return ["--pod", "pod-0", "--data-dir", str(data_dir), *listen]


def coordinator(*arguments: str, python: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *python, "-m", "muster_coordinator.process.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "--pod is needed"),
        (("--pod", "pod-0"), "--data-dir is needed"),
        (("--pod", "pod", "--data-dir", "d"), "--node-id is needed"),
        (("--pod", "pod-0", "--data-dir", "d", "--kafka-listen", "9092"), "--kafka-listen '9092' is not of the form"),
        (("--pod", "pod-0", "--data-dir", "d", "--config", "group.max.sise=1"), "did you mean group.max.size?"),
        (("--pod", "pod-0", "--data-dir", "d", "--config", "group.max.size"), "NAME=VALUE"),
        (("--pod", "pod-0", "--data-dir", "d", "--listener", "outside"), "--listener 'outside' is not of the form"),
        (("--pod", "pod-0", "--data-dir", "d", *["--listener=a=h:1"] * 2), "a name of its own"),
        (("--pod", "pod-0", "--data-dir", "d", "--listener", "a=9094"), "--listener a '9094' is not of the form"),
    ],
)
def test_wrong_usage_exits_with_2_and_names_the_option(arguments: tuple[str, ...], message: str) -> None:
    ended = coordinator(*arguments)
    assert ended.returncode == 2
    assert message in ended.stderr


def test_optimised_python_is_refused_because_assertions_guard_invariants() -> None:
    ended = coordinator("--help", python=("-O",))
    assert ended.returncode == 2
    assert "-O" in ended.stderr


async def test_plain_port_of_all_addresses_is_told_where_a_pod_was_started_by_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def told(pod: SoloPod) -> list[object]:
        lines = [json.loads(line) for line in pod.log().splitlines() if line.startswith("{")]
        return [each["ports"] for each in lines if each["event"] == "plain_on_all_addresses"]

    everywhere = ["--peer-listen", "0.0.0.0:0"]
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    async with SoloPod(tmp_path / "a" / "data", options=everywhere) as pod:
        assert told(pod) == [{"peers": 0}]
        assert pod.data_dir.stat().st_mode & 0o777 == pod.segment().parent.stat().st_mode & 0o777 == 0o700
    async with SoloPod(tmp_path / "b" / "data") as pod:
        assert told(pod) == [], "loopback is nobody else's"
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    async with SoloPod(tmp_path / "c" / "data", options=everywhere) as pod:
        assert told(pod) == []


def test_port_in_use_is_named_and_exits_with_1(tmp_path: Path) -> None:
    api_port, peer_port = free_ports(2)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ended = coordinator(*pod_options(tmp_path / "data", port, api_port, peer_port))
    assert ended.returncode == 1
    assert str(port) in ended.stderr


async def test_second_process_on_one_data_directory_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    async with SoloPod(tmp_path / "data") as pod:
        ended = coordinator(*pod_options(tmp_path / "data", *free_ports(3)))
        assert ended.returncode == 1
        assert pod.process is not None
        assert f"in use by another coordinator (pid {pod.process.pid}" in ended.stderr
        client = await pod.client()
        assert await client.commit("g", 1) == 0
        await client.close()


async def test_sigterm_ends_in_order_and_keeps_every_commit(tmp_path: Path) -> None:
    async with SoloPod(tmp_path / "data") as pod:
        client = await KafkaClient.connect(pod.kafka_port)
        for offset in range(10):
            assert await client.commit("g", offset) == 0
        await client.close()
        assert pod.terminate() == 0
        await pod.start(elect=False)
        pod.epoch += 1  # the drain promised the next epoch to nobody
        await pod.elect_all()
        client = await pod.client()
        assert await client.fetch("g") == (9, 0)
        await client.close()


async def test_sigint_ends_in_order_too(tmp_path: Path) -> None:
    async with SoloPod(tmp_path / "data") as pod:
        assert pod._end(signal.SIGINT) == 0
