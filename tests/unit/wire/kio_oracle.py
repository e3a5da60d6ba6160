"""kio's generated schemas as an independent reading of the protocol: builds and writes any message of any version.

A message is described once for all versions as plain nested dicts with kio's field names; fields that a version does
not have are left out when its message is built.
"""

from __future__ import annotations

import datetime
import importlib
import io
import re
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, get_args
from uuid import UUID

from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_writer

from muster_coordinator.wire.api import Api


def folder(api_name: str) -> str:
    """Name in Python's way: OffsetCommit -> offset_commit."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", api_name).lower()


@cache
def schema(api_name: str, version: int, kind: str) -> Any:
    """The dataclass of a message. `kind`: "request" or "response"."""
    module = importlib.import_module(f"kio.schema.{folder(api_name)}.v{version}.{kind}")
    return getattr(module, api_name + kind.capitalize())


@cache
def versions(api_name: str) -> tuple[int, ...]:
    package = importlib.import_module(f"kio.schema.{folder(api_name)}")
    names = {child.name for path in package.__path__ for child in Path(path).iterdir()}
    return tuple(sorted(int(name[1:]) for name in names if re.fullmatch(r"v\d+", name)))


def encode(api: Api, version: int, kind: str, description: dict[str, Any]) -> bytes:
    return _write(_build(schema(api.name, version, kind), description))


def encode_request_header(api: Api, version: int, correlation_id: int, client_id: str | None) -> bytes:
    header = schema(api.name, version, "request").__header_schema__
    return _write(
        header(
            request_api_key=api.key,
            request_api_version=version,
            correlation_id=correlation_id,
            client_id=client_id,
        )
    )


def encode_response_header(api: Api, version: int, correlation_id: int) -> bytes:
    return _write(schema(api.name, version, "response").__header_schema__(correlation_id=correlation_id))


def _write(entity: Any) -> bytes:
    out = io.BytesIO()
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


def _build(kind: Any, description: dict[str, Any]) -> Any:
    values = {}
    for field in fields(kind):
        if field.name == "throttle_time":
            values[field.name] = datetime.timedelta()
        elif field.name in description:
            values[field.name] = _convert(field, description[field.name])
        elif field.default is MISSING and field.default_factory is MISSING:
            raise KeyError(f"{kind.__name__} needs {field.name}")
    return kind(**values)


def _convert(field: Any, value: Any) -> Any:
    match field.metadata.get("kafka_type"):
        case "timedelta_i32" | "timedelta_i64":
            return datetime.timedelta(milliseconds=value)
        case "error_code":
            return KioErrorCode(value)
        case "uuid":
            return UUID(bytes=value)
        case None if value is not None:
            element = _element(field.type)
            if isinstance(value, dict):
                return _build(element, value)
            return tuple(_build(element, each) for each in value)
    return value


def _element(annotation: Any) -> Any:
    """The dataclass inside `tuple[X, ...]` or `tuple[X, ...] | None`."""
    if is_dataclass(annotation):
        return annotation
    for argument in get_args(annotation):
        found = _element(argument)
        if found is not None:
            return found
    return None
