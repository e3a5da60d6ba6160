"""Custom resources as the API server knows them: paths, decoding, and the bodies of status writes."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from muster_operator.api.models import (
    GROUP,
    VERSION,
    ObjectMeta,
    OffsetsPartition,
    OffsetsTopic,
    Resource,
    partition_object_name,
)
from muster_operator.kube.cache import Name

API_VERSION = f"{GROUP}/{VERSION}"

PARTITION_LABEL = f"{GROUP}/topic"
"""The label with the name of a topic on everything that is created for it."""
PART_OF = {"app.kubernetes.io/part-of": "muster"}

T = TypeVar("T", bound=Resource)


def collection_path(resource: type[T], namespace: str | None = None) -> str:
    """Path of all objects of a kind, in one namespace or in all."""
    scope = f"/namespaces/{namespace}" if namespace else ""
    return f"/apis/{API_VERSION}{scope}/{resource.plural}"


def object_path(resource: type[T], namespace: str, name: str) -> str:
    """Path of one object."""
    return f"{collection_path(resource, namespace)}/{name}"


def status_path(resource: type[T], namespace: str, name: str) -> str:
    """Path of its status subresource."""
    return f"{object_path(resource, namespace, name)}/status"


def decode(resource: type[T], raw: dict[str, Any]) -> T:
    """The typed object; msgspec.ValidationError (names the field) if it breaks the models' constraints."""
    return msgspec.convert(raw, resource)


def identity(raw: dict[str, Any]) -> tuple[Name, str]:
    """((namespace, name), resourceVersion) of an object as the API server sends it."""
    meta = raw["metadata"]
    return (meta["namespace"], meta["name"]), meta["resourceVersion"]


def status_body(resource: type[T], meta: ObjectMeta, status: msgspec.Struct, *, swap: bool) -> dict[str, Any]:
    """Body of a status write; with `swap` it holds only if the object still has this resourceVersion.

    The uid goes along in either case: an object that was deleted and created anew is another object.
    """
    metadata = {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid}
    if swap:
        metadata["resourceVersion"] = meta.resource_version
    return {
        "apiVersion": API_VERSION,
        "kind": resource.__name__,
        "metadata": metadata,
        "status": msgspec.to_builtins(status),
    }


def owned_by(owner: Resource) -> dict[str, Any]:
    """The ownerReference of what is deleted with a resource."""
    return {
        "apiVersion": API_VERSION,
        "kind": type(owner).__name__,
        "name": owner.metadata.name,
        "uid": owner.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }


def new_partition(topic: OffsetsTopic, index: int) -> dict[str, Any]:
    """The OffsetsPartition of a topic: owned by it, so that it is deleted with it."""
    return {
        "apiVersion": API_VERSION,
        "kind": OffsetsPartition.__name__,
        "metadata": {
            "name": partition_object_name(topic.metadata.name, index),
            "namespace": topic.metadata.namespace,
            "labels": {PARTITION_LABEL: topic.metadata.name, **PART_OF},
            "ownerReferences": [owned_by(topic)],
        },
        "spec": {"topicRef": {"name": topic.metadata.name}, "index": index},
    }
