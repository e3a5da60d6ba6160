"""Commands for people, whole, so that they can be copied from a message."""

from __future__ import annotations

import json
from collections.abc import Mapping

from muster_operator.api.models import ObjectMeta


def patch(kind: str, meta: ObjectMeta, spec: Mapping[str, object]) -> str:
    """The command that sets these fields of an object's spec."""
    body = json.dumps({"spec": spec}, separators=(",", ":"))
    return f"kubectl -n {meta.namespace} patch {kind} {meta.name} --type merge -p '{body}'"
