"""Two ranks on the CPU that do not end alike: killed, failed, out of step. What the first rank's report says of it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from lightning_gpuprof.model.report import Report

PROGRAM = """
import os, signal, sys
import lightning as L, torch
from torch.utils.data import DataLoader, TensorDataset
from lightning_gpuprof import GpuProfiler

how, folder = sys.argv[1], sys.argv[2]

class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 10)
    def training_step(self, batch, batch_idx):
        if self.global_rank == 1 and batch_idx == 30:
            if how == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if how == "failed":
                raise ValueError("planted")
        x, y = batch
        return torch.nn.functional.cross_entropy(self.layer(x), y)
    def train_dataloader(self):
        batches = 40 if how != "out of step" or self.global_rank == 0 else 60
        data = TensorDataset(torch.randn(16 * batches, 64), torch.randint(0, 10, (16 * batches,)))
        return DataLoader(data, batch_size=16)
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

if __name__ == "__main__":
    torch.set_num_threads(1)
    profiler = GpuProfiler(dirpath=folder, reports=["json", "terminal"], windows=[], nvml=False)
    trainer = L.Trainer(
        accelerator="cpu", devices=1, num_nodes=2, strategy="ddp", max_epochs=3 if how == "out of step" else 1,
        logger=False,
        enable_checkpointing=False, enable_progress_bar=False, use_distributed_sampler=False, callbacks=[profiler],
        max_steps=120 if how == "out of step" else -1,
    )
    trainer.fit(Net())
"""


def ended(tmp_path: Path, how: str) -> tuple[Report, str]:
    program, folder = tmp_path / "program.py", tmp_path / "run"
    program.write_text(PROGRAM)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    job = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "LOCAL_RANK": "0"}
    first, _ = (  # two nodes: nobody is there who would end the one when the other is killed
        subprocess.Popen(
            [sys.executable, str(program), how, str(folder)],
            env={**job, "NODE_RANK": str(rank)},
            stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
            stderr=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
            text=True,
        )
        for rank in range(2)
    )
    terminal, errors = first.communicate(timeout=240)
    assert (folder / "report.json").is_file(), errors[-2000:]
    return msgspec.json.decode((folder / "report.json").read_bytes(), type=Report), terminal


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("killed", "rank 1 left no end (killed or crashed before the "),
        ("failed", "failed first, with ValueError after 30 batches"),
    ],
)
def test_the_rank_that_ended_first_is_named(tmp_path: Path, how: str, said: str) -> None:
    report, terminal = ended(tmp_path, how)
    assert report.run["status"] == "interrupted: RuntimeError"
    assert said in report.validity.caveats[0]
    assert said in " ".join(terminal.split())


@pytest.mark.slow
def test_ranks_out_of_step_make_no_valid_run(tmp_path: Path) -> None:
    report, terminal = ended(tmp_path, "out of step")
    assert not report.validity.ok
    said = "epoch 0 had 40 batches on rank 0 and 60 batches on rank 1"
    assert said in report.validity.caveats[0]
    assert said in " ".join(terminal.split())
