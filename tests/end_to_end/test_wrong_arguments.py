"""Wrong arguments are refused before training, by name, with the way out."""

from typing import Any

import pytest

from lightning_gpuprof import GpuProfError, GpuProfiler, NvmlConfig, TraceConfig


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"trace": "yes"}, "trace must be a bool or a TraceConfig, got 'yes'"),
        ({"nvml": 3}, "nvml must be a bool or a NvmlConfig, got 3"),
        ({"log_every_n_steps": 0}, "log_every_n_steps must be an integer of at least 1"),
        ({"log_every_n_steps": "often"}, "log_every_n_steps must be an integer of at least 1, got 'often'"),
        ({"enabled": "perhaps"}, "enabled must be true or false, got 'perhaps'"),
        ({"nvtx": 1}, "nvtx must be true, false, or null for: under Nsight Systems or Compute, got 1"),
        ({"baseline": [1]}, r"baseline must name an existing run folder or report.json, got \[1\]"),
        ({"reports": 1.5}, "reports must be a list of names, got 1.5"),
        ({"reports": ["pdf"]}, "reports must contain only terminal, tensorboard, html, json, got 'pdf'"),
        ({"baseline": "/nowhere/at/all"}, "baseline must name an existing run folder"),
        ({"windows": (9, 3)}, "windows must stop no earlier than they start"),
        ({"dirpath": 3}, "dirpath must be a path"),
        (
            {"dirpath": "s4://bucket/run"},
            "dirpath must be a folder, or an address .* got .s4://bucket/run.*known: s4",
        ),
        ({"target": "fast"}, "target must be a factor above 1 such as '1.3x', or samples per second, got 'fast'"),
        ({"price_per_gpu_hour": -2}, "price_per_gpu_hour must be a number above 0, got -2"),
        ({"thresholds": {"input-bond": {}}}, "thresholds must name rules, got .* Did you mean input-bound"),
        (
            {"thresholds": {"input-bound": {"least": 0.1}}},
            "thresholds.input-bound must name thresholds of the rule: least_ratio",
        ),
    ],
)
def test_wrong_arguments_are_named_before_training(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(GpuProfError, match=words):
        GpuProfiler(**arguments)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: TraceConfig(active=0), "trace.active must be an integer of at least 1, got 0"),
        (lambda: TraceConfig(ranks=1), r"trace.ranks must be a list of global ranks, got 1. Write \[0\]."),
        (lambda: TraceConfig(with_stack="sure"), "trace.with_stack must be true or false, got 'sure'"),
        (lambda: NvmlConfig(gpm=None), "nvml.gpm must be true or false, got None"),
        (lambda: TraceConfig(warmup=-1), "trace.warmup must be an integer of at least 0, got -1"),
        (lambda: TraceConfig(every_n_steps=5), "trace.every_n_steps must be an integer of at least 6, got 5"),
        (lambda: NvmlConfig(interval_s=0), "nvml.interval_s must be a number of seconds"),
    ],
)
def test_wrong_group_arguments_are_named(make: Any, words: str) -> None:
    with pytest.raises(GpuProfError, match=words):
        make()
