"""What ``gpuprof trace`` finds in recorded traces: expected from the facts that a slow, independent program found."""

import io
import re
from functools import cache
from pathlib import Path

import msgspec
import pytest
from python_process import run_python
from recorded_traces import TRUTH, recorded_analysis, recorded_trace
from rich.console import Console
from trusted import assert_can_be_trusted

from lightning_gpuprof.cli import trace_outputs
from lightning_gpuprof.cli.main import main
from lightning_gpuprof.model.finding import NotEvaluated
from lightning_gpuprof.model.trace.analysis import TraceDiagnosis
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.device_causes import COMMUNICATION_RATIO
from lightning_gpuprof.rules.host_causes import HOST_RATIO
from lightning_gpuprof.sinks import trace_html, trace_summary, trace_terminal

NOTHING = "nothing"
"""No finding is right: it is healthy, or all that it shows happens once, or no rule can judge it."""
KNOWN: dict[str, tuple[str, str, str]] = {
    "a100_2rank_nccl_metadata": ("host-bound", "launch-bound gpu-gaps", "idle for 76 %, communication 6 %"),
    "a100_8rank_rank3_callstack": ("compute-bound", "exposed-comm", "idle for 16 %, communication 19 %"),
    "a100_alexnet_cuda_sync": (
        "host-bound",
        NOTHING,
        "no steps; 12.7 of 12.9 s are the first forward: cudaFree and cudaMalloc (66 %) and loading kernels, once",
    ),
    "a100_event_sync_multistream_tiny": (
        "host-bound",
        NOTHING,
        "no steps; three products, the third 18.8 ms after the second, in which the program calls nothing",
    ),
    "a100_event_sync_tiny": (
        "mixed",
        NOTHING,
        "four kernels in 0.26 ms: no cause costs 0.2 ms, and one item() of 0.045 ms is 1 % of its step on the host",
    ),
    "a100_triton_tiny": (
        "latency-bound",
        NOTHING,
        "one kernel of one block, 1.76 us; the 13.3 s before it compile it, once, and are not in the device's window",
    ),
    "cpu_only_gloo300": (
        "comm-bound",
        NOTHING,
        "all-reduces of gloo without an operator beside them: 83 % of the steps; no rule judges those of a CPU",
    ),
    "gp100_gpu_user_annotation": ("host-bound", "launch-bound", "idle for 96 %"),
    "h100_bert_small": ("host-bound", "launch-bound", "a tiny model, idle for 92 % before launches"),
    "h100_nsfw_vit": ("host-bound", "launch-bound", "idle for 84 % before launches"),
    "h100_owlv2": (
        "input-bound",
        "input-bound attention-unfused",
        "fetches of 619 ms: it waits for them 46 % of the time",
    ),
    "h100_timesformer": ("compute-bound", "attention-unfused", "idle for 1 %"),
    "mi210_gpu_only": (
        "compute-bound",
        NOTHING,
        "busy for 89 %, no communication; kernels wait 0.17 ms in the queue, so that 444 short ones cost no launch",
    ),
    "mi250_minitoy_rocm62": (
        "host-bound",
        NOTHING,
        "16 operations; idle for 98 %, of that three quarters in one launch of 6.5 ms, which loads its kernels, once",
    ),
    "mi300_8rank_rank0_resnet_ckpt": ("comm-bound", "exposed-comm", "communication 64 %"),
    "mi300_torch_compile_triton": (
        "compute-bound",
        NOTHING,
        "healthy: never idle, no communication, compiled, and its attention is one kernel",
    ),
    "old_async_gpu_tiny": (
        "host-bound",
        NOTHING,
        "four kernels without steps and operators; idle for 98 %, of that nine tenths in one gap of 1.45 ms",
    ),
    "rtx2080ti_resnet": ("input-bound", "input-bound", "fetches of 8.2 s: it waits for them 46 % of the time"),
    "v100_2rank_rank1_comm_heavy": ("host-bound", "launch-bound exposed-comm", "idle for 42 %, communication 21 %"),
    "v100_dlrm_8rank_0": ("mixed", "exposed-comm launch-bound", "communication 43 %, idle 49 %"),
    "v100_dlrm_8rank_1": ("comm-bound", "exposed-comm", "communication 59 %, idle 34 %"),
    "v100_dlrm_8rank_2": ("host-bound", "launch-bound exposed-comm", "communication 28 %, idle 62 %"),
    "v100_dlrm_8rank_3": ("comm-bound", "exposed-comm", "communication 50 %, idle 43 % of which 5 in the fetch"),
    "v100_dlrm_8rank_4": ("mixed", "launch-bound exposed-comm", "communication 40 %, idle 54 %"),
    "v100_dlrm_8rank_5": ("host-bound", "launch-bound exposed-comm", "communication 38 %, idle 56 %"),
    "v100_dlrm_8rank_6": ("host-bound", "launch-bound exposed-comm", "communication 29 %, idle 62 %"),
    "v100_dlrm_8rank_7": ("host-bound", "launch-bound exposed-comm", "communication 14 %, idle 76 %"),
    "v100_ns_resolution": ("compute-bound", "tc-unused", "idle for 2 %"),
    "v100_resnet50_dl0_2021": ("input-bound", "tc-unused input-bound", "no workers: it waits for fetches 28 %"),
    "v100_resnet50_dl0_preschema": ("mixed", "launch-bound input-bound", "fetches 22 %, launches 27 % of the window"),
}
"""Verdict and all findings above information, in their order, and what the facts of the trace are."""


@cache
def diagnosed(name: str) -> TraceDiagnosis:
    file = f"{name}.json.gz"
    return trace_outputs.diagnosis(recorded_trace(file), recorded_analysis(file))


