"""Declares what a command asks for, and follows the operator until it is done."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

import click
import msgspec

from muster_cli.drive.deed import Change, Deed, Progress
from muster_cli.errors import CliError, CliUsageError
from muster_cli.oncall.kubernetes import KubernetesReader
from muster_cli.oncall.options import Where
from muster_cli.oncall.seen import Seen, Unreachable
from muster_cli.progress import amounts
from muster_operator.kube.objects import object_path
from muster_operator.store.port import StoreError

DONE, NOT_DONE, INTERRUPTED = 0, 1, 130
"""Exit codes."""
LOOK_EVERY_S = 0.5
MANAGER = "kubectl-muster"
"""The field manager of what a person declares."""


@dataclass(frozen=True)
class How:
    """`timeout_s`: how long it is followed; 0: not at all. `yes`: the question is answered already."""

    dry_run: bool
    timeout_s: float
    as_json: bool
    yes: bool = False


class Result(msgspec.Struct, frozen=True):
    """The object that `--json` prints. Its names stay compatible. `changes`: by object, what was set in its spec."""

    namespace: str
    cluster: str
    told: str
    changes: dict[str, object]
    dry_run: bool
    done: bool
    waits_for: str
    seconds: float
    undo: str


async def carry_out(where: Where, cluster: str, make: Callable[[Seen, float], Deed], how: How) -> int:
    """The exit code. Raises Unreachable, Refused, CliUsageError, CliError."""
    if where.all_namespaces:
        raise CliUsageError("this command acts on one cluster: give --namespace, not --all-namespaces")
    async with where.kubernetes(cluster) as reader:
        seen = await _the_one(reader)
        deed = make(seen, time.time())
        if not how.as_json:
            click.echo(deed.told)
        _ask(deed, how)
        began = time.monotonic()
        code, progress = DONE, deed.progress(seen)
        try:
            for change in deed.changes:
                await _declare(reader, change, dry_run=how.dry_run)
            if not how.dry_run and how.timeout_s > 0:
                code, progress = await _follow(reader, deed, how.timeout_s)
        except asyncio.CancelledError:
            code, progress = INTERRUPTED, Progress(0, 1, "it was being declared, and may be or not")
        _tell(seen, deed, how, code, progress, time.monotonic() - began)
        return code


async def _the_one(reader: KubernetesReader) -> Seen:
    clusters = await reader.look()
    if len(clusters) != 1:
        names = ", ".join(each.cluster.metadata.name for each in clusters) or "none"
        raise CliUsageError(f"name the cluster; there are: {names}")
    return clusters[0]


def _ask(deed: Deed, how: How) -> None:
    """Raises CliUsageError if nobody can be asked, and CliError if the answer is no."""
    if not deed.question or how.dry_run or how.yes or not deed.changes:
        return
    if not sys.stdin.isatty():
        raise CliUsageError(f"{deed.told} Nobody can be asked here: say --yes if that is meant")
    if not click.confirm(deed.question, err=True):
        raise CliError("nothing was changed")


async def _declare(reader: KubernetesReader, change: Change, *, dry_run: bool) -> None:
    """Raises CliError."""
    meta = change.of.metadata
    path = object_path(type(change.of), meta.namespace, meta.name)
    try:
        await reader.client.merge(path, {"spec": dict(change.spec)}, manager=MANAGER, dry_run=dry_run)
    except StoreError as error:
        raise CliError(f"{type(change.of).__name__} {meta.name} was not changed: {error}") from error


async def _follow(reader: KubernetesReader, deed: Deed, timeout_s: float) -> tuple[int, Progress]:
    """Waits until it is done, for `timeout_s` seconds, or until Ctrl-C. An API server that does not answer is waited
    for.
    """
    ends = time.monotonic() + timeout_s
    last = Progress(0, 1, "the first look")
    with ExitStack() as shown:
        show = shown.enter_context(amounts())
        while True:
            try:
                last = deed.progress(await _the_one(reader))
                show("waits for the operator", last.done, last.total)
            except Unreachable as error:
                last = Progress(last.done, last.total, error.message)
            except asyncio.CancelledError:
                return INTERRUPTED, last
            if last.is_done:
                return DONE, last
            if time.monotonic() > ends:
                return NOT_DONE, last
            try:
                await asyncio.sleep(LOOK_EVERY_S)
            except asyncio.CancelledError:
                return INTERRUPTED, last


def _tell(seen: Seen, deed: Deed, how: How, code: int, progress: Progress, seconds: float) -> None:
    meta, waited = seen.cluster.metadata, how.timeout_s > 0 and not how.dry_run
    if how.as_json:
        result = Result(
            namespace=meta.namespace,
            cluster=meta.name,
            told=deed.told,
            changes={f"{type(each.of).__name__}/{each.of.metadata.name}": dict(each.spec) for each in deed.changes},
            dry_run=how.dry_run,
            done=progress.is_done,
            waits_for="" if progress.is_done else progress.text,
            seconds=round(seconds, 1),
            undo=deed.undo,
        )
        click.echo(msgspec.json.encode(result))
    elif how.dry_run:
        click.echo("Nothing was changed: the API server has checked it, and would take it.")
    elif progress.is_done and waited:
        click.echo(f"Done after {seconds:.1f} s.")
    if how.as_json or not waited:
        return
    if code != DONE:
        stopped = "Interrupted" if code == INTERRUPTED else f"Not done after {seconds:.0f} s"
        click.echo(f"{stopped}: {progress.text}. What is declared stays, and the operator goes on.", err=True)
    if deed.undo:
        click.echo(f"To take it back: {deed.undo}", err=True)
