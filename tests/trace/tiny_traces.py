"""Builds traces of a few events as Kineto and other writers lay them out."""

import gzip
import io
import json
import random
from pathlib import Path

from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.reader import Trace

Json = dict[str, object]


def span(cat: str, name: object, ts: object, dur: object, *, pid: object = 1, tid: object = 1, **args: object) -> Json:
    """An event with a duration; arguments with a blank in their name are given as ``External_id``."""
    named = {key.replace("_", " ") if key != "device_id" else "Device Id": value for key, value in args.items()}
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": named}


def kernel(
    name: str, ts: float, dur: float, correlation: int = 0, *, stream: int = 7, device: int = 0, **args: object
) -> Json:
    return span(
        "kernel", name, ts, dur, pid=0, tid=stream, device=device, stream=stream, correlation=correlation, **args
    )


def step(number: int, ts: float, dur: float) -> Json:
    return span("user_annotation", f"ProfilerStep#{number}", ts, dur)


def random_calls(rng: random.Random, start: int, end: int, depth: int = 0) -> list[tuple[int, int]]:
    """Begins and ends as a call stack makes them, some of them empty, some as long as the one around them."""
    spans: list[tuple[int, int]] = []
    at = start
    while at < end and depth < 5:
        begin = rng.randint(at, end)
        stop = rng.randint(begin, end)
        spans.append((begin, stop))
        spans += random_calls(rng, begin, stop, depth + 1)
        at = stop + rng.randint(0, 3)
    return spans


def training_step() -> list[Json]:
    """One step in µs: a fetch [0, 30), two operators, two kernels on two streams and a copy, one orphan."""
    return [
        span("user_annotation", "ProfilerStep#7", 0, 100, External_id=1),
        span("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 0, 30),
        span("cpu_op", "aten::linear", 30, 40, External_id=2),
        span("cpu_op", "aten::addmm", 35, 20, External_id=3),
        span("cuda_runtime", "cudaLaunchKernel", 40, 5, correlation=11, External_id=3),
        span("cuda_driver", "cuLaunchKernel", 46, 5, correlation=12, External_id=3),
        span("cuda_runtime", "cudaMemcpyAsync", 60, 5, correlation=13, External_id=2),
        span("kernel", "before the window", 5, 5, pid=0, tid=7, device=0, stream=7, correlation=3),
        span("kernel", "gemm", 50, 20, pid=0, tid=7, device=0, stream=7, correlation=11),
        span("kernel", "relu", 60, 20, pid=0, tid=9, device=0, stream=9, correlation=12),
        span("gpu_memcpy", "Memcpy HtoD", 90, 5, pid=0, tid=7, device=0, stream=7, correlation=13, bytes=4096),
        {"ph": "s", "id": 11, "pid": 1, "tid": 1, "ts": 40, "cat": "ac2g", "name": "ac2g"},
        {"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "ts": 0, "args": {"name": "python"}},
        {"name": "Record Window End", "ph": "i", "s": "g", "pid": "", "tid": "", "ts": 100},
    ]


def document(events: list[Json], **tail: object) -> Json:
    return {"schemaVersion": 1, "deviceProperties": [{"id": 0}, {"id": 1}], "traceEvents": events, **tail}


def kineto_text(events: list[Json], **tail: object) -> str:
    """The line layout of Kineto: each brace of an event on a line of its own."""
    written = ",\n".join(f"  {{\n    {json.dumps(event)[1:-1]}\n  }}" for event in events)
    after = "".join(f",\n  {json.dumps(key)}: {json.dumps(value)}" for key, value in tail.items())
    devices = ",\n".join(f'    {{\n      "id": {number}\n    }}' for number in (0, 1))
    head = f'{{\n  "schemaVersion": 1,\n  "deviceProperties": [\n{devices}\n  ],'
    return f'{head}\n  "traceEvents": [\n{written}\n  ]{after}\n}}\n'


def linked_trace(events: list[Json], *, frames: bool = True, **tail: object) -> LinkedTrace:
    """A trace of these events, as read from a file that is open."""
    file = io.BytesIO(json.dumps(document(events, **tail)).encode())
    return LinkedTrace(Trace.read(file, frames=frames))


def write(path: Path, content: object) -> Path:
    """Write text, bytes or JSON; gzip if the name says so."""
    if isinstance(content, bytes):
        data = content
    elif isinstance(content, str):
        data = content.encode()
    else:
        data = json.dumps(content).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path
