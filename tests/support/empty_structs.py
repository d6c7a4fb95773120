"""Structs of which a test says only what matters to it."""

import types
from collections.abc import Mapping
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

import msgspec

Made = TypeVar("Made", bound=msgspec.Struct)


def empty(kind: type[Made], /, **values: Any) -> Made:
    """A struct whose other required fields are empty: None where that is allowed, else 0, nothing, or the first word.

    Args:
        kind: The struct's class.
        values: Of fields.
    """
    required = (field for field in msgspec.structs.fields(kind) if field.required and field.name not in values)
    return kind(**{field.name: _empty(field.type) for field in required}, **values)


def _empty(kind: Any) -> Any:
    parts = get_args(kind)
    if get_origin(kind) in (Union, types.UnionType) and type(None) in parts:
        return None
    if get_origin(kind) is Literal:
        return parts[0]
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return empty(kind)
    origin = get_origin(kind) or kind
    return {} if origin is Mapping else origin()
