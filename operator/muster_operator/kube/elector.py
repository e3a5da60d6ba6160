"""The choice of the operator that acts: an elector on a Lease.

Four properties that electors of client libraries lack, and that this one is for:

- Time is the local monotonic clock. A holder's expiry is judged by how long *we* have seen its Lease unchanged, never
  by comparing its wall clock with ours.
- A renewal is bounded by a timeout derived from the renew deadline, so a hung API server cannot stretch a leadership.
- The work is cancelled when the deadline passes, whatever requests are under way, and not by the outcome of one.
- The Lease is released on the way out, so that the next operator starts at once.

Leadership here is for liveness only: two operators at once are safe, because every write is a compare-and-swap, and
every call of a pod carries an epoch or else the fencing token, `leaseTransitions`, which orders operators.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime

import structlog

from muster_operator.clock import SYSTEM_CLOCK, Clock
from muster_operator.kube.client import Json, KubeClient
from muster_operator.store.port import ConflictError, NotFoundError, StoreError

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ElectorSettings:
    """Times in seconds; each smaller than the one before it."""

    lease_duration: int = 6
    """Others take over after they have seen the Lease unchanged for this long."""

    renew_deadline: float = 4.0
    """The work is cancelled this long after the last renewal that succeeded was *sent*."""

    retry_period: float = 1.0
    """Pause between two renewals, and between two looks at the Lease of another holder; jittered by a fifth."""

    def __post_init__(self) -> None:
        if not self.lease_duration > self.renew_deadline > 2 * self.retry_period > 0:
            raise ValueError(f"lease duration > renew deadline > 2 * retry period must hold: {self}")

    @property
    def request_timeout(self) -> float:
        """The time-out of a request in seconds; two attempts fit into a renew deadline."""
        return (self.renew_deadline - self.retry_period) / 2


class Elector:
    """One candidate. `identity` must be unique among processes that can run at the same time. `random` gives numbers in
    [0, 1), for jitter.
    """

    def __init__(
        self,
        client: KubeClient,
        namespace: str,
        name: str,
        identity: str,
        settings: ElectorSettings = ElectorSettings(),
        clock: Clock = SYSTEM_CLOCK,
        random: Callable[[], float] = random.random,
    ) -> None:
        self._client = client
        self._collection = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._path = f"{self._collection}/{name}"
        self._name = name
        self._identity = identity
        self._settings = settings
        self._clock = clock
        self._random = random
        self._lease: Json = {}
        self._leading_until = 0.0
        # The Lease of another holder as we saw it last, and since when it has been so.
        self._seen: tuple[str, float] = ("", 0.0)
        self._holder = ""
        self._led = False

    @property
    def token(self) -> int:
        """leaseTransitions of the Lease that we hold (or held last); 0 before the first time."""
        return int(self._lease["spec"]["leaseTransitions"]) if self._led else 0

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Run `lead` whenever the Lease is ours, and cancel it when it no longer is. Ends when `lead` ends."""
        while True:
            await self._acquire()
            log.info("leading", lease=self._path, identity=self._identity, token=self.token)
            work = asyncio.ensure_future(lead())
            renewal = asyncio.create_task(self._renew())
            try:
                await self._until_lost(work, renewal)
                if work.done():
                    return work.result()
                if renewal.done():
                    renewal.result()  # None: the Lease has another holder
            finally:
                await _stop(renewal)
                await _stop(work)
                await self._release()
            log.warning("leadership_lost", lease=self._path, identity=self._identity)

    async def _until_lost(self, work: asyncio.Future[None], renewal: asyncio.Task[None]) -> None:
        """Returns when the work ended, the Lease has another holder, or the deadline passed."""
        while (left := self._leading_until - self._clock.monotonic()) > 0:
            done, _ = await asyncio.wait({work, renewal}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if done:
                return

    async def _acquire(self) -> None:
        while True:
            try:
                if await self._try_acquire():
                    return
            except StoreError as error:
                log.warning("lease_not_acquired", error=str(error))
            await asyncio.sleep(self._pause())

    async def _try_acquire(self) -> bool:
        timeout = self._settings.request_timeout
        try:
            lease = await self._client.get(self._path, timeout)
        except NotFoundError:
            return await self._take({"metadata": {"name": self._name}, "spec": {}}, new=True)
        holder = lease["spec"].get("holderIdentity") or ""
        # Our own name means an earlier run of this process, which is over: its Lease need not expire first.
        if holder in ("", self._identity) or self._expired(lease):
            return await self._take(lease, new=False)
        if holder != self._holder:
            self._holder = holder
            log.info("another_operator_acts", lease=self._path, holder=holder, identity=self._identity)
        return False

    def _expired(self, lease: Json) -> bool:
        version, now = lease["metadata"]["resourceVersion"], self._clock.monotonic()
        if self._seen[0] != version:
            self._seen = (version, now)
        return now - self._seen[1] > int(lease["spec"].get("leaseDurationSeconds") or self._settings.lease_duration)

    async def _take(self, lease: Json, *, new: bool) -> bool:
        sent, now = self._clock.monotonic(), self._micro_time()
        spec = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": self._settings.lease_duration,
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": int(lease["spec"].get("leaseTransitions") or 0) + 1,
        }
        if not await self._write({**lease, "spec": spec}, new=new):
            return False
        self._led = True
        self._holder = ""
        self._leading_until = sent + self._settings.renew_deadline
        return True

    async def _write(self, lease: Json, *, new: bool = False) -> bool:
        """False if another process was faster."""
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", **lease}
        timeout = self._settings.request_timeout
        try:
            if new:
                self._lease = await self._client.create(self._collection, body, timeout)
            else:
                self._lease = await self._client.replace(self._path, body, timeout)
        except (ConflictError, NotFoundError):
            return False
        return True

    async def _renew(self) -> None:
        """Ends when the Lease has another holder. Errors are retried: the deadline, not an error, ends a leadership."""
        while True:
            await asyncio.sleep(self._pause())
            sent = self._clock.monotonic()
            try:
                spec = {**self._lease["spec"], "renewTime": self._micro_time()}
                if not await self._write({**self._lease, "spec": spec}):
                    current = await self._client.get(self._path, self._settings.request_timeout)
                    if current["spec"].get("holderIdentity") != self._identity:
                        return
                    self._lease = current  # edited by a person (labels, say): it is still ours
                    continue
            except NotFoundError:
                return
            except StoreError as error:
                log.warning("lease_not_renewed", error=str(error), left_s=round(self._leading_until - sent, 1))
                continue
            self._leading_until = sent + self._settings.renew_deadline

    async def _release(self) -> None:
        """Best effort; if it fails, the others wait for the Lease to expire."""
        now = self._micro_time()
        spec = {**self._lease["spec"], "holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": now}
        try:
            await self._write({**self._lease, "spec": spec})
        except StoreError as error:
            log.warning("lease_not_released", error=str(error))

    def _pause(self) -> float:
        return self._settings.retry_period * (0.8 + 0.4 * self._random())

    def _micro_time(self) -> str:
        """Now as metav1.MicroTime, for people: no elector compares it."""
        return datetime.fromtimestamp(self._clock.wall(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


async def _stop(task: asyncio.Future[None]) -> None:
    """Cancel and wait; what the task raised is its own affair unless it ended by itself."""
    task.cancel()
    await asyncio.wait({task})
