"""The rights in roles of Kubernetes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Right = tuple[str, str, str, str]
"""Group, resource, verb, name of the object ("": any)."""


def granted(objects: Iterable[dict[str, Any]]) -> set[Right]:
    """The rights that the roles among `objects` allow."""
    return {
        (group, resource, verb, name)
        for each in objects
        if each["kind"] in ("Role", "ClusterRole")
        for rule in each["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        for name in rule.get("resourceNames", [""])
    }
