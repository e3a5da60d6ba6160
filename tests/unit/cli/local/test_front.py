"""Ports of the gateway of `muster local up`."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster_cli.errors import CliError
from muster_cli.local.data_dir import DataDir
from muster_cli.local.front import FrontOptions, LocalGateway, Pods
from muster_cli.local.ports import free_ports
from muster_gateway.settings import parse_settings


def gateway(folder: Path, port: int, taken: frozenset[int]) -> LocalGateway:
    options = FrontOptions("127.0.0.1:9092", "", port, mirrored=False)
    nobody = Pods("127.0.0.1:9093", "127.0.0.1:9640")
    return LocalGateway(DataDir(folder), options, nobody, taken, changed=lambda: None, report=lambda _line: None)


def test_gateway_takes_no_port_that_a_pod_will_listen_at(tmp_path: Path) -> None:
    with pytest.raises(CliError, match="free ports"):
        gateway(tmp_path, 0, frozenset(range(65_536)))
    (port,) = free_ports(1)
    with pytest.raises(CliError, match=f"port {port} is already in use"):
        gateway(tmp_path, port, frozenset({port}))


def test_gateway_learns_from_the_apis_of_pods_where_movable_groups_are(tmp_path: Path) -> None:
    pods = Pods("127.0.0.1:9093", "127.0.0.1:9640,127.0.0.1:9641", tmp_path / "reader")
    options = FrontOptions("127.0.0.1:9092", "a-", 9200, mirrored=True, movable="b-,c-")
    found = parse_settings(options.settings(pods, 9200))
    assert (found.movable, found.api) == ("b-,c-", "127.0.0.1:9640,127.0.0.1:9641")
    assert found.api_tls_dir == str(tmp_path / "reader")
    settled = parse_settings(FrontOptions("127.0.0.1:9092", "a-", 9200, mirrored=True).settings(pods, 9200))
    assert (settled.movable, settled.api, settled.api_tls_dir) == ("", "", "")
