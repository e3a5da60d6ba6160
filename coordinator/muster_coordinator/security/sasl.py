"""The parts that all mechanisms of SASL share on the server's side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

Work = Callable[[], bytes]
"""The rest of a step, for another thread: it takes milliseconds of processor time. Gives the server's token, or raises
SaslError."""


MayActFor = Callable[[str], bool]
"""True if this user may log in on behalf of others, by SASL's authorization id."""


def nobody_acts(user: str) -> bool:
    """No user may log in on behalf of others, as in Kafka."""
    return False


class SaslError(Exception):
    """The client is not let in. `told` is what it may be told of why; None: nothing but that it failed."""

    def __init__(self, reason: str, told: str | None = None) -> None:
        """`reason`: for logs; no secret, no name."""
        super().__init__(reason)
        self.told = told


class LaterError(SaslError):
    """This side cannot tell now. The connection closes without an answer, so that the client tries again: clients take
    an answer that refuses them for final."""


class Mechanism(Protocol):
    """One login by one mechanism. `user`: who it is, once that is known. `by`: who has logged in on that user's behalf;
    "": the user itself. `ends_ms`: until when it is good, milliseconds since 1970; None: that has no end."""

    @property
    def user(self) -> str | None: ...

    @property
    def by(self) -> str: ...

    @property
    def ends_ms(self) -> int | None: ...

    def step(self, token: bytes) -> bytes | Work:
        """Take the client's next token; returns the server's. Raises SaslError."""
        ...
