"""The names and certificates of the pods of an embedded instance with TLS (`muster local up --tls`)."""

from __future__ import annotations

from functools import partial

from muster_cli.errors import CliError
from muster_cli.local.data_dir import DataDir, RunRecord
from muster_coordinator.security.roles import Role, only
from muster_coordinator.security.tls import Tls, TlsError, TlsFiles, client_context

CLUSTER_NAME = "local/muster"
"""Namespace and name of an embedded cluster, which its certificates carry."""


def member_tls(data: DataDir, role: Role) -> Tls:
    """TLS for calls of the instance's pods with the certificate of `role`. Raises TlsError."""
    check = only(CLUSTER_NAME, (Role.POD,))
    return Tls(TlsFiles.of(data.certificates / role.value), partial(client_context, check=check))


def tls_of(data: DataDir, record: RunRecord, role: Role) -> Tls | None:
    """None: the pods of this run are plain. Raises CliError."""
    try:
        return member_tls(data, role) if record.tls else None
    except TlsError as error:
        raise CliError(f"the certificate of the {role} cannot be used: {error}") from error
