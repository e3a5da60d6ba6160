"""The `muster-gateway` process: options, logging, start, orderly end.

Exit codes: 0 ended in order, 1 could not start, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Sequence

import structlog
import uvloop

from muster_coordinator.process.logging import configure_logging
from muster_coordinator.security.exposure import warn_of_plain_ports
from muster_coordinator.security.tls import TlsError
from muster_coordinator.security.watched_file import SecurityFileError
from muster_coordinator.tuning.descriptors import raise_descriptor_limit
from muster_gateway.gateway import Gateway
from muster_gateway.metrics import MetricsPort
from muster_gateway.settings import SETTINGS, GatewaySettings, SettingsError, parse_assignments, parse_settings

logger = structlog.get_logger(__name__)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT; returns the exit code."""
    options = _parser().parse_args(arguments)
    try:
        lines = (line.strip() for line in os.environ.get("MUSTER_GATEWAY_CONFIG", "").splitlines())
        settings = parse_settings(parse_assignments([*filter(None, lines), *options.config]))
    except SettingsError as error:
        print(f"muster-gateway: {error}", file=sys.stderr)
        return 2
    configure_logging(options.log_format)
    raise_descriptor_limit()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(run(settings))


async def run(settings: GatewaySettings) -> int:
    """Runs until a signal comes."""
    try:
        gateway = Gateway(settings)
    except (TlsError, SecurityFileError) as error:
        print(f"muster-gateway: {error}", file=sys.stderr)
        return 1
    try:
        host, port = await gateway.start()
    except OSError as error:
        print(f"muster-gateway: bootstrap.port {settings.bootstrap_port}: {error}", file=sys.stderr)
        return 1
    if not settings.listener_tls_dir:
        warn_of_plain_ports({"kafka": (settings.listen_host, port)})
    metrics = MetricsPort(gateway)
    try:
        if settings.metrics_port:
            await metrics.start(settings.listen_host, settings.metrics_port)
    except OSError as error:
        print(f"muster-gateway: metrics.port {settings.metrics_port}: {error}", file=sys.stderr)
        return 1
    asked_to_end = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, asked_to_end.set)
    running = asyncio.create_task(gateway.run())
    ready = asyncio.create_task(_say_when_ready(gateway, f"{host}:{port}"))
    ended = asyncio.create_task(asked_to_end.wait())
    await asyncio.wait((running, ended), return_when=asyncio.FIRST_COMPLETED)
    ready.cancel()
    await gateway.stop()
    await metrics.stop()
    if running.done():
        running.result()
    running.cancel()
    logger.info("gateway_ended", connections=dict(gateway.ended))
    return 0


async def _say_when_ready(gateway: Gateway, bootstrap: str) -> None:
    logger.info("gateway_listens", bootstrap=bootstrap)
    try:
        await gateway.ready()
    except OSError as error:
        logger.error("cannot_listen", node="ready", port=gateway.settings.ready_port, error=str(error))
        return
    logger.info("gateway_ready", bootstrap=bootstrap)


def _parser() -> argparse.ArgumentParser:
    names = "\n".join(f"  {setting.name} (default: {setting.default!r})" for setting in SETTINGS)
    parser = argparse.ArgumentParser(
        prog="muster-gateway",
        description="A front of a Kafka cluster for unchanged clients, with groups at Muster.",
        epilog="Settings:\n"
        f"{names}\n\ndocs/gateway.md says what they mean. MUSTER_GATEWAY_CONFIG has NAME=VALUE lines as well.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", action="append", default=[], metavar="NAME=VALUE", help="a setting (repeatable)")
    parser.add_argument("--instance", default="", help="what it belongs to, for who looks at the list of processes")
    parser.add_argument("--log-format", choices=["json", "console"], default="json")
    return parser


if __name__ == "__main__":
    sys.exit(main())
