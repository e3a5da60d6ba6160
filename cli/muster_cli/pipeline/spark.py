"""The Spark session of a command, and its errors in words that a person can act on."""

from __future__ import annotations

import logging
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

import click

from muster_cli.errors import CliError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INTERRUPTED = 130
"""Exit code after Ctrl-C, by the rule of shells: 128 + SIGINT."""

master_option = click.option("--master", default="local[2]", help="Spark's master.")


@contextmanager
def spark(master: str) -> Iterator[SparkSession]:
    """A session that is stopped in the end, except after Ctrl-C: then the JVM ends by itself with this process."""
    from muster_pipeline.source.session import check_java, spark_session

    check_java()
    click.echo("Spark starts ...", err=True)
    session = spark_session(master)
    # PySpark's own handler cancels jobs over the connection that waits for a job, and fails with stack traces.
    signal.signal(signal.SIGINT, _interrupt)
    try:
        yield session
    except KeyboardInterrupt:
        raise
    except BaseException:
        session.stop()
        raise
    session.stop()


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt without the stack traces that py4j would log."""
    logging.disable()
    raise KeyboardInterrupt


@contextmanager
def clear_errors(interrupted: str = "") -> Iterator[None]:
    """Turn errors of the pipeline into CliError, also those that Spark wraps in pages of stack traces.

    `interrupted`: what to print after Ctrl-C about the state of the output.
    """
    try:
        from muster_pipeline.decode.errors import PipelineError
    except ImportError as exc:
        raise CliError(f"{exc.name} is missing: pip install 'muster[pipeline]'") from exc
    try:
        yield
    except KeyboardInterrupt:
        click.echo(f"Interrupted. {interrupted}".rstrip(), err=True)
        raise click.exceptions.Exit(INTERRUPTED) from None
    except (PipelineError, click.ClickException) as exc:
        raise exc if isinstance(exc, click.ClickException) else CliError(str(exc)) from exc
    except ImportError as exc:
        raise CliError(f"{exc.name} is missing: pip install 'muster[pipeline]'") from exc
    except OSError as exc:
        raise CliError(f"{exc.filename or 'this machine'}: {exc.strerror or exc}") from exc
    except Exception as exc:
        reason = _spark_reason(exc)
        if reason is None:
            raise
        raise CliError(reason) from exc


def _spark_reason(exc: Exception) -> str | None:
    """The message of a failed task, or of Spark itself, in one line; None for other errors."""
    ours = re.search(r"muster_pipeline\.[\w.]+Error: (.*)", str(exc))
    if ours is not None:
        return ours[1]
    if not type(exc).__module__.startswith(("pyspark.", "py4j.")):
        return None
    causes = re.findall(r"^Caused by: ([\w.$]+: .*)$", str(exc), re.MULTILINE)
    return f"Spark: {causes[-1] if causes else str(exc).strip().splitlines()[0]}"
