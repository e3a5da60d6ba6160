"""Ports of the gateway of `muster local up`."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster_cli.errors import CliError
from muster_cli.local.data_dir import DataDir
from muster_cli.local.front import FrontOptions, LocalGateway
from muster_cli.local.ports import free_ports


def gateway(folder: Path, port: int, taken: frozenset[int]) -> LocalGateway:
    options = FrontOptions("127.0.0.1:9092", "", port, mirrored=False)
    nobody = "127.0.0.1:9093"
    return LocalGateway(DataDir(folder), options, nobody, taken, changed=lambda: None, report=lambda _line: None)


def test_gateway_takes_no_port_that_a_pod_will_listen_at(tmp_path: Path) -> None:
    with pytest.raises(CliError, match="free ports"):
        gateway(tmp_path, 0, frozenset(range(65_536)))
    (port,) = free_ports(1)
    with pytest.raises(CliError, match=f"port {port} is already in use"):
        gateway(tmp_path, port, frozenset({port}))
