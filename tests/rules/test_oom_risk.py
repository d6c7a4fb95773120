from typing import Any

import pytest
from findings_builder import fired
from gpu_builder import gpu
from memory_builder import GIB, allocator, held, on_gpu
from metrics_builder import build, replace

from lightning_gpuprof.model.memory import Memory, OutOfMemory
from lightning_gpuprof.rules.memory.oom_risk import OomRisk

RULE = OomRisk()


def ended(**changes: Any) -> OutOfMemory:
    told: dict[str, Any] = {
        "message": "CUDA out of memory.",
        "batch": 20,
        "global_step": 20,
        "phase": "forward",
        "place": "model.py:31 training_step",
        "requested_bytes": 2 * GIB,
        "device_free_bytes": GIB // 2,
        "allocated_bytes": 130 * GIB,
        "reserved_bytes": 138 * GIB,
        "free_in_reserved_bytes": GIB,
        "largest_free_bytes": GIB,
        "other_bytes": 98 * GIB,
        "held": (held(),),
    }
    return OutOfMemory(**{**told, **changes})


def test_a_run_that_ended_so_is_critical_and_what_held_the_memory_comes_first() -> None:
    finding = fired(RULE, on_gpu(end=ended()))
    assert (finding.severity, finding.subject) == ("critical", "model.py:31 training_step")
    assert finding.summary == (
        "Out of memory at batch 20, in forward, in training_step() (model.py:31): 2 GiB were requested, 512 MiB were "
        "free on the device and tensors held 130 GiB of the reserved 138 GiB."
    )
    assert finding.advice.startswith("Activations hold most (98 GiB): halve the batch")
    assert finding.change.added == ("DataLoader(..., batch_size=16)", "Trainer(..., accumulate_grad_batches=2)")


def test_memory_in_pieces_comes_before_less_memory() -> None:
    pieces = ended(free_in_reserved_bytes=8 * GIB, largest_free_bytes=GIB)
    finding = fired(RULE, on_gpu(end=pieces, run={"allocator.settings": "max_split_size_mb:128"}))
    assert "8 GiB of the reserved memory were free, but the largest piece was 1 GiB. Activations" in finding.advice
    assert finding.change.added == ("export PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128,expandable_segments:True",)
    growing = fired(RULE, on_gpu(end=pieces, run={"allocator.settings": "expandable_segments:True"}))
    assert growing.advice.startswith("Activations")


def test_other_processes_are_named() -> None:
    shared = gpu(values={"memory_others_bytes": 30.0 * GIB})
    finding = fired(RULE, on_gpu(end=ended(), gpus=(shared,)))
    assert finding.advice.startswith("End the other processes on gpu0, which hold 30 GiB")


def test_the_optimizer_s_state_is_named_where_it_holds_the_most() -> None:
    big = held(optimizer_state_bytes=100 * GIB)
    finding = fired(RULE, on_gpu(end=ended(held=(big,), other_bytes=4 * GIB)))
    assert finding.advice.startswith("Optimizer state holds most (100 GiB): shard over several GPUs")
    assert finding.change.added == ("Trainer(..., strategy='fsdp', devices=2)",)


def test_what_is_not_known_is_not_said_to_hold_the_most() -> None:
    finding = fired(RULE, on_gpu(allocator(activations_gib=None), end=ended(other_bytes=None)))
    assert finding.advice.startswith("Use a smaller batch")


def test_the_memory_of_a_cpu_runs_out_too() -> None:
    end = OutOfMemory(message="out", batch=9, global_step=9, phase="forward", place="", requested_bytes=1 << 60)
    finding = fired(RULE, replace(build(), memory=Memory(out_of_memory=end)))
    assert (finding.severity, finding.subject) == ("critical", "forward")
    assert finding.advice.startswith("Use a smaller batch and accumulate")


@pytest.mark.parametrize(
    ("allocated_gib", "severity"), [(128.0, None), (129.0, "info"), (135.7, "info"), (135.9, "warning")]
)
def test_the_shares_of_the_memory_decide(allocated_gib: float, severity: str | None) -> None:
    finding = RULE.check(on_gpu(allocator(allocated_gib=allocated_gib)))
    assert (None if finding is None else finding.severity) == severity


def test_what_lies_outside_of_torch_counts() -> None:
    used = gpu(values={"memory_used_bytes": 139.0 * GIB})
    finding = fired(RULE, on_gpu(allocator(allocated_gib=125.0, reserved_gib=126.0), gpus=(used,)))
    assert finding.severity == "warning"
    assert "13 GiB of it outside torch" in finding.summary
