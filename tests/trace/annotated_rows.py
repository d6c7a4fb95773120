"""Reads annotated traces for tests: the rows on top, and what else differs."""

import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from lightning_gpuprof.trace.reader import Trace
from lightning_gpuprof.trace.tables import Spans

OURS = "gpuprof"
COUNTS = {"categories", "events", "bytes_json", "how"}
"""What a trace says of the whole file."""


def document_of(path: Path) -> Any:
    raw = path.read_bytes()
    text = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    try:
        return msgspec.json.decode(text)
    except ValueError:  # older writers leave control characters and bytes that are not UTF-8 in names
        return json.loads(text.decode("latin-1"), strict=False)


def events_of(path: Path) -> list[dict[str, Any]]:
    read = document_of(path)
    return list(read if isinstance(read, list) else read["traceEvents"])


def rows_of(path: Path) -> dict[str, list[tuple[str, float, float]]]:
    """Name, start and end of every stretch of our rows, by the name of the row."""
    return rows_of_events(events_of(path))


def rows_of_events(events: list[dict[str, Any]]) -> dict[str, list[tuple[str, float, float]]]:
    names = {one["tid"]: one["args"]["name"] for one in events if one.get("name") == "thread_name"}
    rows: dict[str, list[tuple[str, float, float]]] = defaultdict(list)
    for one in events:
        if one.get("cat") == OURS and one["ph"] == "X":
            rows[names[one["tid"]]].append((one["name"], one["ts"], one["ts"] + one["dur"]))
    return dict(rows)


def differing(one: Trace, other: Trace) -> list[str]:
    """Fields of two traces that are not equal."""
    found = []
    for name in Trace.__struct_fields__:
        a, b = getattr(one, name), getattr(other, name)
        if isinstance(a, Spans):
            found += [
                f"{name}.{of}" for of in a.__struct_fields__ if not np.array_equal(getattr(a, of), getattr(b, of))
            ]
        elif a != b:
            found.append(name)
    return found
