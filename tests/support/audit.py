"""The requests of a service account to the API server since a moment, by the audit log (hack/localkube)."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

__all__ = ["AuditedRequests"]

READS = frozenset({"get", "list", "watch"})


class AuditedRequests:
    """Those of an account that are about a namespace, or about no namespace. A watch counts when it begins."""

    def __init__(self, log: Path, account: str, namespace: str) -> None:
        self._log = log
        self._account = account
        self._namespace = namespace
        self._from = 0
        self.begin()

    def begin(self) -> None:
        """Count from now on."""
        self._from = self._log.stat().st_size

    def counts(self) -> Counter[tuple[str, str]]:
        """The number of requests, by verb (as the rules of a Role have them) and resource."""
        return Counter((each["verb"], _resource(each)) for each in self._events())

    def writes(self) -> list[str]:
        """Verb, resource and name of each request that may have changed something, but for those about Leases. A dry
        run changes nothing.
        """
        return [
            f"{each['verb']} {_resource(each)} {each['objectRef'].get('name', '')}"
            for each in self._events()
            if each["verb"] not in READS
            and each["objectRef"]["resource"] != "leases"
            and "dryRun=All" not in each["requestURI"]
        ]

    def table(self) -> str:
        """A text for people: a line for each verb and resource."""
        return "\n".join(
            f"{verb:7} {resource:28} {count:5}" for (verb, resource), count in sorted(self.counts().items())
        )

    def _events(self) -> list[dict[str, Any]]:
        with self._log.open("rb") as log:
            log.seek(self._from if self._log.stat().st_size >= self._from else 0)  # it may have been rotated
            lines = [line for line in log if line.endswith(b"\n") and self._account.encode() in line]
        return [event for event in map(json.loads, lines) if self._is_counted(event)]

    def _is_counted(self, event: dict[str, Any]) -> bool:
        about = event.get("objectRef")
        once = "ResponseStarted" if event["verb"] == "watch" else "ResponseComplete"
        if event["user"]["username"] != self._account or event["stage"] != once or not about:
            return False
        return about.get("namespace", "") in ("", self._namespace)


def _resource(event: dict[str, Any]) -> str:
    about = event["objectRef"]
    return "/".join(part for part in (about["resource"], about.get("subresource", "")) if part)
