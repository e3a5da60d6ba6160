"""`muster mirror status`. It imports what it needs when it runs."""

from __future__ import annotations

import click

from muster_cli.local.command import DATA_DIR
from muster_cli.local.data_dir import DataDir


@click.group()
def mirror() -> None:
    """The mirror of a Kafka cluster's groups (docs/adopt.md)."""


@mirror.command()
@DATA_DIR
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")
def status(data: DataDir, as_json: bool) -> None:
    """Show how far each partition was read, of an instance of `muster local up`.

    Exit code 1 when nothing runs there, or nothing is mirrored.
    """
    from muster_cli.mirror.status import run_mirror_status

    run_mirror_status(data, as_json=as_json)
