"""A process that was killed is collected with coroutines that never end: after its test, and without a word."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

QUIET = (
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            for mark in QUIET:
                item.add_marker(mark)


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """The processes of a run go with its test; not while pytest explains a failure."""
    gc.disable()
    yield
    gc.enable()
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    gc.collect()
    structlog.configure(**before)
