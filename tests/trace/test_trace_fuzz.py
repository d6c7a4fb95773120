"""Whatever is in a file: results that hold together, or an error for people; never another exception."""

import gzip
import json
import os
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from recorded_traces import TRACES
from tiny_traces import document, kineto_text, training_step

from lightning_gpuprof.cli.trace_outputs import diagnosis
from lightning_gpuprof.errors import TraceError
from lightning_gpuprof.model.trace.analysis import TraceAnalysis
from lightning_gpuprof.sinks.trace_html import render_trace_html
from lightning_gpuprof.sinks.trace_summary import sentences
from lightning_gpuprof.sinks.trace_tables import CATALOGUE
from lightning_gpuprof.trace.analyses.health.kineto_facts import kineto_facts
from lightning_gpuprof.trace.analysis import analyse
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.reader import Trace

FEW, MANY = 50, int(os.environ.get("GPUPROF_FUZZ_EXAMPLES", "250"))
"""Examples in the quick run, and in the slow one. More find more: ``GPUPROF_FUZZ_EXAMPLES=20000 pytest -m slow
tests/trace/test_trace_fuzz.py``."""
SMALL = sorted(path for path in TRACES.glob("*.json.gz") if path.stat().st_size < 40_000) if TRACES.is_dir() else []


def read(path: Path) -> Trace | TraceError:
    try:
        return Trace.read(path)
    except TraceError as error:
        return error


def check(path: Path) -> None:
    """Read and analyse a file; what comes out must hold together."""
    trace = read(path)
    if isinstance(trace, TraceError):
        assert path.name in str(trace)
        return
    linked = LinkedTrace(trace)
    facts = kineto_facts(linked, sha256="", bytes_file=0)
    for device in facts.devices.values():
        assert 0 <= device.busy_us <= device.window_us
        assert device.busy_us + device.idle_us == pytest.approx(device.window_us, abs=0.002)
        assert 0 <= device.comm_exposed_us <= device.comm_us
    assert facts.gpu_matched + facts.gpu_unmatched == facts.n_kernel + facts.n_memcpy + facts.n_memset
    analysis = analyse(linked)
    assert analysis.problems == ()
    hold_together(analysis)
    assert msgspec.json.decode(msgspec.json.encode(analysis), type=TraceAnalysis) == analysis
    assert all(sentences(analysis))
    for entry in CATALOGUE:
        for table in entry.tables(analysis):
            assert table.rows or table.absent
            assert all(len(row) == len(table.columns) for row in table.rows)
    told = diagnosis(linked, analysis)
    assert not [one for one in told.need_a_run if one.why.startswith("failed")]
    assert "</html>" in render_trace_html(analysis, name=path.name, diagnosis=told)


def hold_together(analysis: TraceAnalysis) -> None:
    for device in analysis.idle.devices:
        assert device.busy_us + device.idle_us == pytest.approx(device.window_us, abs=0.002)
        assert sum(cause.idle_us for cause in device.causes) == pytest.approx(device.idle_us, abs=0.01)
        assert all(cause.idle_us >= 0 for cause in device.causes)
    assert sum(row.total_us for row in analysis.kernels.classes) == pytest.approx(analysis.kernels.total_us, abs=0.01)
    for one in analysis.communication.devices:
        assert 0 <= one.exposed_us <= one.communication_us <= one.window_us
    assert 0 <= analysis.sync_points.cost_us <= analysis.sync_points.idle_us + 0.01


# ---------------------------------------------------------------- any values in any field

