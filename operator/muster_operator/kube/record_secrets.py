"""Secrets with the records that operators keep, one for all of a namespace: written by compare-and-swap, so that
the second writer reads what the first has made. They belong to no cluster, and go with their namespace."""

from __future__ import annotations

import base64
from collections.abc import Mapping

import msgspec

from muster_operator.kube.client import Json, KubeClient
from muster_operator.kube.objects import PART_OF
from muster_operator.store.port import NotFoundError

ATTEMPTS = 5
"""Compare-and-swaps in a row; every one that is lost was won by another operator, or is about another record."""
LABELS = {**PART_OF, "app.kubernetes.io/managed-by": "muster-operator"}


def secrets_path(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/secrets"


def encoded(record: msgspec.Struct) -> str:
    return base64.b64encode(msgspec.msgpack.encode(record)).decode()


async def read_secret(client: KubeClient, namespace: str, name: str) -> Json | None:
    """None: there is none. Raises StoreError."""
    try:
        return await client.get(f"{secrets_path(namespace)}/{name}")
    except NotFoundError:
        return None


async def swap_secret(
    client: KubeClient, namespace: str, name: str, present: Json | None, data: Mapping[str, str]
) -> Json:
    """Have `data` in place of what was read, and return what is stored. Raises ConflictError, StoreError."""
    if present is not None:
        return await client.replace(f"{secrets_path(namespace)}/{name}", {**present, "data": data})
    metadata = {"name": name, "namespace": namespace, "labels": LABELS}
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "data": data}
    return await client.create(secrets_path(namespace), body)
