"""The nodes of pods: zone, cordon and readiness. They are read and not watched: the right to watch all nodes is not
needed for the few that have pods."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from dataclasses import replace

import structlog

from muster_operator.kube.client import KubeClient
from muster_operator.kube.pod_info import Node, node_of
from muster_operator.store.port import NotFoundError, StoreError

log = structlog.get_logger(__name__)


class Nodes:
    """The nodes as they were read last, by name. Without the right to read them the operator spreads replicas over
    nodes but not over zones, moves leaders when pods are evicted, and relies on the other pods alone to find out that
    a pod is dead."""

    def __init__(self, client: KubeClient) -> None:
        self.known: dict[str, Node] = {}
        self._client = client
        self._unreadable: set[str] = set()

    async def learn(self, names: Collection[str], *, known_too: bool) -> AsyncIterator[tuple[str, bool]]:
        """Read these nodes, and forget all others. `known_too`: not only those that are not known yet. Yields the name
        of each that has changed, and whether it was known before."""
        for name in sorted(names):
            known = self.known.get(name)
            if known is not None and not known_too:
                continue
            self.known[name] = now = await self._read(name, known or Node())
            if now == known:
                continue
            if known is not None:
                log.info("node_changed", node=name, cordoned=now.cordoned, lost=now.lost)
            yield name, known is not None
        self.known = {name: node for name, node in self.known.items() if name in names}

    async def _read(self, name: str, known: Node) -> Node:
        """The node, or what was known of it if it cannot be read, which is logged once until it works again."""
        try:
            raw = await self._client.get(f"/api/v1/nodes/{name}?resourceVersion=0")
        except NotFoundError:
            return replace(known, lost=True)
        except StoreError as error:
            if name not in self._unreadable:
                log.warning("node_not_known", node=name, error=str(error))
            self._unreadable.add(name)
            return known
        self._unreadable.discard(name)
        return node_of(raw)
