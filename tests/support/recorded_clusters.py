"""Objects of a cluster as an API server had them, recorded while an operator process acted on a `FakeKubernetes`.

`healthy`: three pods, four partitions. `pod_lost`: five seconds after the death of pod orders-0. `majority_lost`: eight
seconds after that of orders-1 as well.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import Any, cast

from tests.simulation.operating.objects import Target, labels_match

from muster_operator.kube.client import Json, KubeClient, KubeError
from muster_operator.store.port import NotFoundError

RECORDED = Path(__file__).parents[1] / "unit" / "cli" / "oncall" / "recorded"
NAMESPACE, CLUSTER = "shop", "orders"


@cache
def _file(name: str) -> Json:
    return cast(Json, json.loads((RECORDED / f"{name}.json").read_text()))


def recorded(name: str) -> Json:
    """A copy, which may be changed, of the recorded objects by plural; `now`: their time in seconds since 1970."""
    return copy.deepcopy(_file(name))


class RecordedServer:
    """Answers reads with objects. `refused`: plurals that may not be read. `asked`: what was, as (plural, verb)."""

    def __init__(self, objects: Json, refused: Collection[str] = ()) -> None:
        self.objects = objects
        self.refused = refused
        self.asked: set[tuple[str, str]] = set()
        self.texts: dict[str, str] = {}
        """The answers of `get_text`, by path."""

    @property
    def client(self) -> KubeClient:
        return cast(KubeClient, self)

    async def list_all(self, path: str, *, label_selector: str = "") -> Json:
        target = self._target(path, "list")
        found = self.objects.get(target.plural, ())
        items = [each for each in found if target.namespace in ("", each["metadata"].get("namespace", ""))]
        return {"items": [each for each in items if labels_match(each, label_selector)]}

    async def get(self, path: str) -> Json:
        if path == "/version":
            return {"gitVersion": "v1.34.1"}
        target = self._target(path, "get")
        for each in self.objects.get(target.plural, ()):
            if (each["metadata"].get("namespace", ""), each["metadata"]["name"]) == (target.namespace, target.name):
                return cast(Json, each)
        raise NotFoundError(path)

    async def get_text(self, path: str, query: Any = ()) -> str:
        self._target(path, "get")
        if path not in self.texts:
            raise NotFoundError(path)
        return self.texts[path]

    def _target(self, path: str, verb: str) -> Target:
        target = Target.of(path)
        named = f"{target.plural}/{target.subresource}" if target.subresource else target.plural
        self.asked.add((named, verb))
        if named in self.refused:
            raise KubeError(403, f"{verb} {path}: 403 forbidden")
        return target
