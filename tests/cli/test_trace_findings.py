"""What ``gpuprof trace`` says first of recorded traces: expected from their ground truth before it was run."""

from pathlib import Path

import msgspec
import pytest
from python_process import run_python

from lightning_gpuprof.cli import trace_outputs
from lightning_gpuprof.cli.main import main
from lightning_gpuprof.model.finding import NotEvaluated
from lightning_gpuprof.model.trace.analysis import TraceDiagnosis
from lightning_gpuprof.sinks import trace_html, trace_summary

FIRST: dict[str, tuple[str | None, str]] = {
    "a100_2rank_nccl_metadata": ("launch-bound", "idle for 76 %, communication 6 %"),
    "a100_8rank_rank3_callstack": ("exposed-comm", "19 % of the step communicates while nothing computes"),
    "a100_alexnet_cuda_sync": (None, "a first pass: 99 % idle, most of it in cudaMalloc, which a run tells"),
    "a100_event_sync_multistream_tiny": (None, "6 kernels in 20 ms: the host does other work, no launch is late"),
    "a100_event_sync_tiny": (None, "a window of 0.26 ms: nothing costs 0.2 ms"),
    "a100_triton_tiny": (None, "one kernel of one block, never idle"),
    "cpu_only_gloo300": (None, "no device"),
    "gp100_gpu_user_annotation": ("launch-bound", "a toy: idle for 96 %"),
    "h100_bert_small": ("launch-bound", "a tiny model: idle for 92 % before launches"),
    "h100_nsfw_vit": ("launch-bound", "one image: idle for 84 % before launches"),
    "h100_owlv2": ("input-bound", "fetches of 619 ms: the device waits for them 46 % of the time"),
    "h100_timesformer": ("attention-unfused", "idle for 1 %, attention in pieces"),
    "mi210_gpu_only": (None, "busy for 89 %, no operators"),
    "mi250_minitoy_rocm62": (None, "a toy: idle for 98 %, of which late launches are 14 %"),
    "mi300_8rank_rank0_resnet_ckpt": ("exposed-comm", "64 % of the step communicates while nothing computes"),
    "mi300_torch_compile_triton": (None, "compiled, never idle"),
    "old_async_gpu_tiny": (None, "4 kernels in 1.6 ms, between them the host does other work"),
    "rtx2080ti_resnet": ("input-bound", "fetches of 8.2 s: the device waits for them 46 % of the time"),
    "v100_2rank_rank1_comm_heavy": ("launch-bound", "idle for 42 %, communication 21 %"),
    "v100_dlrm_8rank_0": ("exposed-comm", "communication 43 %, idle for 49 %, of which late launches are 36"),
    "v100_dlrm_8rank_1": ("exposed-comm", "communication 59 %, idle for 34 %"),
    "v100_dlrm_8rank_2": ("launch-bound", "idle for 62 %"),
    "v100_dlrm_8rank_3": ("exposed-comm", "communication 50 %, idle for 43 %"),
    "v100_dlrm_8rank_4": ("launch-bound", "idle for 54 %, communication 39 %"),
    "v100_dlrm_8rank_5": ("launch-bound", "idle for 56 %, communication 38 %"),
    "v100_dlrm_8rank_6": ("launch-bound", "idle for 62 %"),
    "v100_dlrm_8rank_7": ("launch-bound", "idle for 76 %"),
    "v100_ns_resolution": ("tc-unused", "idle for 2 %, products in fp32 on a V100"),
    "v100_resnet50_dl0_2021": ("input-bound", "no workers: fetches of 416 ms"),
    "v100_resnet50_dl0_preschema": ("launch-bound", "launches 27 %, fetches 22 %: no workers"),
}
"""First finding above information, None if there is none, and what the facts of the trace are."""


def diagnosed(path: Path) -> TraceDiagnosis:
    linked = trace_outputs.read(path)
    return trace_outputs.diagnosis(linked, trace_outputs.analysis(linked, None))


