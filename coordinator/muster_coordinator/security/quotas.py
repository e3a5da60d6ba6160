"""The quotas of a user at one pod, as Kafka's are at one broker."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

LARGEST = 2**31 - 1


class Quotas(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """`connections`: at a time; None: as many as `muster.max.connections.per.user` says. `request_rate`: requests per
    second; None: as many as there come."""

    connections: Annotated[int, Meta(ge=1, le=LARGEST)] | None = None
    request_rate: Annotated[int, Meta(ge=1, le=LARGEST)] | None = None


NO_QUOTAS = Quotas()
