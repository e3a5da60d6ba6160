"""Connections that are closed for a reason, as lines of the log: bounded, so that who is refused again and again fills
no disk and hides nobody else."""

from __future__ import annotations

from dataclasses import dataclass

import structlog

logger = structlog.get_logger(__name__)

INTERVAL_S = 10.0
"""One line of a client and reason in this time."""
KEYS_MAX = 100
"""Clients and reasons of an interval that have lines of their own; all others are told together."""
LONGEST_ERROR = 300
"""Characters: some of it is of a client's or broker's choice."""
_OTHERS = ("others", "others")


@dataclass(slots=True)
class _Seen:
    """`untold`: how many were closed since the last line. `quoted`: what was wrong the last time."""

    untold: int = 0
    quoted: str = ""


class RefusalLog:
    """The first of a client (by its address) and reason is a line at once; those that follow are one line with their
    number at the end of each interval. `look` is to be called each second or so."""

    def __init__(self) -> None:
        self._begun_s: float | None = None
        self._seen: dict[tuple[str, str], _Seen] = {}

    def tell(self, peer: str, reason: str, error: str) -> None:
        """`peer`: address and port of the client."""
        host = peer.rpartition(":")[0]
        seen = self._seen.get((host, reason))
        if seen is None and len(self._seen) < KEYS_MAX:
            self._seen[host, reason] = _Seen()
            logger.warning("connection_closed", client=peer, reason=reason, error=error[:LONGEST_ERROR])
            return
        if seen is None:
            seen = self._seen.setdefault(_OTHERS, _Seen())
        seen.untold += 1
        seen.quoted = error[:LONGEST_ERROR]

    def look(self, now_s: float) -> None:
        """Tell what was left out, once the interval is over."""
        if self._begun_s is None:
            self._begun_s = now_s
        elif now_s - self._begun_s >= INTERVAL_S:
            self._begun_s = now_s
            self.tell_rest()

    def tell_rest(self) -> None:
        """Tell now what was left out."""
        # Who went on has a line again when the next interval ends, and none at once.
        self._seen = {key: seen for key, seen in self._seen.items() if seen.untold}
        for (host, reason), seen in self._seen.items():
            logger.warning("connections_closed", client=host, reason=reason, count=seen.untold, error=seen.quoted)
            seen.untold = 0
