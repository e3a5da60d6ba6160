"""The start of the operator's process."""

from __future__ import annotations

from typing import Any

import pytest
import structlog

from muster_operator import process
from muster_operator.kube import run as kube_run


def test_what_the_imports_made_is_set_aside_from_garbage_collection_before_the_operator_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[str] = []

    async def run(*_: Any) -> None:
        said.append("runs")

    monkeypatch.setattr(process.gc, "freeze", lambda: said.append("set aside"))
    monkeypatch.setattr(kube_run, "run", run)
    monkeypatch.setattr(kube_run.KubeOptions, "from_environment", lambda: None)
    monkeypatch.setattr(structlog, "configure", lambda **_: None)
    process.main()
    assert said == ["set aside", "runs"]
