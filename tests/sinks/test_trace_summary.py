"""What is said of a trace in plain words, its tables, and its page."""

import re
from functools import cache
from pathlib import Path

import pytest
from recorded_traces import TRACES, recorded_analysis
from tiny_traces import Json, document, span, training_step, write

from lightning_gpuprof.model.trace.analysis import TraceAnalysis
from lightning_gpuprof.sinks.trace_html import render_trace_html
from lightning_gpuprof.sinks.trace_summary import device_sentences, sentences
from lightning_gpuprof.sinks.trace_table_names import NAMES
from lightning_gpuprof.sinks.trace_tables import CATALOGUE
from lightning_gpuprof.trace.analysis import analyse, first_rows
from lightning_gpuprof.trace.reader import Trace

recorded = pytest.mark.skipif(not TRACES.is_dir(), reason="no recorded traces beside the repository (../shared/traces)")


@cache
def real(name: str) -> TraceAnalysis:
    return recorded_analysis(f"{name}.json.gz")


def tiny(tmp_path: Path, events: list[Json], **more: object) -> TraceAnalysis:
    return analyse(Trace.read(write(tmp_path / "t.json", document(events, **more))))


def words(analysis: TraceAnalysis) -> str:
    return " ".join(sentences(analysis))


SAID = [
    # what the folder's README says of each, in our words
    ("v100_resnet50_dl0_2021", r"Idle 39 %: [\d.]+ % waiting for the DataLoader"),
    ("v100_2rank_rank1_comm_heavy", r"rank 1 of 2; .*Communication takes 21 % of GPU 1\'s time; 21 % is expo"),
    ("h100_bert_small", r"Idle 92 %: [\d.]+ % waiting for slow launches"),
    ("rtx2080ti_resnet", r"no steps; .*Idle 67 %: [\d.]+ % waiting for the DataLoader"),
    ("cpu_only_gloo300", r"rank 34 of 300; 5 steps.*This trace has no GPU work"),
    ("a100_alexnet_cuda_sync", r"Idle 99 %: [\d.]+ % while memory was allocated or freed"),
    (
        "mi300_8rank_rank0_resnet_ckpt",
        r"AMD Instinct MI300X; rank 0 of 8; 3 steps.*It takes 28\.9 ms per step.*64 % is expo",
    ),
    ("v100_ns_resolution", r"busy 98 % of 480 ms \(first to last kernel\)\."),
    ("h100_timesformer", r"Outside that span lies another 58 % of the step time"),
]


@recorded
@pytest.mark.parametrize(("name", "said"), SAID, ids=[name for name, _ in SAID])
def test_the_summary_says_what_a_trace_is_known_for(name: str, said: str) -> None:
    assert re.search(said, words(real(name))), words(real(name))


def test_work_launched_before_the_window_is_idle_time_without_an_explanation(tmp_path: Path) -> None:
    events = [span("kernel", "k", at, 10, device=0, stream=7, correlation=at) for at in (0, 50)]
    assert "67 % for no recorded reason" in words(tiny(tmp_path, events))


def test_an_analysis_that_failed_is_named(tmp_path: Path) -> None:
    analysis = TraceAnalysis(problems=("idle: ValueError: no",))
    assert "Not computed: idle: ValueError: no" in words(analysis)
    assert device_sentences(analysis) == []
    assert all(not entry.tables(analysis) for entry in CATALOGUE)


def test_one_kernel_and_one_step_are_singular(tmp_path: Path) -> None:
    events = [event for event in training_step() if event.get("name") in ("ProfilerStep#7", "gemm")]
    said = words(tiny(tmp_path, events))
    assert "1 step, 0.100 ms on the host" in said
    assert "1 kernel." in said


def test_every_table_has_a_name_of_its_own() -> None:
    assert tuple(entry.name for entry in CATALOGUE) == NAMES
    assert len(set(NAMES)) == len(NAMES)
    assert {"cuda_api_sum", "cuda_gpu_kern_sum", "cuda_gpu_mem_time_sum", "cuda_gpu_mem_size_sum"} <= set(NAMES)


def test_the_page_has_every_table_and_asks_no_host(tmp_path: Path) -> None:
    analysis = tiny(tmp_path, training_step(), deviceProperties=[{"id": 0, "name": "Tesla V100-SXM2-32GB"}])
    page = render_trace_html(analysis, name="<b>\udcff.json")
    assert "<h1>Trace <bdi>&lt;b&gt;" in page
    page.encode()  # a name that is not UTF-8 is no reason to fail
    for entry in CATALOGUE:
        for table in entry.tables(analysis):
            assert f"<summary>{table.title}".replace("'", "&#x27;") in page.replace("&#39;", "&#x27;"), table.title
    assert not re.search(r'(src|href)="(?!#)', page)


@recorded
def test_a_report_keeps_the_first_rows(tmp_path: Path) -> None:
    whole = real("h100_owlv2")
    kept = first_rows(whole, 5)
    assert kept.kernels.kernels == whole.kernels.kernels[:5]
    assert kept.kernels.count == whole.kernels.count
    assert len(kept.idle.devices[0].longest) == 5
