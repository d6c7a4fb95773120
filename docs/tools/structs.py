"""Finds all structs that the fields of a msgspec struct lead to, and the places where each is found."""

import types
import typing
from collections.abc import Callable, Iterator

import msgspec

from docstrings import FieldDoc, class_doc

Struct = type[msgspec.Struct]

_JSON_TYPES: dict[object, str] = {
    float: "number",
    int: "integer",
    str: "text",
    bool: "true, false",
    type(None): "null",
    object: "anything",
    typing.Any: "anything",
}


def places(path: str, annotation: object, *, without: frozenset[Struct] = frozenset()) -> dict[Struct, list[str]]:
    """Structs below a field, in the order in which a reader meets them.

    Args:
        path: Name of the field in JSON, such as ``devices``.
        annotation: Its type.
        without: Structs that have a page elsewhere; neither they nor what is below them is listed.
    """
    found: dict[Struct, list[str]] = {}
    waiting = list(_direct(path, annotation))
    while waiting:
        where, struct = waiting.pop(0)
        if struct in without:
            continue
        if struct in found:
            found[struct].append(where)
            continue
        found[struct] = [where]
        for name, hint in hints_of(struct).items():
            waiting += _direct(f"{where}.{name}", hint)
    return found


def hints_of(struct: Struct) -> dict[str, object]:
    """The type of each field; what belongs to the class is none."""
    hints = typing.get_type_hints(struct)
    return {name: hints[name] for name in struct.__struct_fields__}


def _direct(path: str, annotation: object) -> Iterator[tuple[str, Struct]]:
    """Structs that an annotation names, ``[]`` after the path for each sequence and mapping around them."""
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        yield path, annotation
        return
    many = typing.get_origin(annotation) in (tuple, list, dict)
    for argument in typing.get_args(annotation):
        yield from _direct(f"{path}[]" if many else path, argument)


def json_type(hint: object, name_of: Callable[[Struct], str] = lambda struct: struct.__name__) -> str:
    """What a value of a type is in JSON, in words: "list of integer", "number or null", "`a`, `b`".

    Args:
        hint: A type as a struct's fields have it.
        name_of: How a struct is called.
    """
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return name_of(hint)
    if origin is typing.Literal:
        return ", ".join(f"`{word}`" for word in arguments)
    inner = [json_type(argument, name_of) for argument in arguments if argument is not Ellipsis]
    if origin in (typing.Union, types.UnionType):
        return " or ".join(inner)
    if origin is dict:
        return f"object: {inner[0]} → {inner[1]}"
    if origin is tuple and Ellipsis not in arguments:
        return f"list of {len(inner)}: {', '.join(inner)}"
    if origin in (tuple, list):
        return f"list of {inner[0]}"
    if hint not in _JSON_TYPES:
        raise LookupError(f"no word for {hint} in JSON: name it in _JSON_TYPES")
    return _JSON_TYPES[hint]


def fields(struct: Struct) -> tuple[FieldDoc, ...]:
    """Fields of a struct, those that it inherits first, with what its source says of them."""
    own = [one for one in reversed(struct.__mro__) if issubclass(one, msgspec.Struct) and one is not msgspec.Struct]
    return tuple(field for one in own for field in class_doc(one.__module__, one.__name__).fields)
