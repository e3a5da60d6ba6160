"""Fixtures of several files."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio
from tests.support.transaction_pods import TransactionPods


@pytest_asyncio.fixture
async def transaction_pods(tmp_path: Path) -> AsyncIterator[TransactionPods]:
    async with TransactionPods(tmp_path) as pods:
        yield pods
