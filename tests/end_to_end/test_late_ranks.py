"""Two ranks on the CPU, one of them late in every step, or both in turn: what the rules say of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from lightning_gpuprof.model.report import Report

PROGRAM = """
import sys, time
import lightning as L, torch
from torch.utils.data import DataLoader, TensorDataset
from lightning_gpuprof import GpuProfiler

late, folder = sys.argv[1], sys.argv[2]

class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 10)
    def training_step(self, batch, batch_idx):
        if late == "both" or self.global_rank == (1 if late == "one" else batch_idx % 2):
            time.sleep(0.02)
        x, y = batch
        return torch.nn.functional.cross_entropy(self.layer(x), y)
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

if __name__ == "__main__":
    torch.set_num_threads(1)
    data = TensorDataset(torch.randn(2048, 64), torch.randint(0, 10, (2048,)))
    profiler = GpuProfiler(dirpath=folder, reports=["json"], windows=[], nvml=False)
    trainer = L.Trainer(
        accelerator="cpu", devices=2, strategy="ddp_find_unused_parameters_true" if late == "both" else "ddp",
        max_epochs=1, limit_train_batches=60, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        callbacks=[profiler],
    )
    trainer.fit(Net(), DataLoader(data, batch_size=16))
"""

ABOUT_RANKS = {"straggler-rank", "load-imbalance", "find-unused-params", "wrong-backend", "bucket-view-off"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("late", "expected"),
    [("one", {"straggler-rank"}), ("turns", {"load-imbalance"}), ("both", {"find-unused-params"})],
)
def test_late_ranks_are_named(tmp_path: Path, late: str, expected: set[str]) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    folder = tmp_path / "run"
    subprocess.run([sys.executable, str(program), late, str(folder)], check=True, timeout=240, capture_output=True)
    report = msgspec.json.decode((folder / "report.json").read_bytes(), type=Report)
    found = {one.rule: one for one in report.findings if one.rule in ABOUT_RANKS}
    assert found.keys() == expected
    assert not {one.rule for one in report.not_evaluated} & ABOUT_RANKS
    if late == "one":
        finding = found["straggler-rank"]
        assert finding.subject == "rank 1"
        assert "in forward" in finding.summary
        assert finding.gain is not None
        assert 15 <= finding.gain.saved_ms_per_step <= 30
        assert report.ranks is not None
        quick, slow = report.ranks.rows
        assert slow.phases_ms["forward"] - quick.phases_ms["forward"] > 10
        assert slow.excess_ms > 10 > quick.excess_ms
