"""Secrets that pods wait for and that do not exist: a kubelet tells that in Events, which the operator may not read.

Whether there is a Secret shows without a right to read it: a patch of nothing, as a dry run, finds none, or is refused
(`KubeClient.look`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import structlog

from muster_operator.kube.claims import LOOK_EVERY_S
from muster_operator.kube.client import Json, KubeClient, KubeError
from muster_operator.plan.rollout import STARTING
from muster_operator.store.port import ClusterKey, NotFoundError, StoreError
from muster_operator.store.workload import PodInfo

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Known:
    """The pods (uids) that waited when somebody looked, and the text on each that waits in vain."""

    uids: frozenset[str]
    at: float
    texts: dict[str, str]


class MissingSecrets:
    """Remembers the missing Secrets of each cluster. Where all pods have started, nothing is asked."""

    def __init__(self, client: KubeClient, clock: Callable[[], float]) -> None:
        self._client = client
        self._clock = clock
        self._known: dict[ClusterKey, _Known] = {}

    def added(self, key: ClusterKey, pod: PodInfo) -> PodInfo:
        """The pod, with the Secrets that it waits for in its trouble."""
        known = self._known.get(key)
        text = known.texts.get(pod.uid) if known is not None else None
        return replace(pod, trouble=f"{pod.trouble}: {text}") if text and pod.trouble else pod

    def waiting(self) -> tuple[ClusterKey, ...]:
        """The clusters with a pod that has not started."""
        return tuple(self._known)

    def forget(self, key: ClusterKey) -> None:
        """Look anew."""
        self._known.pop(key, None)

    async def look(self, key: ClusterKey, pods: Iterable[Json]) -> bool:
        """Look at the pods of the cluster. A pod is given LOOK_EVERY_S to start, and so long is between two looks.
        Returns whether there is news.
        """
        waiting = {raw["metadata"]["uid"]: raw for raw in pods if _waits(raw)}
        known, now = self._known.get(key), self._clock()
        if not waiting:
            self.forget(key)
            return known is not None and bool(known.texts)
        known = known or _Known(frozenset(waiting), now, {})
        self._known[key] = known
        if now - known.at < LOOK_EVERY_S:
            return False
        texts: dict[str, str] = {}
        for uid in sorted(known.uids & waiting.keys()):
            if missing := [name for name in secrets_of(waiting[uid]) if not await self._is_there(key, name)]:
                texts[uid] = f"Secret {', '.join(missing)} not found"
        self._known[key] = _Known(frozenset(waiting), now, texts)
        return texts != known.texts

    async def _is_there(self, key: ClusterKey, name: str) -> bool:
        """True also if nobody can tell: only what is known to be missing is told."""
        path = f"/api/v1/namespaces/{key.namespace}/secrets/{name}"
        try:
            await self._client.look(path, metadata_only=True)
        except NotFoundError:
            return False
        except StoreError as error:
            # 403: there is one, which is not the operator's to look at.
            if not isinstance(error, KubeError) or error.status != 403:
                log.warning("secret_not_known", key=str(key), secret=name, error=str(error))
        return True


def secrets_of(raw: Json) -> Iterator[str]:
    """Names of the Secrets that a pod cannot start without."""
    for volume in raw["spec"].get("volumes", ()):
        secret = volume.get("secret", {})
        if secret.get("secretName") and not secret.get("optional"):
            yield secret["secretName"]


def _waits(raw: Json) -> bool:
    states = (each.get("state", {}) for each in raw.get("status", {}).get("containerStatuses", ()))
    return any(state.get("waiting", {}).get("reason") in STARTING for state in states)
