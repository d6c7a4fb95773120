"""All rows of a trace, in an order that does not depend on how it was read."""

from lightning_gpuprof.trace.reader import Trace
from lightning_gpuprof.trace.tables import Spans


def rows(trace: Trace, table: str) -> list[tuple[object, ...]]:
    """A table with its labels spelled out, so that traces with other numbers for them compare equal."""
    spans: Spans = getattr(trace, table)
    columns = []
    for field in spans.__struct_fields__:
        numbers = getattr(spans, field).tolist()
        if field in LABELS:
            texts = getattr(trace, LABELS[field])
            numbers = [texts[number] if number >= 0 else None for number in numbers]
        columns.append(numbers)
    return sorted(zip(*columns, strict=True), key=repr)


def content(trace: Trace) -> dict[str, list[tuple[object, ...]]]:
    return {table: rows(trace, table) for table in TABLES}


TABLES = ("kernel", "memcpy", "memset", "device_wait", "runtime", "cpu_op", "annotation", "python_function", "overhead")


LABELS = {
    "name": "names",
    "thread": "threads",
    "device": "devices",
    "stack": "stacks",
    "geometry": "geometries",
    "inputs": "inputs",
    "collective": "collectives",
}
