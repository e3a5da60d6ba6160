"""Renders docs/metrics.md: every metric of pods, gateways, operators and followers, with the text that Prometheus gets.

python hack/render_metrics.py            print the page
python hack/render_metrics.py --write    write docs/metrics.md
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "metrics.md"
PARTS = (
    (
        (
            "coordinator/muster_coordinator/process/metrics.py",
            "coordinator/muster_coordinator/process/mirror_metrics.py",
        ),
        """# Metrics of a coordinator pod

Rendered from the code by `hack/render_metrics.py`; a test compares it with a pod. The [runbook](runbook.md) says
which of them raise an alert. Grafana dashboards with all of them are in `config/monitoring/dashboards` (in the chart
`dashboards.enabled`).

`GET /metrics` on port 9643 on Kubernetes, and on the pod API. Histograms are per turn: a turn runs the requests that
came during the previous write, and ends in one durable write. Counters end in `_total` on the wire. Metrics of Python
and of the process (`process_*`, `python_*`) come with these.
""",
    ),
    (
        ("gateway/muster_gateway/metrics.py",),
        """# Metrics of a gateway

`GET /metrics` on port 9643 of each gateway pod on Kubernetes, otherwise on `metrics.port`.
""",
    ),
    (
        ("operator/muster_operator/metrics.py",),
        """# Metrics of the operator

`GET /metrics` on port 9641 of the operator.
""",
    ),
    (
        ("cli/muster_cli/backup/follow_metrics.py",),
        """# Metrics of a follower

`GET /metrics` of `muster backup follow` at its `--metrics-listen`, in plain ([second site](backup.md#a-second-site)).
""",
    ),
)
COLUMNS = "\n| metric | type | meaning |\n|---|---|---|\n"
TYPES = ("counter", "gauge", "histogram")
_CODE = re.compile(r"\b(?:[a-z]+\.[a-z.]+[a-z]|\w+_\w+)\b")  # settings, and words with an underscore


@dataclass(frozen=True)
class Described:
    """One metric as the code describes it."""

    name: str
    type: str
    labels: tuple[str, ...]
    text: str


def described(source: str) -> list[Described]:
    """The metrics of a module, in the order of the code."""
    tables = {}
    found: dict[str, Described] = {}
    for node in _in_order(ast.parse(source)):
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=ast.Dict() as table)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.Dict() as table)
            ):
                tables[name] = table
            case ast.For(iter=ast.Tuple(elts=rows), body=body):
                for row in rows:
                    if isinstance(row, ast.Tuple) and (each := _metric(row.elts, body)):
                        found.setdefault(each.name, each)
            case ast.For(iter=ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="items")), body=body) if (
                name in tables
            ):
                for each in _of_table(tables[name], body):
                    found.setdefault(each.name, each)
            case ast.Call(args=args):
                if each := _metric(args, [node]):
                    found.setdefault(each.name, each)
    return list(found.values())


def part(sources: tuple[str, ...]) -> list[Described]:
    """The metrics of one of PARTS."""
    return [each for source in sources for each in described((ROOT / source).read_text(encoding="utf-8"))]


def _in_order(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _in_order(child)


def _metric(values: list[ast.expr], where: list[ast.stmt] | list[ast.Call]) -> Described | None:
    """The metric whose name and text begin the values. Its type and labels are in the code there."""
    match values:
        case [ast.Constant(value=str(name)), ast.Constant(value=str(text)), *_] if name.startswith("muster_"):
            return Described(name, _type(where), _labels(where), text)
    return None


def _of_table(table: ast.Dict, body: list[ast.stmt]) -> Iterator[Described]:
    for key, value in zip(table.keys, table.values, strict=True):
        assert isinstance(key, ast.Constant)
        name = f"muster_{key.value!s}"
        match value:
            case ast.Constant(value=str(text)):
                yield Described(name, _type(body), (), text)
            case ast.Tuple(elts=[ast.Constant(value=str(text)), ast.List(elts=labels)]):
                yield Described(name, _type(body), _words(labels), text)


def _type(where: list[ast.stmt] | list[ast.Call]) -> str:
    names = [
        each.func.id.lower() for node in where for each in ast.walk(node)
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Name)
    ]  # fmt: skip
    return next(kind for name in names for kind in TYPES if kind in name)


def _labels(where: list[ast.stmt] | list[ast.Call]) -> tuple[str, ...]:
    lists = [
        each for node in where for call in ast.walk(node) if isinstance(call, ast.Call)
        for each in [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg == "labels")]
        if isinstance(each, ast.List)
    ]  # fmt: skip
    return _words(lists[0].elts) if lists else ()


def _words(values: list[ast.expr]) -> tuple[str, ...]:
    return tuple(each.value for each in values if isinstance(each, ast.Constant) and isinstance(each.value, str))


def page() -> str:
    parts = []
    for sources, head in PARTS:
        rows = "".join(map(_row, part(sources)))
        parts.append(head + COLUMNS + rows)
    return "\n".join(parts)


def _row(metric: Described) -> str:
    by = f" by {', '.join(f'`{each}`' for each in metric.labels)}" if metric.labels else ""
    text = _CODE.sub(r"`\g<0>`", metric.text)
    return f"| `{metric.name}` | {metric.type}{by} | {text} |\n"


if __name__ == "__main__":
    from rendered import print_or_write  # beside this file: tests that import this one need not find it

    print_or_write(page(), PAGE, __doc__)
