"""A store in a bucket of an S3-compatible object store. Needs the extra `backup`.

Credentials, region and endpoint come from where AWS's own tools take them: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
AWS_REGION, AWS_ENDPOINT_URL, a role of the pod or of the machine. What lies there is encrypted by the object store.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from pathlib import Path

from muster_cli.backup.store import FileStat, MissingError, Stored, StoreError
from muster_cli.errors import CliError
from muster_coordinator.sites.claims import ClaimError

try:
    import obstore
    from obstore.exceptions import BaseError, NotFoundError
except ImportError as exc:
    raise CliError(f"{exc.name} is missing: pip install 'muster[backup]'") from exc
from muster_coordinator.sites.bucket import open_bucket

CALL_S = 30
"""A call that takes longer, in seconds, is made again."""
RETRIES, RETRY_FOR_S = 5, 60

_ANSWER = re.compile(r"<Code>([^<]+)</Code>(?:\s*<Message>([^<]*)</Message>)?")
_NO_OBJECT = "NoSuchKey"
_KEYS = "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (on Kubernetes the Secret of credentialsSecret)"
_WAYS_OUT = {
    "NoSuchBucket": "create the bucket, or name another one",
    "InvalidAccessKeyId": _KEYS,
    "SignatureDoesNotMatch": _KEYS,
    "AccessDenied": f"{_KEYS}, and what the key may do in the bucket: list, get, put, delete",
}
"""Advice by the code of S3's answer."""


class ObjectStore:
    """Implements `Store`. A PUT makes an object visible as a whole; large ones go in parts that S3 joins at the end."""

    def __init__(self, address: str) -> None:
        """Raises CliError: no bucket, or settings that S3Store refuses."""
        self.address = address
        try:
            with _told(address, "open"):
                self._store = open_bucket(address, CALL_S, RETRIES, RETRY_FOR_S)
        except ClaimError as error:
            raise CliError(str(error)) from None

    def files(self) -> dict[str, Stored]:
        with _told(self.address, "list"):
            return {
                each["path"]: FileStat(each["size"], int(each["last_modified"].timestamp() * 1000))
                for page in obstore.list(self._store)
                for each in page
            }

    def read(self, name: str) -> Iterator[bytes]:
        with _told(f"{self.address}/{name}", "read"):
            for data in obstore.get(self._store, name).stream():
                yield bytes(data)

    def write(self, name: str, content: Path | bytes) -> None:
        with _told(f"{self.address}/{name}", "write"):
            obstore.put(self._store, name, content)

    def delete(self, name: str) -> None:
        with _told(f"{self.address}/{name}", "delete"):
            obstore.delete(self._store, name)

    def drop_unfinished(self, before_ms: int) -> None:
        """Does nothing: a rule of the bucket removes parts of uploads that were interrupted."""


@contextmanager
def _told(what: str, done: str) -> Iterator[None]:
    try:
        yield
    except (BaseError, OSError, ValueError) as error:
        text = str(error)
        answer = _ANSWER.search(text)
        # S3 answers 404 for a bucket that is not there as well, and some servers for a key that they do not know.
        is_missing = isinstance(error, NotFoundError | FileNotFoundError)
        if is_missing and (answer is None or answer[1] == _NO_OBJECT):
            raise MissingError(f"cannot {done} {what}: there is none") from error
        said_first = text.splitlines()[0] if text else repr(error)
        raise StoreError(f"cannot {done} {what}: {_why(answer) if answer is not None else said_first}") from error


def _why(answer: re.Match[str]) -> str:
    """The answer of the object store, with the way out where one is known."""
    code, message = answer[1], unescape(answer[2] or "").strip().rstrip(".")
    way_out = _WAYS_OUT.get(code, "")
    said = f"the object store answers {code}" + (f" ({message})" if message else "")
    return f"{said}: {way_out}" if way_out else said
