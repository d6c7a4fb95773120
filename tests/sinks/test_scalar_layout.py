"""Charts for TensorBoard's Custom Scalars tab: each of our names is in its own, and nobody else's."""

import re
from pathlib import Path
from typing import Any

import pytest
import sample_report

from lightning_gpuprof.sinks.loggers import final_scalars
from lightning_gpuprof.sinks.scalar_layout import LAYOUT_TAG, layout, offer

GPU_GROUP = "gpuprof: GPU"

PLACES = {
    "gpuprof/step_ms": ["step and its phases (ms)", "waiting for data vs. step time (ms)"],
    "gpuprof/data_wait_ms": ["step and its phases (ms)", "waiting for data vs. step time (ms)"],
    "gpuprof/zero_grad_ms": ["step and its phases (ms)"],
    "gpuprof/samples_per_s": ["throughput (samples/s)"],
    "gpuprof/gpu0/utilization_ratio": ["utilization (a kernel was running, 0 to 1)"],
    "gpuprof/gpu12/memory_used_bytes": ["memory (bytes)"],
    "gpuprof/gpu0/forward/allocated_bytes": ["memory (bytes)"],
    "gpuprof/gpu0/power_w": ["power (W)"],
    "gpuprof/gpu0/sm_clock_mhz": ["SM clock (MHz)"],
    "gpuprof/process/cpu_cpus": ["CPUs kept busy by this process"],
    "gpuprof/host/memory_available_bytes": ["memory left (bytes)"],
    "gpuprof/final/findings_count": ["findings"],
    "gpuprof/final/speedup_max_ratio": ["speed-up at most (ratio)"],
    "gpuprof/final/step_time_p95_ms": ["step time (ms)"],
    "gpuprof/final/wall_s": [],
    "loss": [],
    "train/step_ms": [],
    "my_gpuprof/step_ms": [],
}


def charts_of(name: str) -> list[str]:
    """Charts in which TensorBoard draws a name: its plugin matches from the beginning."""
    charts = [item for group in layout(gpus=True).values() for item in group.items()]
    return [title for title, (_, patterns) in charts if any(re.match(pattern, name) for pattern in patterns)]


@pytest.mark.parametrize("name", PLACES)
def test_each_name_is_in_its_charts(name: str) -> None:
    assert charts_of(name) == PLACES[name]


def test_a_loggers_prefix_may_stand_before_a_name() -> None:
    assert charts_of("mine-gpuprof/samples_per_s") == charts_of("gpuprof/samples_per_s")


def test_each_chart_has_a_name_that_is_logged() -> None:
    drawn = {chart for name in [*PLACES, *final_scalars(sample_report.full_report())] for chart in charts_of(name)}
    assert drawn == {chart for group in layout(gpus=True).values() for chart in group}


def test_without_gpus_there_are_no_charts_of_them() -> None:
    assert [group for group in layout(gpus=True) if group not in layout(gpus=False)] == [GPU_GROUP]


class Experiment:
    """What a TensorBoard logger writes with."""

    def __init__(self) -> None:
        self.layouts: list[Any] = []
        self.flushed = 0

    def add_custom_scalars(self, layout: Any) -> None:
        self.layouts.append(layout)

    def flush(self) -> None:
        self.flushed += 1


class BoardLogger:
    def __init__(self, folder: Path) -> None:
        self.experiment = Experiment()
        self.log_dir = str(folder)


def test_a_run_gets_one_layout(tmp_path: Path) -> None:
    logger = BoardLogger(tmp_path)
    assert offer(logger, gpus=True)
    assert logger.experiment.layouts == [layout(gpus=True)]
    (tmp_path / "events.out.tfevents.1.host.1.0").write_bytes(b"\x00\x01" + LAYOUT_TAG + b"\x02")
    assert not offer(logger, gpus=True)  # somebody's is there, perhaps ours of the fit before
    assert len(logger.experiment.layouts) == 1
    assert logger.experiment.flushed == 2  # what is still in a queue counts


def test_other_loggers_get_none(tmp_path: Path) -> None:
    class Plain:
        log_dir = str(tmp_path)
        experiment = object()

    assert not offer(Plain(), gpus=True)
    assert not offer(object(), gpus=True)
