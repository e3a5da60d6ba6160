"""The site of a pod, as its setting names it: NAME@STORE."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from muster_coordinator.sites.claims import ClaimError, Claims

_SITE = re.compile(r"[a-z0-9]([-.a-z0-9]{0,61}[a-z0-9])?")


@dataclass(frozen=True)
class Site:
    name: str
    store: str


def check_site_name(name: str) -> str:
    """Raises ValueError."""
    if not _SITE.fullmatch(name):
        raise ValueError(f"{name!r} is no name of a site: small letters, digits, '-' and '.', 63 at most")
    return name


def parse_site(text: str) -> Site | None:
    """None: the pod is of no site. Raises ValueError."""
    if not text:
        return None
    name, at, store = text.partition("@")
    if not at or not store.startswith(("/", "s3://")):
        raise ValueError("NAME@STORE is needed, with a STORE that is s3://BUCKET/PREFIX or an absolute path")
    return Site(check_site_name(name), store)


def open_claims(store: str) -> Claims:
    """The claims of a store: s3://BUCKET/PREFIX, or a directory. Raises ClaimError."""
    if store.startswith("s3://"):
        from muster_coordinator.sites.bucket import BucketClaims

        return Claims(BucketClaims(store))
    if "://" in store:
        raise ClaimError(f"{store}: stores are directories and s3://BUCKET/PREFIX")
    from muster_coordinator.sites.directory import DirectoryClaims

    return Claims(DirectoryClaims(Path(store).expanduser().absolute()))
