"""Options of all commands that look at clusters: which ones, and where. The command imports nothing heavy for them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from muster_cli.errors import CliUsageError
from muster_cli.local.data_dir import DataDir, default_data_dir

if TYPE_CHECKING:
    from muster_cli.oncall.kubernetes import KubernetesReader
    from muster_cli.oncall.seen import Reader

_F = TypeVar("_F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Where:
    """The clusters of an API server that are asked about, or the instance of this machine that has the data directory
    `embedded`.
    """

    namespace: str
    all_namespaces: bool
    kubeconfig: str
    context: str
    embedded: DataDir | None

    @classmethod
    def of(cls, options: dict[str, Any]) -> Where:
        """Takes its options out of those of a command. Raises CliUsageError."""
        data_dir: Path | None = options.pop("data_dir")
        local: bool = options.pop("local")
        where = cls(
            namespace=options.pop("namespace") or "",
            all_namespaces=options.pop("all_namespaces"),
            kubeconfig=options.pop("kubeconfig") or "",
            context=options.pop("context") or "",
            embedded=DataDir(data_dir or default_data_dir()) if local or data_dir is not None else None,
        )
        named = where.namespace or where.all_namespaces or where.kubeconfig or where.context
        if where.embedded is not None and named:
            raise CliUsageError("--local and --data-dir name an instance of this machine, the other options Kubernetes")
        if where.namespace and where.all_namespaces:
            raise CliUsageError("give one of --namespace and --all-namespaces")
        return where

    @asynccontextmanager
    async def reader(self, name: str) -> AsyncIterator[Reader]:
        """`name`: of a cluster, "" for all. Raises Unreachable."""
        if self.embedded is not None:
            from muster_cli.oncall.embedded import EmbeddedReader

            yield EmbeddedReader(self.embedded)
            return
        async with self.kubernetes(name) as reader:
            yield reader

    @asynccontextmanager
    async def kubernetes(self, name: str) -> AsyncIterator[KubernetesReader]:
        """Likewise, for what only Kubernetes has. Raises CliUsageError as well."""
        if self.embedded is not None:
            raise CliUsageError("this command looks at Kubernetes only")
        from muster_cli.oncall.kubernetes import kubernetes_reader

        async with kubernetes_reader(
            kubeconfig=self.kubeconfig,
            context=self.context,
            namespace=self.namespace,
            all_namespaces=self.all_namespaces,
            name=name,
        ) as reader:
            yield reader


def where_options(command: _F) -> _F:
    """Adds the options that `Where.of` takes."""
    for option in reversed(
        (
            click.option("-n", "--namespace", metavar="NAME", help="Namespace; default: that of the context."),
            click.option("-A", "--all-namespaces", is_flag=True, help="All namespaces."),
            click.option("--kubeconfig", metavar="FILE", help="Default: $KUBECONFIG, or ~/.kube/config."),
            click.option("--context", metavar="NAME", help="Context of the kubeconfig."),
            click.option("--local", is_flag=True, help="The instance that `muster local up` runs on this machine."),
            click.option(
                "--data-dir",
                metavar="DIR",
                type=click.Path(file_okay=False, path_type=Path),
                help="Likewise, on this data directory.",
            ),
        )
    ):
        command = option(command)
    return command
