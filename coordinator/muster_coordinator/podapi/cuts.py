"""The calls of a backup that cuts all logs at one moment (ADR 45).

    POST   /v1/marker-holds/<name>?forMs=N     no marker of a transaction leaves this pod from now on, for N ms at most,
                                               and when this is answered no transaction is completed either
    DELETE /v1/marker-holds/<name>             they go; the answer says whether none has left meanwhile

A hold is refused (409) while another one is in force, and for nine times as long as that took: so markers wait a tenth
of the time at most, and a reader's certificate is enough for these calls. The caller chooses the name, 32 hexadecimal
digits that nobody else uses.
"""

from __future__ import annotations

from muster_coordinator.podapi.fields import Answer


class MarkerHoldAnswer(Answer, frozen=True):
    """`held`: the hold of this name is in force, or was until now."""

    held: bool
