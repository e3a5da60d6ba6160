"""Renders docs/timing.md: every time that the code of coordinator and operator fixes, with its unit and its reason.

python hack/render_timing.py            print the page
python hack/render_timing.py --write    write docs/timing.md
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "timing.md"
PACKAGES = ("coordinator/muster_coordinator", "operator/muster_operator")
PROTOCOL_TIMES = ("replication/settings.py", "peers/outbound.py")
"""Modules of the coordinator whose dataclasses hold times in milliseconds."""

HEAD = """# Times

Rendered from the code by `hack/render_timing.py`; a test holds this page true. Times that a user can set are in
[configuration.md](configuration.md). `Rest` is work in pieces that takes at most a share of the time
(`tuning/pacing.py`).
"""


@dataclass(frozen=True)
class Time:
    """`reason`: first sentence of the docstring below it, "" if there is none. `path`: from the root of the package."""

    name: str
    package: str
    path: str
    value: str
    reason: str


def constants() -> list[Time]:
    """Module-level times (names that end in _S or _MS) and rests, by package and module."""
    return [
        Time(name, package, str(path.relative_to(ROOT / package)), value, _first_sentence(following))
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        for name, value, following in _assigned(ast.parse(path.read_text()).body)
        if _is_time(name, value)
    ]


def protocol_times() -> list[Time]:
    """Fields in milliseconds of the protocol's and the peer network's settings, which only tests change."""
    return [
        Time(f"{definition.name}.{name}", PACKAGES[0], module, value, _first_sentence(following))
        for module in PROTOCOL_TIMES
        for definition in ast.parse((ROOT / PACKAGES[0] / module).read_text()).body
        if isinstance(definition, ast.ClassDef)
        for name, value, following in _assigned(definition.body)
        if name.endswith("_ms")
    ]


def _assigned(body: list[ast.stmt]) -> Iterator[tuple[str, str, ast.stmt | None]]:
    """(name, value, the statement below it) of each assignment of a value."""
    for statement, following in zip(body, [*body[1:], None], strict=False):
        target = statement.targets[0] if isinstance(statement, ast.Assign) else None
        if isinstance(statement, ast.AnnAssign):
            target = statement.target
        if isinstance(statement, ast.Assign | ast.AnnAssign) and isinstance(target, ast.Name) and statement.value:
            yield target.id, ast.unparse(statement.value), following


def _is_time(name: str, value: str) -> bool:
    """Bounds of histograms, which are tuples, are no times."""
    return value.startswith("Rest(") or (re.search(r"_M?S$", name) is not None and not value.startswith("("))


def _first_sentence(statement: ast.stmt | None) -> str:
    if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)):
        return ""
    text = " ".join(str(statement.value.value).split())
    return re.split(r"(?<=\.) ", text)[0]


def _row(time: Time) -> str:
    rest = re.match(r"Rest\((.+), longest_s=(.+)\)", time.value)
    unit = "ms" if time.name.lower().endswith("_ms") else "s"
    value = f"{rest[1].replace(' ', '')} of the time, rests of at most {rest[2]} s" if rest else f"{time.value} {unit}"
    reason = time.reason.replace("|", "\\|")
    return f"| `{time.name}` | `{time.path}` | {value} | {reason} |"


def render() -> str:
    page = [HEAD]
    found = constants()
    for package in PACKAGES:
        page += [
            f"## {package.split('/')[0].capitalize()}\n",
            "| name | module | value | reason |",
            "|---|---|---|---|",
        ]
        page += [*(_row(time) for time in found if time.package == package), ""]
    page += ["## Replication and its network\n", "| name | module | value | reason |", "|---|---|---|---|"]
    page += [*(_row(time) for time in protocol_times()), ""]
    return "\n".join(page)


if __name__ == "__main__":
    from rendered import print_or_write  # beside this file: tests that import this one need not find it

    print_or_write(render(), PAGE, __doc__)
