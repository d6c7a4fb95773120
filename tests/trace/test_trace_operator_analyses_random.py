"""Operators, step trace and roofline of random traces, many of them senseless: no error, and sums that hold."""

import io
import json
import random

import msgspec
import pytest
from tiny_traces import Json, span

from lightning_gpuprof.trace.analyses.operators.op_analyse import op_analyse
from lightning_gpuprof.trace.analyses.operators.operators import operators
from lightning_gpuprof.trace.analyses.operators.step_trace import step_trace
from lightning_gpuprof.trace.analyses.roofline.roofline import roofline
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.reader import Trace

NAMES = (
    "aten::mm",
    "aten::add",
    "aten::convolution_backward",
    "aten::cudnn_convolution",
    "aten::cudnn_convolution_backward",
    "aten::cudnn_convolution_backward_input",
    "MmBackward0",
    "ProfilerStep#1",
    "ProfilerStep#2",
    "enumerate(DataLoader)#x.__next__",
    "Optimizer.step#A.step",
    "## forward ##",
    "[pl][profile]x.backward",
    "aten::to",
    "",
    "Memcpy HtoD",
    "ncclKernel",
)
FOUR: list[object] = [[2, 3, 8, 8], [2, 3, 8, 8], [3, 3, 3, 3]]
SHAPES = (
    [[4, 4], [4, 4]],
    [],
    [[]],
    "bad",
    None,
    [*FOUR, *[[]] * 8],
    [[[1, 2], [3]], []],
    [[-1, 2]],
    [["a"]],
    [[4], 7],
    5,
)
TYPES = (["float", "float"], [], ["c10::Half", ""], ["float"] * 11, [3], "x", None)
VALUES = (["", "1"], [], None, ["[1, 1]"] * 11)
CATEGORIES = ("cpu_op", "cpu_op", "cpu_op", "user_annotation", "cuda_runtime", "kernel", "gpu_memcpy")


def random_trace(seed: int) -> LinkedTrace:
    chance = random.Random(seed)
    events: list[Json] = []
    for _ in range(chance.randint(0, 25)):
        category = chance.choice(CATEGORIES)
        said: dict[str, object] = {}
        if category == "cpu_op":
            said = {"Input Dims": chance.choice(SHAPES), "Input type": chance.choice(TYPES)}
            said |= {"Sequence number": chance.randint(-1, 4), "Fwd thread id": chance.choice([0, 0, 1])}
            if chance.random() < 0.3:
                said["Concrete Inputs"] = chance.choice(VALUES)
        elif category != "user_annotation":
            said = {"correlation": chance.randint(1, 8), "device": chance.choice([0, 0, 1]), "stream": 7}
        where = {"tid": chance.randint(1, 3)}
        event = span(category, chance.choice(NAMES), chance.randint(0, 60), chance.choice([0, 1, 5, 20, 50]), **where)
        events.append(event | {"args": said})
    devices: list[Json] = chance.choice([[], [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}], [{"id": 0}]])
    text = json.dumps({"traceEvents": events, "deviceProperties": devices})
    return LinkedTrace(Trace.read(io.BytesIO(text.encode())))


def ns(us: float | None) -> int:
    return round((us or 0.0) * 1000)


@pytest.mark.parametrize("block", range(4))
def test_any_trace_gives_results_whose_sums_hold(block: int) -> None:
    for seed in range(100 * block, 100 * block + 100):
        linked = random_trace(seed)
        found, steps, roof = operators(linked), step_trace(linked), roofline(linked)
        assert sum(ns(row.device_self_us) for row in found.operators) == ns(found.attributed_device_us), seed
        assert sum(ns(row.host_self_us) for row in found.operators) == ns(found.host_self_us), seed
        for row in steps.steps:
            assert sum(map(ns, row.phases_us.values())) + ns(row.other_us) == ns(row.total_us), seed
            assert row.other_us >= 0, seed
            assert all(ns(one.busy_us) + ns(one.idle_us) == ns(row.total_us) for one in row.devices), seed
        assert bool(roof.rows) != bool(roof.reason), seed
        names = [row.operator for row in found.operators]
        entries = op_analyse(linked, names) if names else []
        assert sum(one.occurrences for one in entries if one.side == "host") == found.calls, seed
        msgspec.json.encode((found, steps, roof, entries))
