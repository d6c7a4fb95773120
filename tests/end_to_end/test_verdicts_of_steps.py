"""Faults in steps, host and settings planted in real fits: each is named; the same fits without them stay silent."""

import time
from pathlib import Path
from typing import Any

import pytest
import torch
from planted_runs import Planted, Sleepy, fit, named
from torch import nn
from torch.utils.data import DataLoader

from lightning_gpuprof import GpuProfiler
from lightning_gpuprof.model.report import Report

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),
]

ABOUT_STEPS = {
    "gc-pauses",
    "grad-clip-cost",
    "lr-scheduler-cost",
    "recompiles",
    "graph-breaks",
    "debug-apis-on",
    "cpu-oversubscription",
    "host-leak",
    "sanity-check-cost",
}
"""Rules that must not speak in fits without a fault, not even as information, whatever else the machine does."""


class Network(Planted):
    """A model of a few layers, with what a test plants in its step."""

    def __init__(self, layers: nn.Module | None = None) -> None:
        super().__init__()
        stack = nn.Sequential(nn.Linear(8, 400), nn.ReLU(), nn.Linear(400, 400), nn.ReLU(), nn.Linear(400, 1))
        self.layer = stack if layers is None else layers  # type: ignore[assignment]

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        self.plant(batch_idx)
        return super().training_step(batch, batch_idx)

    def plant(self, batch_idx: int) -> None:
        """What the test adds to each step."""


def run(folder: Path, model: Network, *, batches: int = 300, **options: Any) -> Report:
    loader = DataLoader(Sleepy(batches * 16), batch_size=16)
    profiler = GpuProfiler(windows=[], nvml=False, reports=["json"])
    return fit(folder, model, loader, profiler=profiler, **options)


def silent(report: Report) -> None:
    assert {f.rule for f in report.findings} & ABOUT_STEPS == set()


@pytest.mark.parametrize("options", [{}, {"accumulate_grad_batches": 4}, {"gradient_clip_val": 1.0}])
def test_healthy_fits_are_silent(tmp_path: Path, options: dict[str, Any]) -> None:
    silent(run(tmp_path, Network(), **options))


def test_a_compiled_model_is_silent(tmp_path: Path) -> None:
    torch._dynamo.reset()
    silent(run(tmp_path, Network(torch.compile(Network().layer, backend="eager"))))  # type: ignore[arg-type]


class SlowFromHalfWay(Network):
    def plant(self, batch_idx: int) -> None:
        if batch_idx >= 200:
            time.sleep(0.03)


def test_a_step_that_turns_slow_half_way(tmp_path: Path) -> None:
    report = run(tmp_path, SlowFromHalfWay(), batches=400)
    # Which of them is a matter of how even the machine is; the rule's examples and `make truth` have no others.
    told = {f.rule for f in report.findings if f.severity != "info"}
    assert told & {"phase-change", "step-drift", "blocked-in-step"}


class Node:
    """Refers to another, which refers to it; one of a thousand takes its time to go."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.other: Node | None = None
        self.seconds = seconds

    def __del__(self) -> None:
        if self.seconds:
            time.sleep(self.seconds)


class Circles(Network):
    def plant(self, batch_idx: int) -> None:
        for number in range(1000):
            one, two = Node(0.01 * (number == 0)), Node()
            one.other, two.other = two, one


def test_objects_in_circles_that_are_slow_to_collect(tmp_path: Path) -> None:
    report = run(tmp_path, Circles(), batches=200)
    assert named(report, "gc-pauses").subject.startswith("garbage collector")


class ManyTensors(nn.Module):
    """A layer beside a thousand small parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 1)
        self.small = nn.ParameterList([nn.Parameter(torch.zeros(4)) for _ in range(1000)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) + torch.cat(list(self.small)).sum()


class Looping(Network):
    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), foreach=False)


def test_an_optimizer_that_loops_over_many_tensors(tmp_path: Path) -> None:
    finding = named(run(tmp_path, Looping(ManyTensors()), batches=60), "optimizer-slow")
    assert "fused=True" in finding.advice
    assert "1,002 parameter tensors" in finding.summary


class SlowScheduler(Network):
    def lr_scheduler_step(self, *args: Any) -> None:
        time.sleep(0.02)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=1e-9)
        return [optimizer], [{"scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 10), "interval": "step"}]


def test_a_scheduler_hook_that_does_more(tmp_path: Path) -> None:
    assert named(run(tmp_path, SlowScheduler(), batches=80), "lr-scheduler-cost").severity in ("warning", "critical")


class ChangingSizes(Network):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return super().training_step(batch[: 16 - batch_idx // 20 % 8] if batch_idx > 60 else batch, batch_idx)


def test_sizes_that_change_are_compiled_anew(tmp_path: Path) -> None:
    torch._dynamo.reset()
    compiled: Any = torch.compile(Network().layer, backend="eager", dynamic=False)
    report = run(tmp_path, ChangingSizes(compiled))
    assert report.compile.steady_recompile_count > 0
    assert "dynamic=True" in named(report, "recompiles").advice


class Broken(nn.Module):
    """Goes back to Python in its middle."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 100), nn.Linear(100, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.first(x)
        torch._dynamo.graph_break()
        return self.second(hidden)  # type: ignore[no-any-return]


def test_a_graph_break_is_named_with_its_line(tmp_path: Path) -> None:
    torch._dynamo.reset()
    compiled: Any = torch.compile(Broken(), backend="eager")
    finding = named(run(tmp_path, Network(compiled), batches=60), "graph-breaks")
    assert "test_verdicts_of_steps.py:" in finding.subject


def test_anomaly_detection_is_named(tmp_path: Path) -> None:
    deep = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.GELU()) for _ in range(20)), nn.Linear(8, 1))
    finding = named(run(tmp_path, Network(deep), batches=60, detect_anomaly=True), "debug-apis-on")
    assert finding.subject == "detect_anomaly"
    assert "Anomaly detection takes at least" in finding.summary
