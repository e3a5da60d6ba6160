"""Runs the server of the pages until it is interrupted."""

from __future__ import annotations

import asyncio
import signal
import ssl
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click
from aiohttp import web

from muster_cli.errors import CliError, CliUsageError
from muster_cli.oncall.asking import Brokers
from muster_cli.oncall.kafka import read_properties
from muster_cli.ui.app import Application, is_this_machine
from muster_cli.ui.login import Doorkeeper
from muster_cli.ui.source import source_of
from muster_cli.ui.transactions import KafkaLedger
from muster_cli.ui.views import Views

STOP_S = 1.0
"""Seconds that an answer may still take when it ends."""


@dataclass(frozen=True)
class Door:
    """The address of the pages, and who may come in. `port`: 0 for a free one. `certificate`, `key`: for HTTPS, or
    None.
    """

    host: str
    port: int
    login_file: Path | None
    certificate: Path | None
    key: Path | None

    def check(self) -> None:
        """Raises CliUsageError."""
        if self.login_file is None and not is_this_machine(self.host):
            raise CliUsageError(
                f"--listen {self.host} is not loopback: others could read names of groups and clients. Give a"
                " --login-file; `muster ui --new-password NAME` makes a line of it"
            )
        if (self.certificate is None) != (self.key is None):
            raise CliUsageError("give both of --tls-cert and --tls-key")

    def tls(self) -> ssl.SSLContext | None:
        """Raises CliError."""
        if self.certificate is None:
            return None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            context.load_cert_chain(self.certificate, self.key)
        except (OSError, ssl.SSLError) as error:
            raise CliError(f"cannot use {self.certificate} with {self.key}: {error}") from error
        return context


async def run_ui(brokers: Brokers, lag_from: str, door: Door, interval_s: float) -> None:
    """Say the address, and serve until SIGINT or SIGTERM. Raises CliError, CliUsageError, Unreachable."""
    door.check()
    doorkeeper = Doorkeeper(door.login_file) if door.login_file is not None else None
    tls, properties = door.tls(), read_properties(brokers.client_config)
    interrupted = _interruption()
    async with source_of(brokers.where, brokers.cluster) as source:
        views = Views(source, brokers, lag_from, interval_s, partial(KafkaLedger, properties=properties))
        app = Application(views, doorkeeper, interval_s).made()
        runner = web.AppRunner(app, access_log=None, handle_signals=False)
        await runner.setup()
        try:
            site = web.TCPSite(runner, door.host, door.port, ssl_context=tls, shutdown_timeout=STOP_S)
            try:
                await site.start()
            except OSError as error:
                raise CliError(f"cannot listen at {door.host} port {door.port}: {error.strerror or error}") from error
            click.echo(f"{_address(runner, door)}   {source.name}, Ctrl-C ends it")
            if doorkeeper is not None and tls is None and not is_this_machine(door.host):
                click.echo("warning: logins pass in the clear without --tls-cert, unless a proxy adds TLS", err=True)
            await interrupted.wait()
        finally:
            await runner.cleanup()


def _address(runner: web.AppRunner, door: Door) -> str:
    port = runner.addresses[0][1]
    host = f"[{door.host}]" if ":" in door.host else door.host
    return f"{'https' if door.certificate is not None else 'http'}://{host}:{port}/"


def _interruption() -> asyncio.Event:
    """Set at SIGINT or SIGTERM, from now on."""
    loop, interrupted = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, interrupted.set)
    return interrupted
