"""`muster ui`. It imports what it needs when it runs."""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path
from typing import Any

import click

from muster_cli.errors import CliError, CliUsageError
from muster_cli.oncall.command import kafka_options
from muster_cli.oncall.options import Where, where_options

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
TOKEN_BYTES = 32


def _new_line(context: click.Context, parameter: click.Parameter, name: str | None) -> None:
    """Print a line of a login file, and end."""
    if not name or context.resilient_parsing:
        return
    from muster_cli.ui.login import password_line, token_line

    if ":" in name or name.startswith("#") or name != name.strip() or not name.isprintable():
        raise CliUsageError("a name has no colon, no # at its start, and no space at its ends")
    if parameter.name == "new_password":
        password = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
        click.echo(password_line(name, password))
    else:
        token = secrets.token_urlsafe(TOKEN_BYTES)
        click.echo(f"the token of {name}, which is shown only now: {token}", err=True)
        click.echo(token_line(name, token))
    context.exit()


@click.command()
@click.argument("cluster", metavar="[CLUSTER]", default="")
@where_options
@kafka_options
@click.option("--lag-from", metavar="HOST:PORT,...", default="", help="The Kafka cluster that has the data, for lag.")
@click.option("--listen", metavar="HOST", default="127.0.0.1", help="Other than loopback it takes a --login-file.")
@click.option("--port", type=click.IntRange(0, 65535), default=9650, help="0: a free one.")
@click.option("--login-file", metavar="FILE", type=_FILE, help="Who may see the pages; without it anybody here may.")
@click.option("--tls-cert", metavar="FILE", type=_FILE, help="Certificate for HTTPS, with its chain.")
@click.option("--tls-key", metavar="FILE", type=_FILE, help="Its key.")
@click.option(
    "--interval", type=click.FloatRange(0.2, 3600), default=2.0, help="Seconds between two looks of an open page."
)
@click.option(
    "--new-password",
    metavar="NAME",
    callback=_new_line,
    expose_value=False,
    is_eager=True,
    help="Ask for a password, print a line of a login file, and end.",
)
@click.option(
    "--new-token",
    metavar="NAME",
    callback=_new_line,
    expose_value=False,
    is_eager=True,
    help="Make a token for programs, print a line of a login file, and end.",
)
def ui(
    cluster: str,
    bootstrap_server: str,
    listener: str,
    client_config: Path | None,
    lag_from: str,
    listen: str,
    port: int,
    login_file: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    interval: float,
    **options: Any,
) -> None:
    """Serve pages of clusters, groups, failovers, transactions, mirror and gateway, which only read.

    On this machine for this machine, or behind a login elsewhere (docs/ui.md). Exit codes: 0 stopped as asked, 1 it
    cannot listen or a file cannot be used, 2 wrong usage or no way to an API server.
    """
    try:
        from muster_cli.ui.serve import Door, run_ui
    except ModuleNotFoundError as error:
        raise CliError(f"{error.name} is missing: pip install 'muster[cli]'") from error
    from muster_cli.oncall.asking import Brokers

    brokers = Brokers(Where.of(options), cluster, bootstrap_server, listener, client_config)
    asyncio.run(run_ui(brokers, lag_from, Door(listen, port, login_file, tls_cert, tls_key), interval))
