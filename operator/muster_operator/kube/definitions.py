"""The definitions of Muster's resources, compared with those that this operator brings."""

from __future__ import annotations

from muster_operator.api.crds import SCHEMA, fingerprints
from muster_operator.kube.client import KubeClient
from muster_operator.store.port import StoreError

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


async def outdated_definitions(client: KubeClient) -> str:
    """The names of the definitions that are of another version; those that cannot be read are not told of."""
    outdated = []
    for name, schema in fingerprints().items():
        try:
            live = await client.get(f"{DEFINITIONS}/{name}")
        except StoreError:
            continue
        if live["metadata"].get("annotations", {}).get(SCHEMA) != schema:
            outdated.append(f"CustomResourceDefinition {name}")
    return ", ".join(outdated)
