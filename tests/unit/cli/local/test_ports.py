from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from muster_cli.errors import CliError
from muster_cli.local.ports import LOOPBACK, consecutive_ports, free_ports, is_free


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.socket() as held:
        held.bind((LOOPBACK, free_ports(1)[0]))
        held.listen(1)
        yield held


def test_port_with_a_listener_is_not_free(listener: socket.socket) -> None:
    assert not is_free(listener.getsockname()[1])


def test_consecutive_ports_name_the_port_that_is_taken(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    with pytest.raises(CliError, match=rf"already in use.*{port}.*--base-port"):
        consecutive_ports(port - 1, 3)


def test_consecutive_ports_past_the_last_one_are_refused() -> None:
    with pytest.raises(CliError, match="65535 is the last"):
        consecutive_ports(65_534, 3)


def test_free_ports_are_distinct_and_can_be_listened_on() -> None:
    ports = free_ports(6)
    assert len(set(ports)) == 6
    assert all(is_free(port) for port in ports)


def test_free_ports_stay_out_of_what_is_to_be_avoided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("muster_cli.local.ports._ephemeral_low", lambda: 10_021)
    avoided = frozenset(range(10_000, 10_011))
    assert all(10_011 <= port < 10_021 for port in free_ports(2, avoided))
