"""Claims in a bucket of an S3-compatible object store that knows conditional writes. Needs the extra `backup`. Backups
are in the same bucket, and opened as they are.

Credentials, region and endpoint come from where AWS's own tools take them, as for backups.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from muster_coordinator.sites.claims import FOLDER, ClaimError

try:
    import obstore
    from obstore.exceptions import AlreadyExistsError, BaseError
    from obstore.store import S3Store
except ImportError as exc:
    raise ClaimError(f"{exc.name} is missing: pip install 'muster[backup]'") from exc

SCHEME = "s3://"
CALL_S, RETRIES, RETRY_FOR_S = 4, 2, 4
"""A call that takes longer than a lease is worth nothing: the next one is made soon."""


def open_bucket(address: str, call_s: int, retries: int, retry_for_s: int) -> S3Store:
    """The store at `address`, s3://BUCKET/PREFIX; nothing is asked of it yet. A call that takes longer than `call_s`
    seconds is made again, `retries` times within `retry_for_s`. Raises ClaimError: no bucket; BaseError: settings that
    S3Store refuses."""
    bucket, _, prefix = address.removeprefix(SCHEME).partition("/")
    if not bucket:
        raise ClaimError(f"{address}: the store is {SCHEME}BUCKET/PREFIX")
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    return S3Store(
        bucket,
        prefix=prefix.strip("/") or None,
        client_options={"timeout": timedelta(seconds=call_s), "allow_http": endpoint.startswith("http://")},
        retry_config={"max_retries": retries, "retry_timeout": timedelta(seconds=retry_for_s)},
    )


class BucketClaims:
    """Implements `ClaimFiles`."""

    def __init__(self, address: str) -> None:
        """`address`: s3://BUCKET/PREFIX. Raises ClaimError."""
        self._address = address
        with _told(address):
            self._store = open_bucket(address, CALL_S, RETRIES, RETRY_FOR_S)

    def names(self) -> list[str]:
        with _told(self._address):
            found = (each["path"] for page in obstore.list(self._store, FOLDER) for each in page)
            return [path.removeprefix(FOLDER) for path in found]

    def read(self, name: str) -> bytes:
        with _told(f"{self._address}/{FOLDER}{name}"):
            return bytes(obstore.get(self._store, FOLDER + name).bytes())

    def add(self, name: str, content: bytes) -> bool:
        with _told(f"{self._address}/{FOLDER}{name}"):
            try:
                obstore.put(self._store, FOLDER + name, content, mode="create")
            except AlreadyExistsError:
                return False
        return True


@contextmanager
def _told(what: str) -> Iterator[None]:
    try:
        yield
    except (BaseError, OSError, ValueError) as error:
        text = str(error)
        raise ClaimError(f"{what}: {text.splitlines()[0] if text else repr(error)}") from error
