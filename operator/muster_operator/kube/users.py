"""Passwords of MusterUsers on Kubernetes (ADR 38).

The operator keeps a record of each user (password, SCRAM credentials) in one Secret of the namespace, beside that of
the certificates, written by compare-and-swap: the second writer reads what the first has made. The Secret that the
user's client mounts follows from it, and is kept so (`MadeSecrets`). A Secret that a person has named is read.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as with_fields
from math import inf

import msgspec
import structlog
from msgspec.structs import replace

from muster_coordinator.security.scram import DEFAULT_ITERATIONS, HASHES, credential_of, write_credential
from muster_operator.api.conditions import Reason
from muster_operator.api.models import CoordinatorCluster, MusterUser
from muster_operator.kube.claims import LOOK_EVERY_S
from muster_operator.kube.client import Json, KubeClient
from muster_operator.kube.made_secrets import MadeSecrets
from muster_operator.kube.objects import collection_path, owned_by
from muster_operator.kube.record_secrets import ATTEMPTS, LABELS, encoded, read_secret, secrets_path, swap_secret
from muster_operator.plan.access import AccessState, Credentials, Trouble, access_of
from muster_operator.store.port import ClusterKey, ConflictError, StoreError, key_of

log = structlog.get_logger(__name__)

USERS = "muster-operator-users"
"""The Secret with the records of all users of a namespace: by name of the MusterUser, as msgpack."""


class UserRecord(msgspec.Struct, frozen=True):
    """The record of one MusterUser (`uid`). `source`: the Secret that the password was read from, with its version;
    "": the operator has made it. `password` is only kept in that case, and may be `retained` for the next one of this
    name."""

    uid: str
    source: str
    password: str
    scram: dict[str, str]
    retained: bool = False

    def is_of(self, user: MusterUser) -> bool:
        return self.uid == user.metadata.uid or (self.retained and user.has_own_password)


Records = dict[str, UserRecord]


@dataclass(frozen=True, slots=True)
class _Known:
    """The Secrets that the last look found or made; `credentials` and `trouble` by name of the MusterUser."""

    uid: str
    users: tuple[MusterUser, ...]
    at: float
    credentials: Mapping[str, Credentials] = field(default_factory=dict)
    trouble: Mapping[str, Trouble] = field(default_factory=dict)


class KubeUsers:
    """`new_password` makes one."""

    def __init__(
        self,
        client: KubeClient,
        clock: Callable[[], float] = time.monotonic,
        new_password: Callable[[], str] = lambda: secrets.token_urlsafe(24),
    ) -> None:
        self._client = client
        self._clock = clock
        self._new_password = new_password
        self._known: dict[ClusterKey, _Known] = {}
        self._states: dict[ClusterKey, tuple[_Known, tuple[MusterUser, ...], AccessState]] = {}
        self._records: dict[str, Records] = {}
        """The records of each namespace that were read or written last."""
        self._made = MadeSecrets(client)
        self._one_at_a_time = asyncio.Lock()

    def access(self, cluster: CoordinatorCluster, users: Sequence[MusterUser]) -> AccessState | None:
        """See the port."""
        key, present = key_of(cluster), tuple(users)
        known = self._known.get(key)
        if known is None or known.uid != cluster.metadata.uid:
            return None
        made = self._states.get(key)
        if made is None or made[0] is not known or made[1] != present:
            made = self._states[key] = known, present, access_of(present, known.credentials, known.trouble)
        return made[2]

    async def keep(self, cluster: CoordinatorCluster, users: Sequence[MusterUser]) -> bool:
        """See the port; whether there is news. A failure is remembered and tried again at the next look."""
        key, present, now = key_of(cluster), tuple(users), self._clock()
        known = self._known.get(key)
        same = known is not None and (known.uid, known.users) == (cluster.metadata.uid, present)
        if known is not None and same and now - known.at < LOOK_EVERY_S:
            return False
        found: tuple[Mapping[str, Credentials], Mapping[str, Trouble]]
        try:
            async with self._one_at_a_time:
                found = await self._look(key, present)
        except (StoreError, ValueError) as error:
            log.warning("users_not_kept", key=str(key), error=str(error))
            if known is None:
                return False  # nothing is known, so nothing is given
            trouble = {each.metadata.name: (Reason.PASSWORD_NOT_KEPT, str(error)) for each in present}
            found = known.credentials, trouble
        self._known[key] = _Known(cluster.metadata.uid, present, now, *found)
        before = (known.credentials, known.trouble) if known is not None else None
        return before != found

    async def drifted(self, is_there: Callable[[ClusterKey], bool]) -> set[ClusterKey]:
        """The clusters, of those that are there, of which somebody has deleted or changed the record or the Secret of a
        user. Each is told of once; the next `keep` looks.
        """
        found = {key for key in await self._made.drifted(is_there) if key in self._known and self._known[key].at > -inf}
        for key in found:
            self._known[key] = with_fields(self._known[key], at=-inf)
        return found

    async def _look(
        self, key: ClusterKey, users: tuple[MusterUser, ...]
    ) -> tuple[dict[str, Credentials], dict[str, Trouble]]:
        """(credentials, trouble). Raises StoreError, ValueError."""
        trouble: dict[str, Trouble] = {}
        mine = [each for each in users if each.has_password]
        records = await self._recorded(key, mine, trouble)
        own = [(user, record) for user in mine if (record := records.get(user.metadata.name)) and not record.source]
        self._made.forget(key, frozenset((USERS, *(user.secret for user, _ in own))))
        for user, record in own:
            try:
                await self._made.keep(key, _secret(user, record))
            except StoreError as error:
                text = f"Secret {user.secret} cannot be written: {error}"
                trouble[user.metadata.name] = Reason.PASSWORD_NOT_KEPT, text
        return {name: record.scram for name, record in records.items()}, trouble

    # -- the record ---------------------------------------------------------------------------------------------------

    async def _recorded(self, key: ClusterKey, users: Iterable[MusterUser], trouble: dict[str, Trouble]) -> Records:
        """Those of `users` as they are stored. A record that somebody has deleted or damaged is written as it was:
        other passwords would shut clients out. Raises StoreError, ValueError.
        """
        namespace = key.namespace
        for _ in range(ATTEMPTS):
            replaced: Json | None = None
            secret, remembered = await read_secret(self._client, namespace, USERS), self._records.get(namespace, {})
            stored, unreadable = _decoded(secret)
            if lost := sorted(unreadable - remembered.keys()):
                name = f"Secret {USERS}: {lost[0]}"
                raise ValueError(f"{name} cannot be read: restore it, or delete this key of the Secret")
            there = remembered if secret is None else {**stored, **{name: remembered[name] for name in unreadable}}
            wanted: Records = {}
            for user in users:
                name, record = user.metadata.name, there.get(user.metadata.name)
                present = record if record is not None and record.is_of(user) else None
                made = await self._due(user, present, trouble)
                if made is not None:
                    wanted[name] = made
            after = {**there, **wanted}
            changed = {name for name, each in after.items() if stored.get(name) != each}
            if changed:
                after = {**await self._without_the_gone(there, namespace), **wanted}
                texts = {name: encoded(each) for name, each in after.items()}
                replaced = secret
                try:
                    secret = await swap_secret(self._client, namespace, USERS, secret, texts)
                except ConflictError:
                    continue
                log.info("passwords_recorded", namespace=namespace, users=sorted(changed))
            self._records[namespace] = after
            if secret is not None:
                self._made.note(key, secret, replaced)
            return wanted
        raise ConflictError(f"Secret {USERS} changes all the time")

    async def _due(
        self, user: MusterUser, present: UserRecord | None, trouble: dict[str, Trouble]
    ) -> UserRecord | None:
        """The record that the user is to have; None: there is none, and `trouble` says why."""
        named = user.spec.authentication.secret
        if named is None:
            if present is not None and not present.source:
                return replace(present, uid=user.metadata.uid, retained=user.is_retained)
            made = self._new_password()
            return UserRecord(user.metadata.uid, "", made, await _credentials(made.encode()), user.is_retained)
        before = present if present is not None and present.source.partition("@")[0] == named else None
        try:
            secret = await self._client.get(f"{secrets_path(user.metadata.namespace)}/{named}")
            source = f"{named}@{secret['metadata']['uid']}/{secret['metadata']['resourceVersion']}"
            if before is not None and before.source == source:
                return before
            password = _password_of(secret)
        except (StoreError, ValueError) as error:
            # An API server that does not answer is no reason to shut a client out; neither is one that is told so.
            trouble[user.metadata.name] = Reason.PASSWORD_NOT_KEPT, f"Secret {named}: {error}"
            return before
        return UserRecord(user.metadata.uid, source, "", await _credentials(password))

    async def _without_the_gone(self, records: Records, namespace: str) -> Records:
        """The records of users that there are, of whatever cluster, and of those that were retained; looked at when one
        changes."""
        listed = await self._client.list_all(collection_path(MusterUser, namespace))
        there = {each["metadata"]["name"] for each in listed["items"]}
        return {name: each for name, each in records.items() if name in there or each.retained}


def _secret(user: MusterUser, record: UserRecord) -> Json:
    """The Secret for the user's client; deleted with the MusterUser, unless it is retained."""
    meta, data = user.metadata, {"username": user.username, "password": record.password}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": user.secret,
            "namespace": meta.namespace,
            "labels": LABELS,
            "ownerReferences": [] if record.retained else [owned_by(user)],
        },
        "type": "Opaque",
        "data": {name: base64.b64encode(text.encode()).decode() for name, text in data.items()},
    }


async def _credentials(password: bytes) -> dict[str, str]:
    """Makes the credentials of each SCRAM mechanism in a thread: it takes some ten milliseconds of a processor."""

    def derive() -> dict[str, str]:
        return {
            mechanism: write_credential(credential_of(password, name, secrets.token_bytes(24), DEFAULT_ITERATIONS))
            for mechanism, name in HASHES.items()
        }

    return await asyncio.to_thread(derive)


def _password_of(secret: Json) -> bytes:
    """Raises ValueError, which repeats nothing of it."""
    try:
        password = base64.b64decode(secret["data"]["password"])
    except (KeyError, TypeError, binascii.Error):
        raise ValueError("it has no key password") from None
    if not password:
        raise ValueError("the password is empty")
    return password


def _decoded(secret: Json | None) -> tuple[Records, set[str]]:
    """The records, and the names of those that cannot be read."""
    found, unreadable = Records(), set[str]()
    for name, entry in ((secret or {}).get("data") or {}).items():
        try:
            found[name] = msgspec.msgpack.decode(base64.b64decode(entry), type=UserRecord)
        except (msgspec.MsgspecError, binascii.Error):
            unreadable.add(name)
    return found, unreadable
