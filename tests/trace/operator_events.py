"""Builds traces of operators with shapes, launches and device work."""

from tiny_traces import Json, span

MAIN, AUTOGRAD = 1, 2


def op(name: str, ts: float, dur: float, *, tid: int = MAIN, **args: object) -> Json:
    return span("cpu_op", name, ts, dur, tid=tid, **args)


def with_inputs(event: Json, shapes: list[object], types: list[str], values: list[str] | None = None) -> Json:
    said: dict[str, object] = {"Input Dims": shapes, "Input type": types}
    return event | {"args": said if values is None else said | {"Concrete Inputs": values}}


def launch(
    ts: float, correlation: int, dur: float, *, tid: int = MAIN, cat: str = "kernel", name: str = "k"
) -> list[Json]:
    """A call of 1 µs and its work, far behind on the device."""
    work = span(cat, name, 1000 + ts, dur, pid=0, tid=7)
    work["args"] = {"device": 0, "stream": 7, "correlation": correlation}
    return [span("cuda_runtime", "cudaLaunchKernel", ts, 1, tid=tid, correlation=correlation), work]


def calls() -> list[Json]:
    """A linear of 40 µs around an addmm of 20 with two kernels (7 and 5 µs) and a kernel of its own (3); a lone one."""
    return [
        op("aten::linear", 10, 40),
        op("aten::addmm", 20, 20),
        *launch(22, 1, 7),
        *launch(24, 2, 5),
        *launch(45, 3, 3),
        *launch(80, 4, 11),
    ]


SQUARE = [[64, 64], [64, 64]]


def shaped() -> list[Json]:
    """Two products of one shape, one of them without a launch, and one of another shape."""
    return [
        with_inputs(op("aten::mm", 0, 10), list(SQUARE), ["float", "float"], ["", ""]),
        *launch(2, 1, 4),
        with_inputs(op("aten::mm", 20, 30), list(SQUARE), ["float", "float"], ["", ""]),
        with_inputs(op("aten::mm", 60, 10), [[8, 64], [64, 2]], ["c10::Half", "c10::Half"], ["", ""]),
        *launch(62, 2, 1),
    ]
