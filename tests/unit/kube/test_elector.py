"""The elector against a Lease that fails, hangs and changes hands. Time is the test's own."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from muster_operator.kube.client import KubeError
from muster_operator.kube.elector import Elector, ElectorSettings
from muster_operator.store.port import ConflictError, NotFoundError

FAST = ElectorSettings(lease_duration=1, renew_deadline=0.2, retry_period=0.02)


class FakeLease:
    """The API server, as far as one Lease goes: compare-and-swap, and trouble on demand."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.version = 0
        self.failing = False
        self.hanging = False

    async def _trouble(self) -> None:
        if self.failing:
            raise KubeError(503, "away")
        if self.hanging:
            await asyncio.Event().wait()

    def _store(self, lease: dict[str, Any]) -> dict[str, Any]:
        self.version += 1
        self.lease = {**lease, "metadata": {**lease["metadata"], "resourceVersion": str(self.version)}}
        return self.lease

    async def get(self, path: str, timeout: float) -> dict[str, Any]:
        await self._trouble()
        if self.lease is None:
            raise NotFoundError(path)
        return self.lease

    async def create(self, path: str, body: dict[str, Any], timeout: float) -> dict[str, Any]:
        await self._trouble()
        if self.lease is not None:
            raise ConflictError(path)
        return self._store(body)

    async def replace(self, path: str, body: dict[str, Any], timeout: float) -> dict[str, Any]:
        await self._trouble()
        if self.lease is None:
            raise NotFoundError(path)
        if body["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
            raise ConflictError(path)
        return self._store(body)

    @property
    def holder(self) -> str:
        return str(self.lease["spec"]["holderIdentity"]) if self.lease else ""

    def taken_by(self, identity: str, transitions: int = 5) -> None:
        spec = {"holderIdentity": identity, "leaseDurationSeconds": 1, "leaseTransitions": transitions}
        self._store({"metadata": {"name": "operator"}, "spec": spec})


class Work:
    """What runs while leading."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def __call__(self) -> None:
        self.started.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled.set()


def elector(lease: FakeLease, identity: str = "one") -> Elector:
    return Elector(lease, "ns", "operator", identity, FAST)  # type: ignore[arg-type]  # the part that it uses


async def within(event: asyncio.Event) -> None:
    await asyncio.wait_for(event.wait(), 10)


async def test_lease_is_created_and_released_on_cancel() -> None:
    lease, work = FakeLease(), Work()
    task = asyncio.create_task(elector(lease).run(work))
    await within(work.started)
    assert lease.holder == "one"
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert work.cancelled.is_set()
    assert lease.holder == ""


async def test_token_rises_with_every_take_over_even_by_the_same_identity() -> None:
    lease = FakeLease()
    lease.taken_by("one", transitions=7)  # an earlier run of this very pod
    subject, work = elector(lease), Work()
    task = asyncio.create_task(subject.run(work))
    await within(work.started)
    assert subject.token == 8
    task.cancel()
    await asyncio.wait({task})


@pytest.mark.parametrize("trouble", ["failing", "hanging"])
async def test_work_is_cancelled_at_the_deadline_when_renewals_fail_or_hang(trouble: str) -> None:
    lease, work = FakeLease(), Work()
    task = asyncio.create_task(elector(lease).run(work))
    await within(work.started)
    setattr(lease, trouble, True)
    await within(work.cancelled)
    task.cancel()
    await asyncio.wait({task})


async def test_lost_lease_is_won_back_when_it_is_free() -> None:
    lease, work = FakeLease(), Work()
    subject = elector(lease)
    task = asyncio.create_task(subject.run(work))
    await within(work.started)
    work.started.clear()
    lease.taken_by("two", transitions=20)
    await within(work.cancelled)
    # The other one never renews: its Lease expires by our clock.
    await within(work.started)
    assert (subject.token, lease.holder) == (21, "one")
    task.cancel()
    await asyncio.wait({task})


async def test_somebody_elses_edit_of_our_lease_does_not_end_the_leadership() -> None:
    lease, work = FakeLease(), Work()
    task = asyncio.create_task(elector(lease).run(work))
    await within(work.started)
    assert lease.lease is not None
    lease._store({**lease.lease, "metadata": {**lease.lease["metadata"], "labels": {"a": "b"}}})
    edited = lease.version
    async with asyncio.timeout(10):
        while lease.version < edited + 3:  # renewed on top of the edit
            await asyncio.sleep(0.01)
    assert not work.cancelled.is_set()
    assert lease.lease["metadata"]["labels"] == {"a": "b"}
    task.cancel()
    await asyncio.wait({task})


async def test_error_of_the_work_releases_the_lease_and_surfaces() -> None:
    async def broken() -> None:
        raise RuntimeError("bug")

    lease = FakeLease()
    with pytest.raises(RuntimeError, match="bug"):
        await elector(lease).run(broken)
    assert lease.holder == ""


def test_settings_that_could_lead_beyond_the_lease_are_refused() -> None:
    with pytest.raises(ValueError, match="must hold"):
        ElectorSettings(lease_duration=4, renew_deadline=4.0)
    with pytest.raises(ValueError, match="must hold"):
        ElectorSettings(renew_deadline=1.0, retry_period=0.5)
