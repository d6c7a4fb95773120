"""Memory of real fits on a real GPU."""

import pickle
import statistics
import time
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from planted_runs import Sleepy
from torch import nn
from torch.utils.data import DataLoader

from lightning_gpuprof import GpuProfiler, TraceConfig
from lightning_gpuprof.capture.memory.backend import allocator_for

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"),
]
WIDTH = 2048


class Wide(pl.LightningModule):
    """Four wide layers; may want more than any GPU has."""

    def __init__(self, oom_at: int = -1) -> None:
        super().__init__()
        self.oom_at = oom_at
        self.net = nn.Sequential(nn.Linear(8, WIDTH), *[nn.Linear(WIDTH, WIDTH) for _ in range(4)])

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        if batch_idx == self.oom_at:
            torch.empty(1 << 50, dtype=torch.uint8, device="cuda")
        return self.net(batch).square().mean()

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters())


def fit(folder: Path, model: Wide, *, with_us: bool = True, **options: Any) -> GpuProfiler:
    torch.manual_seed(0)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    profiler = GpuProfiler(dirpath=str(folder / "gpuprof"), nvml=False, reports=["json", "terminal"], **options)
    trainer = pl.Trainer(
        accelerator="gpu",
        devices=1,
        callbacks=[profiler] if with_us else [],
        logger=False,
        max_epochs=1,
        enable_progress_bar=False,
        enable_checkpointing=False,
    )
    trainer.fit(model, DataLoader(Sleepy(6400), batch_size=64))
    return profiler


def test_the_report_agrees_with_torch_and_the_peak_is_as_without_us(tmp_path: Path) -> None:
    fit(tmp_path, Wide(), with_us=False, windows=[])
    without = torch.cuda.max_memory_allocated()
    report = fit(tmp_path, Wide(), windows=[]).report
    assert torch.cuda.max_memory_allocated() == without
    (device,) = report.memory.devices
    assert device.allocated_peak_bytes == without
    parameters = 4 * (8 * WIDTH + WIDTH + 4 * (WIDTH * WIDTH + WIDTH))
    on_device = [row for row in report.memory.held if row.device.startswith("cuda")]
    assert sum(row.parameters_bytes for row in on_device) == parameters
    assert sum(row.gradients_bytes for row in on_device) == parameters
    assert device.peak_phase is not None


def test_a_real_out_of_memory_comes_through_and_is_explained(tmp_path: Path) -> None:
    profiler = None
    with pytest.raises(torch.OutOfMemoryError) as caught:
        profiler = fit(tmp_path, Wide(oom_at=40), windows=[])
    assert profiler is None
    assert "training_step" in [entry.name for entry in caught.traceback]
    text = (tmp_path / "gpuprof" / "report.json").read_text()
    assert '"requested_bytes": 1125899906842624' in text or '"requested_bytes":1125899906842624' in text


def test_a_window_s_snapshot_loads_and_names_lines(tmp_path: Path) -> None:
    report = fit(tmp_path, Wide(), windows=[(40, 42)], trace=TraceConfig(memory_snapshot=True)).report
    (history,) = report.memory.histories
    with (tmp_path / "gpuprof" / history.file).open("rb") as file:
        assert pickle.load(file)["segments"]  # our own file
    assert any("training_step" in row.place for row in history.at_peak)
    assert {"forward", "backward"} <= set(history.peaks_by_phase)


def test_what_a_reading_costs(tmp_path: Path) -> None:
    torch.ones(1, device="cuda")
    backend = allocator_for(torch.device("cuda"))
    assert backend is not None
    taken = []
    for _ in range(2000):
        begin = time.perf_counter_ns()
        backend.read()
        taken.append(time.perf_counter_ns() - begin)
    print(f"a reading takes {statistics.median(taken) / 1e3:.1f} us")
