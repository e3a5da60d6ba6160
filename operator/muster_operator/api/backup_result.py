"""The result of `muster backup run` that the operator reads: the termination message of a Job's container."""

from __future__ import annotations

import msgspec

MADE_BUT = 3
"""Exit code of the command: the backup is made, and verifying it or dropping others has shown trouble. Doing it again
helps nothing."""


class BackupResult(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """`backup`: its id ("": none was made). `taken_at_ms`: of the cut, since 1970. `sent`: bytes of `bytes` that the
    store did not have. `verified`: everything was read again. `problems`: what is not as it was written. `error`: what
    failed."""

    backup: str = ""
    taken_at_ms: int = 0
    cluster_id: str = ""
    bytes: int = 0
    sent: int = 0
    verified: bool = False
    problems: str = ""
    error: str = ""
