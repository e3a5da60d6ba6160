"""An API server's reading of an object by its CustomResourceDefinition: defaults, schema, rules (CEL).

It needs no server, and is a reading of its own, for objects in the repository: the tests on
Kubernetes have the last word. The cases that those refuse are refused here with the same words.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from functools import cache
from typing import Any

from cel_expr_python import cel

from muster_operator.api.crds import definitions

Json = dict[str, Any]
TYPES = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}
UNITS = {"m": Decimal("0.001"), "k": Decimal(10**3), "M": Decimal(10**6), "G": Decimal(10**9), "T": Decimal(10**12)}
UNITS |= {unit: Decimal(1024**power) for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi"), 1)}


@cache
def schemas() -> Mapping[str, Json]:
    """The schema of each kind."""
    return {
        each["spec"]["names"]["kind"]: each["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        for _, each in definitions()
    }


def problems(shown: Json, old: Json | None = None) -> list[str]:
    """The reasons why it would be refused, one line each; empty if it is taken. `old`: what is there already."""
    schema = schemas()[shown["kind"]]
    before = None if old is None else defaulted(schema, old)
    now = defaulted(schema, shown)
    wrong = [*_of_schema(schema, now, "")]
    return wrong or [*_of_rules(schema, now, before, "")]


def defaulted(schema: Json, value: Any) -> Any:
    """The value with the defaults of the schema, at every depth that is there."""
    if isinstance(value, list):
        return [defaulted(schema.get("items", {}), each) for each in value]
    if not isinstance(value, dict):
        return value
    filled = {name: each for name, each in value.items() if each is not None}
    for name, inner in schema.get("properties", {}).items():
        if name not in filled and "default" in inner:
            filled[name] = copy.deepcopy(inner["default"])
        if name in filled:
            filled[name] = defaulted(inner, filled[name])
    return filled


def _of_schema(schema: Json, value: Any, path: str) -> Iterator[str]:
    if schema.get("x-kubernetes-int-or-string"):
        if not isinstance(value, int | str) or isinstance(value, bool):
            yield f"{path}: neither a number nor a text"
        elif isinstance(value, str):
            yield from _of_text(schema, value, path)
        return
    kind = schema.get("type", "object")
    if not isinstance(value, TYPES[kind]) or (kind == "integer" and isinstance(value, bool)):
        yield f"{path}: Invalid value: {value!r} is no {kind}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{path}: Unsupported value: {value!r}"
    match value:
        case dict():
            yield from _of_object(schema, value, path)
        case list():
            yield from _of_list(schema, value, path)
        case str():
            yield from _of_text(schema, value, path)
        case int():
            if not schema.get("minimum", value) <= value <= schema.get("maximum", value):
                yield f"{path}: Invalid value: {value} is out of range"


def _of_object(schema: Json, value: Json, path: str) -> Iterator[str]:
    known, more = schema.get("properties", {}), schema.get("additionalProperties")
    yield from (f"{_join(path, name)}: Required value" for name in schema.get("required", ()) if name not in value)
    for name, each in value.items():
        if name in known:
            yield from _of_schema(known[name], each, _join(path, name))
        elif more is not None:
            yield from _of_schema(more, each, _join(path, name))
        elif known and not schema.get("x-kubernetes-preserve-unknown-fields"):
            yield f"{_join(path, name)}: unknown field"


def _of_list(schema: Json, value: list[Any], path: str) -> Iterator[str]:
    if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
        yield f"{path}: Invalid value: {len(value)} items"
    for number, each in enumerate(value):
        yield from _of_schema(schema["items"], each, f"{path}[{number}]")
    keys = schema.get("x-kubernetes-list-map-keys")
    named = [
        tuple(each.get(key) for key in keys) if keys else each for each in value if not keys or isinstance(each, dict)
    ]
    if "x-kubernetes-list-type" in schema and any(each in named[:number] for number, each in enumerate(named)):
        yield f"{path}: Duplicate value"


def _of_text(schema: Json, value: str, path: str) -> Iterator[str]:
    fits = schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value))
    fits = fits and re.search(schema.get("pattern", ""), value) is not None
    if not fits or (schema.get("format") == "date-time" and not _is_moment(value)):
        yield f"{path}: Invalid value: {value!r}"


def _is_moment(value: str) -> bool:
    """True for a moment as RFC 3339 has it, with its zone."""
    try:
        return datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        return False


def _of_rules(schema: Json, value: Any, old: Any, path: str) -> Iterator[str]:
    for rule in schema.get("x-kubernetes-validations", ()):
        if ("oldSelf" not in rule["rule"] or old is not None) and not _holds(rule["rule"], value, old):
            yield f"{path}: {rule['message']}"
    if isinstance(value, dict):
        for name, each in value.items():
            inner = schema.get("properties", {}).get(name) or schema.get("additionalProperties") or {}
            before = old.get(name) if isinstance(old, dict) else None
            yield from _of_rules(inner, each, before, _join(path, name))
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from _of_rules(schema.get("items", {}), each, None, f"{path}[{number}]")


def _holds(rule: str, value: Any, old: Any) -> bool:
    """A rule that cannot be evaluated does not hold."""
    result = _compiled(rule).eval(data={"self": value, "oldSelf": old}).value()
    return result is True


@cache
def _compiled(rule: str) -> cel.Expression:
    return _environment().compile(rule)


@cache
def _environment() -> cel.Env:
    """CEL with the part of Kubernetes' quantity library that the definitions use."""
    any_type, text, number = cel.Type.DYN, cel.Type.STRING, cel.Type.INT
    quantity = cel.Overload("quantity_of_text", any_type, [text], impl=_in_thousandths)
    compare = cel.Overload(
        "quantity_compare",
        number,
        [any_type, any_type],
        is_member=True,
        impl=lambda one, other: (one > other) - (one < other),
    )
    functions = [cel.FunctionDecl("quantity", [quantity]), cel.FunctionDecl("compareTo", [compare])]
    return cel.NewEnv(variables={"self": any_type, "oldSelf": any_type}, functions=functions)


def _in_thousandths(text: str) -> int:
    found = re.fullmatch(r"([0-9.]+)([A-Za-z]*)", text)
    assert found is not None, text
    return int(Decimal(found[1]) * UNITS.get(found[2], Decimal(1)) * 1000)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
