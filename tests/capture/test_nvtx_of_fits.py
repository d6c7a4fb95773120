"""NVTX ranges of real fits, with a backend that writes down the nesting."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.demos.boring_classes import BoringModel
from noting_nvtx import NotingNvtx
from quiet_trainer import trainer_in

from lightning_gpuprof import GpuProfiler


class ProfilerWithRanges(GpuProfiler):
    """The callback with other ranges than torch's."""

    def __init__(self, backend: NotingNvtx, **options: Any) -> None:
        super().__init__(windows=[], reports=[], **options)
        self.backend = backend

    def _hardware(self) -> dict[str, Any]:
        return {"ranges": lambda: self.backend}


def fit(callback: GpuProfiler, folder: Path, model: pl.LightningModule | None = None, **options: Any) -> None:
    limits = {"max_epochs": 3, "limit_train_batches": 8, "limit_val_batches": 2, "num_sanity_val_steps": None}
    trainer = trainer_in(folder, [callback], **{**limits, **options})
    trainer.fit(model or BoringModel())


@pytest.mark.parametrize("profiler", [None, "simple"])
def test_steps_phases_and_validation_nest_as_lightning_runs_them(tmp_path: Path, profiler: str | None) -> None:
    backend = NotingNvtx()
    fit(ProfilerWithRanges(backend, nvtx=True, dirpath=str(tmp_path / "out")), tmp_path, profiler=profiler)
    assert backend.open == []
    last_epoch = [path for path in backend.paths if path.startswith("run_training_epoch/step 16")]
    assert [path.removeprefix("run_training_epoch/") for path in last_epoch] == [
        "step 16",
        "step 16/data_wait",
        "step 16/h2d",
        "step 16/optimizer",
        "step 16/optimizer/forward",
        "step 16/optimizer/zero_grad",
        "step 16/optimizer/backward",
    ]
    steps = [path for path in backend.paths if re.fullmatch(r"(run_training_epoch/)?step \d+", path)]
    assert [int(path.rsplit(" ", 1)[1]) for path in steps][:8] == list(range(8))
    assert any(path.endswith("validation/forward") for path in backend.paths)


def test_an_exception_in_a_step_leaves_no_range_open(tmp_path: Path) -> None:
    class Failing(BoringModel):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            if batch_idx == 5:
                raise ValueError("of the user")
            return super().training_step(batch, batch_idx)

    backend = NotingNvtx()
    with pytest.raises(ValueError, match="of the user"):
        fit(ProfilerWithRanges(backend, nvtx=True, dirpath=str(tmp_path / "out")), tmp_path, Failing())
    assert backend.open == []
    assert "step 5/optimizer/forward" in backend.paths


def test_without_a_tool_there_are_no_ranges_unless_asked_for(tmp_path: Path) -> None:
    backend = NotingNvtx()
    fit(ProfilerWithRanges(backend, dirpath=str(tmp_path / "out")), tmp_path)
    assert backend.paths == []


@pytest.mark.skipif(torch.version.cuda is not None, reason="this torch has NVTX")
def test_a_torch_without_nvtx_is_told_once_and_training_goes_on(tmp_path: Path) -> None:
    callback = GpuProfiler(windows=[], reports=["json"], nvtx=True, dirpath=str(tmp_path / "out"))
    with pytest.warns(RuntimeWarning) as told:
        fit(callback, tmp_path)
    assert len([w for w in told if "nvtx: switched off" in str(w.message)]) == 1
    assert callback.report is not None
    assert callback.report.steps.count == 24
