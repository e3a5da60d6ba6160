"""The identity of a replica: a random id that is made with its empty log and never changes.

A volume, pod or ordinal never identifies a replica. Source: replication.md, "Identity".
"""

from __future__ import annotations

import os
from collections.abc import Callable

LOG_ID_BYTES = 16


def new_log_id(random_bytes: Callable[[int], bytes] = os.urandom) -> str:
    """32 hexadecimal digits. `random_bytes`: a simulation's own source."""
    return random_bytes(LOG_ID_BYTES).hex()
