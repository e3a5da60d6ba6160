"""The scripts by area. `@script` registers a function, once or for each version of the API that it is about."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.conformance.session import Session

Body = Callable[..., Coroutine[Any, Any, None]]


@dataclass(frozen=True)
class Script:
    """`area`: AREA of the script's module, or the module's name. `name` is unique, says what the script shows, and is
    the id of its group. `settings` are those of the servers beside the usual ones: SETTINGS of the script's module."""

    area: str
    name: str
    settings: Mapping[str, str]
    run: Callable[[Session], Coroutine[Any, Any, None]]


SCRIPTS: list[Script] = []


def script(versions: Iterable[int] | None = None, cases: dict[str, Any] | None = None) -> Callable[[Body], Body]:
    """`versions`: the function takes (session, version); `cases`: (session, case), a script for each."""

    def register(body: Body) -> Body:
        area = body.__globals__.get("AREA") or body.__module__.rsplit(".", 1)[-1].replace("_", " ")
        name = body.__name__
        settings: Mapping[str, str] = body.__globals__.get("SETTINGS", {})
        if versions is not None:
            found = [(f"{name}_v{version}", functools.partial(_with, body, version)) for version in versions]
        elif cases is not None:
            found = [(f"{name}_{case}", functools.partial(_with, body, value)) for case, value in cases.items()]
        else:
            found = [(name, functools.partial(body))]
        for full_name, run in found:
            assert all(known.name != full_name for known in SCRIPTS), f"two scripts are called {full_name}"
            SCRIPTS.append(Script(area, full_name, settings, run))
        return body

    return register


async def _with(body: Body, argument: Any, session: Session) -> None:
    await body(session, argument)