@pytest.mark.parametrize("name", FIRST)
def test_the_first_finding_of_a_recorded_trace(shared: Path, name: str) -> None:
    found = diagnosed(shared / "traces" / f"{name}.json.gz")
    loud = [finding.rule for finding in found.findings if finding.severity != "info"]
    assert next(iter(loud), None) == FIRST[name][0], [finding.summary for finding in found.findings]
    assert not [one for one in found.need_a_run if one.why.startswith("failed")]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("h100_owlv2", "step time, 1.08 s from the first to the last kernel. On the host a step took 1.21 s;"),
        ("h100_timesformer", "step time, 160 ms from the first to the last kernel. On the host a step took 383 ms;"),
        ("a100_2rank_nccl_metadata", ""),
        ("cpu_only_gloo300", ""),
    ],
)
def test_where_the_step_of_findings_is_not_that_of_the_table_it_is_said(shared: Path, name: str, words: str) -> None:
    said = " ".join(diagnosed(shared / "traces" / f"{name}.json.gz").caveats)
    assert words in said
    assert bool(words) == bool(said)


def test_the_text_begins_with_verdict_finding_and_fix(shared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["trace", str(shared / "traces" / "h100_bert_small.json.gz")])
    first, *rest = " ".join(capsys.readouterr().out.split()).partition("rules need a run")
    assert "Host-bound" in first
    assert (
        first.index("Host-bound") < first.index("launch-bound") < first.index("fix") < first.index("gain up to 5.08x")
    )
    assert "GPU 0 is busy" in rest[1]


def test_the_page_begins_with_them_too(shared: Path, tmp_path: Path) -> None:
    main(
        [
            "trace",
            str(shared / "traces" / "h100_bert_small.json.gz"),
            "--html",
            str(tmp_path / "t.html"),
            "--table",
            "idle",
        ]
    )
    page = (tmp_path / "t.html").read_text()
    assert page.index("Host-bound") < page.index('class="finding critical"') < page.index('id="summary"')
    assert page.index("rules need a run") < page.index('id="summary"')


def test_a_trace_of_our_own_without_a_device_has_no_finding_but_a_verdict(tmp_path: Path) -> None:
    """Whatever a trace lacks is told as missing, and no rule fails on it."""
    trace = tmp_path / "empty.json"
    trace.write_text('{"traceEvents": []}')
    found = diagnosed(trace)
    assert (found.verdict.kind, found.findings) == ("not-enough-data", ())
    assert not [one for one in found.need_a_run if one.why.startswith("failed")]


@pytest.mark.parametrize("options", [("--json",), ("--table", "steps")], ids=" ".join)
def test_facts_and_single_tables_ask_no_rule(shared: Path, options: tuple[str, ...]) -> None:
    """``--json`` is for programs that call it for many traces."""
    code = (
        "import sys; from lightning_gpuprof.cli.main import main;"
        f"main(['trace', {str(shared / 'traces' / 'a100_triton_tiny.json.gz')!r}, *{options}]);"
        "assert not [name for name in sys.modules if name.startswith('lightning_gpuprof.rules')]"
    )
    run_python("-c", code)


@pytest.mark.parametrize("name", ["a100_2rank_nccl_metadata", "h100_nsfw_vit", "cpu_only_gloo300"])
def test_what_is_printed_without_tables_needs_no_other_analysis(shared: Path, name: str) -> None:
    linked = trace_outputs.read(shared / "traces" / f"{name}.json.gz")
    whole = trace_outputs.analysis(linked, None)
    part = trace_outputs.analysis(linked, None, only=trace_outputs.printed_analyses(()))
    assert part.timeline is None
    assert trace_outputs.diagnosis(linked, part) == trace_outputs.diagnosis(linked, whole)
    assert trace_summary.sentences(part) == trace_summary.sentences(whole)


def test_rules_that_only_lack_shapes_need_no_run(shared: Path) -> None:
    whys = ("there is no run", "the GPU was not sampled", "the window was recorded without shapes")
    rules = tuple(NotEvaluated(rule=f"rule-{number}", why=why) for number, why in enumerate(whys))
    found = diagnosed(shared / "traces" / "h100_bert_small.json.gz")
    page = trace_html.findings_section(msgspec.structs.replace(found, need_a_run=rules))
    assert "2 rules need a run" in page
    assert "1 rule needs the shapes of inputs" in page


def test_the_page_of_a_large_trace_is_far_below_its_limit(shared: Path, tmp_path: Path) -> None:
    """400 kB is the most that a page may have; nothing of this one is left out."""
    page = tmp_path / "t.html"
    main(["trace", str(shared / "traces" / "a100_8rank_rank3_callstack.json.gz"), "--html", str(page)])
    assert page.stat().st_size <= 360_000
