"""The rules on kernels and communication, on windows that others recorded on GPUs."""

from functools import cache

import pytest
from recorded_traces import recorded_trace
from rules_in import rules_in
from trace_metrics import recorded_run

from lightning_gpuprof.model.finding import Finding
from lightning_gpuprof.model.journal import Value
from lightning_gpuprof.rules.engine import diagnose
from lightning_gpuprof.rules.ranks.collective_times import collective_run
from lightning_gpuprof.trace.analyses.communication.ranks import compare_ranks

RULES = list(rules_in("kernels", "ranks").values())


@cache
def loud(name: str) -> dict[str, Finding]:
    said = diagnose(recorded_run(f"{name}.json.gz"), RULES)
    return {one.rule: one for one in said.findings if one.severity != "info"}


@pytest.mark.parametrize(
    "name",
    [
        "h100_bert_small",
        "h100_nsfw_vit",
        "a100_event_sync_tiny",
        "a100_triton_tiny",
        "mi250_minitoy_rocm62",
        "mi300_torch_compile_triton",
        "mi210_gpu_only",
        "gp100_gpu_user_annotation",
        "old_async_gpu_tiny",
        "cpu_only_gloo300",
    ],
)
def test_traces_whose_kernels_are_not_at_fault_are_silent(name: str) -> None:
    """Most of them wait for the host; one is compiled and in half precision; two have no GPU or one without tensor
    cores."""
    assert loud(name) == {}


def test_attention_in_pieces_is_found_in_a_transformer_on_video() -> None:
    found = loud("h100_timesformer")
    assert found.keys() == {"attention-unfused"}
    finding = found["attention-unfused"]
    assert finding.subject == "attention with scores of 8x12x3137x3137"
    # of FACTS.json: softmax 68.7 ms, scaling 15.5 ms
    assert finding.gain.saved_ms_per_step == pytest.approx(84.2, rel=0.01)


def test_attention_in_pieces_is_found_in_a_detector() -> None:
    found = loud("h100_owlv2")
    assert found.keys() == {"attention-unfused"}
    assert found["attention-unfused"].subject == "attention with scores of 16x5185x5185"


@pytest.mark.parametrize("name", ["v100_resnet50_dl0_2021", "v100_ns_resolution"])
def test_trainings_in_fp32_on_volta(name: str) -> None:
    found = loud(name)
    assert found.keys() == {"tc-unused"}
    assert 'Trainer(precision="16-mixed")' in found["tc-unused"].advice


def test_communication_that_nothing_covers() -> None:
    found = loud("a100_8rank_rank3_callstack")
    assert found.keys() == {"exposed-comm"}
    finding = found["exposed-comm"]
    assert finding.gain.saved_ms_per_step == pytest.approx(87.921 / 6, rel=1e-3)  # FACTS.json, 6 steps


def test_a_reduction_for_each_parameter() -> None:
    found = loud("v100_2rank_rank1_comm_heavy")
    assert found.keys() == {"exposed-comm"}
    finding = found["exposed-comm"]
    assert "404 all-reduces" in finding.advice
    assert finding.gain.saved_ms_per_step == pytest.approx(357.343 / 5, rel=1e-3)  # FACTS.json, 5 steps


def test_a_host_that_is_late_silences_the_rules_on_kernels() -> None:
    assert loud("a100_2rank_nccl_metadata") == {}


def test_one_rank_never_calls_less_transfer_than_all_ranks_show() -> None:
    numbers = [0, 2, 4, 5, 6, 7]  # 1 and 3 hold much work that was launched before the window
    names = [f"v100_dlrm_8rank_{number}.json.gz" for number in range(8)]
    truth = compare_ranks([recorded_trace(name) for name in names])
    of_job: dict[str, Value] = {"trainer.num_nodes": 1}
    for number in numbers:
        run = collective_run(recorded_run(names[number], run=of_job))
        rank = truth.ranks[number]
        assert run.windows[0].transfer_ratio >= rank.transfer_us / (rank.transfer_us + rank.waiting_us)
        assert run.windows[0].transfer_ratio < 0.5