@pytest.mark.parametrize("name", KNOWN)
def test_verdict_and_findings_of_a_recorded_trace_agree_with_its_facts(name: str) -> None:
    found = diagnosed(name)
    kind, rules, _ = KNOWN[name]
    assert found.verdict.kind == kind, found.verdict.summary
    shares = re.findall(r"idles for (\S+) %", found.verdict.summary)
    assert len(shares) == len(set(shares)), "said twice"
    assert ([one.rule for one in found.findings if one.severity != "info"] or [NOTHING]) == rules.split()
    assert not [one for one in found.need_a_run if one.why.startswith("failed")]
    assert_can_be_trusted(found.findings, None, found.verdict, {})
    truth = TRUTH[f"{name}.json.gz"]
    devices = list(truth.get("devices", {}).values())
    idle = max((one["idle_pct"] / 100 for one in devices), default=0.0)
    exposed = max((one["comm_exposed_us"] / one["window_us"] for one in devices), default=0.0)
    if kind == "comm-bound" and devices:
        assert exposed >= COMMUNICATION_RATIO
    if kind == "host-bound":
        assert idle >= max(HOST_RATIO, exposed)
    if kind == "input-bound":
        assert truth["dataloader_us"] > 0
        assert idle >= 0.2
    if kind in ("compute-bound", "latency-bound"):
        assert idle + exposed < 0.5
    idle_for_data_ms = _idle_for_data_ms(name)
    for one in found.findings:
        if one.explains == claims.WAIT_FOR_BATCHES and one.gain is not None:
            assert one.gain.saved_ms_per_step == pytest.approx(idle_for_data_ms, rel=0.01)


def _idle_for_data_ms(name: str) -> float:
    """Per step of a recorded trace."""
    idle, steps = recorded_analysis(f"{name}.json.gz").idle, TRUTH[f"{name}.json.gz"]["steps"]
    shares = [share for device in idle.devices for share in device.causes if share.cause == "data"]
    return max((share.idle_us for share in shares), default=0.0) / 1e3 / max(1, len(steps))


@pytest.mark.parametrize(
    ("name", "rule", "words", "saved_ms"),
    [
        ("h100_timesformer", "attention-unfused", "scores of 8x12x3137x3137", 84.2),  # softmax 68.7 ms, scaling 15.5
        ("h100_owlv2", "attention-unfused", "scores of 16x5185x5185", None),
        ("a100_8rank_rank3_callstack", "exposed-comm", "", 87.921 / 6),  # exposed in 6 steps
        ("v100_2rank_rank1_comm_heavy", "exposed-comm", "404 all-reduces", 357.343 / 5),
        ("v100_resnet50_dl0_2021", "tc-unused", 'Trainer(precision="16-mixed")', None),
        ("v100_ns_resolution", "tc-unused", 'Trainer(precision="16-mixed")', None),
    ],
)
def test_what_is_found_in_a_recorded_trace_gains_what_its_facts_say(
    name: str, rule: str, words: str, saved_ms: float | None
) -> None:
    (found,) = (one for one in diagnosed(name).findings if one.rule == rule)
    assert words in f"{found.subject} {found.advice}"
    assert saved_ms is None or found.gain.saved_ms_per_step == pytest.approx(saved_ms, rel=0.01)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("h100_owlv2", "step time, 1.08 s from the first to the last kernel. On the host a step took 1.21 s;"),
        ("mi300_8rank_rank0_resnet_ckpt", "26 % of the kernels and copies were launched before the first step"),
        ("h100_timesformer", "step time, 160 ms from the first to the last kernel. On the host a step took 383 ms;"),
        ("a100_2rank_nccl_metadata", ""),
        ("cpu_only_gloo300", ""),
    ],
)
def test_where_the_step_of_findings_is_not_that_of_the_table_it_is_said(name: str, words: str) -> None:
    said = " ".join(diagnosed(name).caveats)
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


@pytest.mark.parametrize("name", KNOWN)
def test_the_text_is_a_screen(name: str) -> None:
    text = trace_terminal.render(recorded_analysis(f"{name}.json.gz"), diagnosis=diagnosed(name), names=(), width=100)
    console = Console(width=100, file=io.StringIO())
    assert len(console.render_lines(text)) <= 45


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
    linked = trace_outputs.read(trace)
    found = trace_outputs.diagnosis(linked, trace_outputs.analysis(linked, None))
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
    assert (part.timeline, part.by_step, part.memory) == (None, None, None)
    assert trace_outputs.diagnosis(linked, part) == trace_outputs.diagnosis(linked, whole)
    assert trace_summary.sentences(part) == trace_summary.sentences(whole)


def test_rules_that_only_lack_shapes_need_no_run() -> None:
    whys = ("there is no run", "the GPU was not sampled", "the window was recorded without shapes")
    rules = tuple(NotEvaluated(rule=f"rule-{number}", why=why) for number, why in enumerate(whys))
    found = diagnosed("h100_bert_small")
    page = trace_html.findings_section(msgspec.structs.replace(found, need_a_run=rules))
    assert "2 rules need a run" in page
    assert "1 rule needs the shapes of inputs" in page


def test_the_page_of_a_large_trace_is_far_below_its_limit(shared: Path, tmp_path: Path) -> None:
    """400 kB is the most that a page may have; nothing of this one is left out."""
    page = tmp_path / "t.html"
    main(["trace", str(shared / "traces" / "a100_8rank_rank3_callstack.json.gz"), "--html", str(page)])
    assert page.stat().st_size <= 380_000
