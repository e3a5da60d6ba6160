"""OpenAPI v3 structural schemas of the resource models, for CustomResourceDefinitions.

Only what the models use is translated; anything else raises TypeError, so that a new kind of field cannot slip through
without a schema.
"""

from __future__ import annotations

import inspect
from typing import Any

import msgspec
from msgspec import inspect as types

Schema = dict[str, Any]


def struct_schema(struct: type[msgspec.Struct], *, defaults: bool) -> Schema:
    """Schema of a struct class; `defaults` puts the fields' defaults into it (wanted in spec, not in status)."""
    return _schema(types.type_info(struct), defaults)


def _schema(info: types.Type, defaults: bool) -> Schema:
    match info:
        case types.Metadata(type=inner, extra_json_schema=extra):
            return {**(extra or {}), **_schema(inner, defaults), **_description(extra)}
        case types.StructType():
            return _struct(info, defaults)
        case types.UnionType(types=members):
            # Optional means absent, never null: the API server prunes nulls of fields that are not nullable.
            given = [member for member in members if not isinstance(member, types.NoneType)]
            match given:
                case [member]:
                    return _schema(member, defaults)
                case [types.IntType(), types.StrType() as text]:
                    return _int_or_string(text)
            raise TypeError(f"no schema for {info}")
        case types.DictType(value_type=types.AnyType()):
            return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        case types.DictType(value_type=value):
            return _bounds(
                {"type": "object", "additionalProperties": _schema(value, defaults)}, maxProperties=info.max_length
            )
        case types.VarTupleType(item_type=item):
            return _bounds(
                {"type": "array", "items": _schema(item, defaults)}, minItems=info.min_length, maxItems=info.max_length
            )
        case _:
            return _scalar(info)


def _int_or_string(text: types.StrType) -> Schema:
    return _bounds(
        {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True},
        maxLength=text.max_length,
        pattern=text.pattern,
    )


def _scalar(info: types.Type) -> Schema:
    match info:
        case types.BoolType():
            return {"type": "boolean"}
        case types.IntType():
            bounds = _bounds({"type": "integer", "format": "int64"}, minimum=info.ge, maximum=info.le)
            return bounds if info.lt is None else {**bounds, "maximum": info.lt - 1}
        case types.StrType():
            return _bounds(
                {"type": "string"}, minLength=info.min_length, maxLength=info.max_length, pattern=info.pattern
            )
        case types.LiteralType(values=values):
            return {"type": "string" if isinstance(values[0], str) else "integer", "enum": list(values)}
        case types.EnumType(cls=cls):
            return {"type": "string", "enum": [member.value for member in cls]}
        case _:
            raise TypeError(f"no schema for {info}")


def _struct(info: types.StructType, defaults: bool) -> Schema:
    properties: Schema = {}
    for field in info.fields:
        schema = _schema(field.type, defaults)
        default = _default(field)
        if defaults and default is not None:
            schema["default"] = default
        properties[field.encode_name] = schema
    required = [field.encode_name for field in info.fields if field.required]
    schema = {"type": "object", "description": inspect.getdoc(info.cls), "properties": properties}
    return {**schema, "required": required} if required else schema


def _default(field: types.Field) -> Any:
    """The default that the API server shall fill in; None for "absent"."""
    return None if field.default is msgspec.NODEFAULT else _without_empty(msgspec.to_builtins(field.default))


def _without_empty(value: Any) -> Any:
    """The value without what means "absent". Rules (CEL) see a default as it is written, so it is written in full."""
    if isinstance(value, dict):
        kept = {name: _without_empty(each) for name, each in value.items()}
        return {name: each for name, each in kept.items() if each is not None} or None
    if isinstance(value, list | tuple):
        return [_without_empty(each) for each in value] or None
    return None if value in (None, "") else value


def _bounds(schema: Schema, **limits: Any) -> Schema:
    return {**schema, **{name: limit for name, limit in limits.items() if limit is not None}}


def _description(extra: Schema | None) -> Schema:
    """The description of a field wins over the docstring of its type."""
    return {"description": extra["description"]} if extra and "description" in extra else {}
