"""The rules on kernels and communication, on windows that others recorded on GPUs."""

from functools import cache
from pathlib import Path

import pytest
from device_builder import recorded
from rules_in import rules_in

from lightning_gpuprof.model.finding import Finding
from lightning_gpuprof.model.journal import Value
from lightning_gpuprof.rules.engine import Diagnosis, diagnose
from lightning_gpuprof.rules.ranks.collective_times import collective_run
from lightning_gpuprof.trace.analyses.communication.ranks import compare_ranks
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.reader import Trace

RULES = list(rules_in("kernels", "ranks").values())


@cache
def said_of(path: Path) -> Diagnosis:
    return diagnose(recorded(path), RULES)


def loud(path: Path) -> dict[str, Finding]:
    return {one.rule: one for one in said_of(path).findings if one.severity != "info"}


def trace(shared: Path, name: str) -> Path:
    return shared / "traces" / f"{name}.json.gz"


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
def test_traces_whose_kernels_are_not_at_fault_are_silent(shared: Path, name: str) -> None:
    """Most of them wait for the host; one is compiled and in half precision; two have no GPU or one without tensor
    cores."""
    assert loud(trace(shared, name)) == {}


def test_attention_in_pieces_is_found_in_a_transformer_on_video(shared: Path) -> None:
    found = loud(trace(shared, "h100_timesformer"))
    assert found.keys() == {"attention-unfused"}
    finding = found["attention-unfused"]
    assert finding.subject == "attention with scores of 8x12x3137x3137"
    # of FACTS.json: softmax 68.7 ms, scaling 15.5 ms
    assert finding.gain.saved_ms_per_step == pytest.approx(84.2, rel=0.01)


def test_attention_in_pieces_is_found_in_a_detector(shared: Path) -> None:
    found = loud(trace(shared, "h100_owlv2"))
    assert found.keys() == {"attention-unfused"}
    assert found["attention-unfused"].subject == "attention with scores of 16x5185x5185"


@pytest.mark.parametrize("name", ["v100_resnet50_dl0_2021", "v100_ns_resolution"])
def test_trainings_in_fp32_on_volta(shared: Path, name: str) -> None:
    found = loud(trace(shared, name))
    assert found.keys() == {"tc-unused"}
    assert 'Trainer(precision="16-mixed")' in found["tc-unused"].advice


def test_communication_that_nothing_covers(shared: Path) -> None:
    found = loud(trace(shared, "a100_8rank_rank3_callstack"))
    assert found.keys() == {"exposed-comm"}
    finding = found["exposed-comm"]
    assert finding.gain.saved_ms_per_step == pytest.approx(87.921 / 6, rel=1e-3)  # FACTS.json, 6 steps


def test_a_reduction_for_each_parameter(shared: Path) -> None:
    found = loud(trace(shared, "v100_2rank_rank1_comm_heavy"))
    assert found.keys() == {"exposed-comm"}
    finding = found["exposed-comm"]
    assert "404 all-reduces" in finding.advice
    assert finding.gain.saved_ms_per_step == pytest.approx(357.343 / 5, rel=1e-3)  # FACTS.json, 5 steps


def test_a_host_that_is_late_silences_the_rules_on_kernels(shared: Path) -> None:
    assert loud(trace(shared, "a100_2rank_nccl_metadata")) == {}


def test_one_rank_never_calls_less_transfer_than_all_ranks_show(shared: Path) -> None:
    numbers = [0, 2, 4, 5, 6, 7]  # 1 and 3 hold much work that was launched before the window
    paths = [trace(shared, f"v100_dlrm_8rank_{number}") for number in range(8)]
    truth = compare_ranks([LinkedTrace(Trace.read(path)) for path in paths])
    of_job: dict[str, Value] = {"trainer.num_nodes": 1}
    for number in numbers:
        run = collective_run(recorded(paths[number], run=of_job))
        rank = truth.ranks[number]
        assert run.windows[0].transfer_ratio >= rank.transfer_us / (rank.transfer_us + rank.waiting_us)
        assert run.windows[0].transfer_ratio < 0.5
