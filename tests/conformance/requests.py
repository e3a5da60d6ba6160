"""Requests of any version from one set of fields: what a version does not have is left out."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import importlib
import pkgutil
import types
import typing
import uuid
from typing import Any

from tests.support.kafka import entity
from tests.support.kafka_4_4 import SCHEMAS


def build(api: str, version: int, fields: dict[str, Any]) -> Any:
    """The request entity. A field that no version of the API has is a mistake of the script: KeyError."""
    unknown = fields.keys() - _fields_of_any_version(api)
    if unknown:
        raise KeyError(f"{api} has no field {sorted(unknown)}")
    return _entity(entity(api, version), fields)


@functools.cache
def _fields_of_any_version(api: str) -> frozenset[str]:
    package = importlib.import_module(f"kio.schema.{api}")
    names: set[str] = set()
    for module in pkgutil.iter_modules(package.__path__):
        names.update(f.name for f in dataclasses.fields(entity(api, int(module.name[1:]))))
    for of_api, version, part in SCHEMAS:
        if (of_api, part) == (api, "request"):
            names.update(f.name for f in dataclasses.fields(entity(api, version)))
    return frozenset(names)


@functools.cache
def _types(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _entity(cls: Any, fields: dict[str, Any]) -> Any:
    values: dict[str, Any] = {}
    for field in dataclasses.fields(cls):
        kind = _types(cls)[field.name]
        if field.name in fields:
            values[field.name] = _value(kind, fields[field.name])
        elif field.default is dataclasses.MISSING:
            values[field.name] = _zero(kind)
    return cls(**values)


def _value(kind: Any, value: Any) -> Any:
    arguments = typing.get_args(kind)
    if value is None:
        return None
    if isinstance(value, list | tuple) and arguments:
        options = [kind, *arguments] if isinstance(kind, types.UnionType) else [kind]
        sequence = next(o for o in options if typing.get_origin(o) is tuple)
        element = typing.get_args(sequence)[0]
        return tuple(_value(element, item) for item in value)
    if isinstance(value, dict):
        return _entity(next((option for option in arguments if dataclasses.is_dataclass(option)), kind), value)
    if isinstance(value, int) and isinstance(kind, type) and issubclass(kind, datetime.timedelta):
        return datetime.timedelta(milliseconds=value)
    return value


def _zero(kind: Any) -> Any:
    if isinstance(kind, types.UnionType):
        return None
    if typing.get_origin(kind) is tuple:
        return ()
    for base, zero in ((bool, False), (str, ""), (bytes, b""), (int, 0), (datetime.timedelta, datetime.timedelta())):
        if issubclass(kind, base):
            return zero
    if issubclass(kind, uuid.UUID):
        return uuid.UUID(int=0)
    return _entity(kind, {})