NAMES = st.sampled_from(
    [
        "aten::mm", "aten::item", "cudaLaunchKernel", "cudaStreamSynchronize", "cudaMemcpyAsync",
        "ncclKernel_AllReduce", "volta_sgemm_128x32_nt", "ProfilerStep#1",
        "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
        "Memcpy HtoD (Pageable -> Device)", "train.py(3): f", "nn.Module: Linear_0",
        "autograd::engine::evaluate_function: MmBackward0",
        "Optimizer.step#SGD.step", "void at::native::vectorized_elementwise_kernel<4>", "", "\x1b[31m", "名前",
    ]
)  # fmt: skip
CATEGORIES = st.sampled_from(
    [
        "kernel", "gpu_memcpy", "gpu_memset", "cuda_runtime", "cuda_driver", "cpu_op", "python_function",
        "user_annotation", "overhead", "cuda_sync", "Kernel", "Operator", "ac2g", "new_category",
    ]
)  # fmt: skip
NUMBERS = st.one_of(
    st.integers(-5, 60), st.floats(0, 60, allow_nan=False), st.integers(), st.floats(), st.none(), st.text(max_size=4)
)
SMALL_IDS = st.one_of(st.integers(0, 6), st.none(), st.text(max_size=3), st.integers())
SHAPES: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.integers(-3, 70), st.none(), st.text(max_size=3)),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=12,
)
ARGUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "correlation": SMALL_IDS,
        "External id": SMALL_IDS,
        "device": SMALL_IDS,
        "stream": SMALL_IDS,
        "bytes": NUMBERS,
        "grid": SHAPES,
        "block": SHAPES,
        "registers per thread": NUMBERS,
        "shared memory": NUMBERS,
        "blocks per SM": NUMBERS,
        "est. achieved occupancy %": NUMBERS,
        "Collective name": st.one_of(st.sampled_from(["allreduce", "send"]), SHAPES),
        "In msg nelems": NUMBERS,
        "Group size": NUMBERS,
        "Sequence number": SMALL_IDS,
        "Fwd thread id": SMALL_IDS,
        "Python id": SMALL_IDS,
        "Python parent id": SMALL_IDS,
        "Call stack": st.one_of(st.just("a.py(3): f;b.py(4): g"), st.just(""), st.none(), SHAPES),
        "Input Dims": SHAPES,
        "Input type": SHAPES,
        "Concrete Inputs": SHAPES,
    },
)
EVENTS = st.fixed_dictionaries(
    {
        "ph": st.just("X"),
        "cat": CATEGORIES,
        "name": NAMES,
        "ts": st.one_of(st.integers(0, 60), NUMBERS),
        "dur": NUMBERS,
    },
    optional={"pid": SMALL_IDS, "tid": SMALL_IDS, "args": st.one_of(ARGUMENTS, st.none())},
)
PROPERTIES = st.one_of(
    st.none(),
    st.lists(
        st.fixed_dictionaries(
            {"id": SMALL_IDS, "name": st.sampled_from(["Tesla V100-SXM2-32GB", "x"])},
            optional={
                "numSms": NUMBERS,
                "warpSize": NUMBERS,
                "regsPerMultiprocessor": NUMBERS,
                "computeMajor": NUMBERS,
            },
        ),
        max_size=2,
    ),
    SHAPES,
)


@pytest.mark.parametrize("examples", [FEW, pytest.param(MANY, marks=pytest.mark.slow)], ids=["few", "many"])
def test_any_values_in_any_field(tmp_path: Path, examples: int) -> None:
    @settings(
        max_examples=examples, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
    )
    @given(
        events=st.lists(EVENTS, max_size=25),
        properties=PROPERTIES,
        distributed=st.one_of(st.none(), st.dictionaries(st.sampled_from(["rank", "world_size"]), NUMBERS), SHAPES),
    )
    def holds_together(events: Any, properties: Any, distributed: Any) -> None:
        document = {"deviceProperties": properties, "distributedInfo": distributed, "traceEvents": events}
        (tmp_path / "t.json").write_text(json.dumps(document))
        check(tmp_path / "t.json")

    holds_together()


# ---------------------------------------------------------------- damaged files


def damaged(data: bytes, rng: random.Random) -> bytes:
    text = bytearray(data)
    way = rng.randrange(4)
    if way == 0:
        for _ in range(rng.randint(1, 8)):
            text[rng.randrange(len(text))] = rng.randrange(256)
    elif way == 1:
        del text[rng.randrange(len(text)) :]
    elif way == 2:
        at = rng.randrange(len(text))
        del text[at : at + rng.randint(1, 400)]
    else:
        at = rng.randrange(len(text))
        text[at:at] = text[rng.randrange(len(text)) :][: rng.randint(1, 400)]
    return bytes(text)


@pytest.mark.parametrize("seed", range(60))
def test_flipped_lost_and_doubled_bytes(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    text = kineto_text(training_step()) if seed % 2 else json.dumps(document(training_step()))
    path = tmp_path / "t.json"
    path.write_bytes(damaged(text.encode(), rng))
    check(path)


@pytest.mark.skipif(not SMALL, reason="no recorded traces beside the repository (../shared/traces)")
@pytest.mark.parametrize("source", SMALL, ids=lambda path: path.name)
def test_damaged_recorded_traces(tmp_path: Path, source: Path) -> None:
    rng = random.Random(source.name)
    packed = source.read_bytes()
    plain = gzip.decompress(packed)
    for number in range(6):
        path = tmp_path / f"{number}.json"
        path.write_bytes(damaged(packed if number % 3 == 2 else plain, rng))
        check(path)
