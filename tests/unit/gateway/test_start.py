"""What a gateway knows before the first client can connect."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs
from tests.support.lease_api import PARTITIONS, PodApi
from tests.support.pod import free_ports
from tests.unit.gateway.servers import Server

from muster_gateway.gateway import Gateway
from muster_gateway.main import run
from muster_gateway.settings import parse_settings


async def refuse(*_: Any) -> bytes:
    raise AssertionError("nobody asks")


def settings(muster: int) -> dict[str, str]:
    return {
        "upstream.bootstrap.servers": f"127.0.0.1:{free_ports(1)[0]}",
        "listen.host": "127.0.0.1",
        "bootstrap.port": "0",
        "pod.port.base": "0",
        "muster.bootstrap.servers": f"127.0.0.1:{muster}",
        "muster.groups": "m-",
    }


async def test_the_pods_are_known_when_the_first_client_connects() -> None:
    async with Server(7, refuse) as pod:
        gateway = Gateway(parse_settings(settings(pod.port)))
        async with asyncio.timeout(20):
            await gateway.start()
        assert [each.node_id for each in gateway.nodes.shown_pods()] == [1_000_007]
        await gateway.stop()


async def test_leases_are_asked_for_at_the_hosts_of_the_pods() -> None:
    async with Server(7, refuse) as pod, PodApi().listening() as api:
        movable = {
            "muster.movable.groups": "k-",
            "muster.api.port": str(api.port),
            "muster.transactions": "1",
        }
        gateway = Gateway(parse_settings({**settings(pod.port), **movable}))
        async with asyncio.timeout(60):
            await gateway.start()
            running = asyncio.create_task(gateway.run())
            assert gateway.moves is not None
            while gateway.moves.held < PARTITIONS:
                assert not running.done()
                await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.wait((running,))
        await gateway.stop()


async def test_clients_can_connect_though_muster_does_not_answer() -> None:
    gateway = Gateway(parse_settings(settings(free_ports(1)[0])))
    async with asyncio.timeout(20):
        _, port = await gateway.start()
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.close()
    assert gateway.nodes.shown_pods() == []
    await gateway.stop()


@pytest.mark.parametrize(("host", "told"), [("0.0.0.0", True), ("127.0.0.1", False)])
async def test_plain_port_of_all_addresses_is_told(host: str, told: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    values = {**settings(0), "muster.bootstrap.servers": "", "muster.groups": "", "listen.host": host}
    with capture_logs() as logs:
        running = asyncio.create_task(run(parse_settings(values)))
        async with asyncio.timeout(20):
            while not any(line["event"] == "gateway_listens" for line in logs):
                assert not running.done()
                await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.wait((running,))
    lines = [line for line in logs if line["event"] == "plain_on_all_addresses"]
    assert [line["log_level"] for line in lines] == ["warning"] * told


LOGINS = {
    f"{cluster}.{name}": value
    for cluster in ("upstream", "muster")
    for name, value in (("security.protocol", "SASL_PLAINTEXT"), ("sasl.mechanism", "SCRAM-SHA-512"))
}


@pytest.mark.parametrize(
    ("more", "shared"),
    [
        (LOGINS, True),
        (LOGINS | {"muster.act.for.clients": "1"}, False),
        (LOGINS | {"muster.groups": ""}, False),
        ({}, False),  # nobody has a name
    ],
)
async def test_clients_that_have_names_and_are_one_user_at_muster_are_told_at_the_start(
    tmp_path: Path, more: dict[str, str], shared: bool
) -> None:
    for name in ("username", "password"):
        (tmp_path / name).write_text("gateway")
    accounts = {name.replace("mechanism", "dir"): str(tmp_path) for name in more if name.endswith("mechanism")}
    gateway = Gateway(parse_settings(settings(free_ports(1)[0]) | more | accounts))
    with capture_logs() as logs:
        await gateway.start()
    await gateway.stop()
    assert any(each["event"] == "clients_share_user" for each in logs) == shared
