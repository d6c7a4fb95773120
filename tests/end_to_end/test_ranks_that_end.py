"""Two ranks on the CPU that do not end alike: killed, failed, out of step. What the first rank's report says of it."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from lightning_gpuprof.analyze.rank_summary import left_by
from lightning_gpuprof.job_ranks import job_ranks
from lightning_gpuprof.model.report import Report
from lightning_gpuprof.pipeline import load_report

PROGRAM = """
import os, signal, sys, threading, time
import lightning as L, torch
from torch.utils.data import DataLoader, TensorDataset
from lightning_gpuprof import GpuProfiler
from lightning_gpuprof.capture import standstill

how, folder = sys.argv[1], sys.argv[2]
if how == "hangs":
    standstill.AFTER_NS = 1_000_000_000

class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 10)
    def training_step(self, batch, batch_idx):
        if self.global_rank == 1 and batch_idx == 30:
            if how == "killed":
                while not os.path.getsize(f"{folder}/rank1.jsonl"):
                    time.sleep(0.1)
                os.kill(os.getpid(), signal.SIGKILL)
            if how == "failed":
                raise ValueError("planted")
            if how == "raised":
                raise RuntimeError("of the user")
            if how == "hangs":
                threading.Event().wait()
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

LINE = next(number for number, line in enumerate(PROGRAM.splitlines(), 1) if "planted" in line)


def started(tmp_path: Path, how: str) -> list[subprocess.Popen[str]]:
    program, folder = tmp_path / "program.py", tmp_path / "run"
    program.write_text(PROGRAM)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    job = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "LOCAL_RANK": "0"}
    return [  # two nodes: nobody is there who would end the one when the other is killed
        subprocess.Popen(
            [sys.executable, str(program), how, str(folder)],
            env={**job, "NODE_RANK": str(rank)},
            stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
            stderr=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
            text=True,
        )
        for rank in range(2)
    ]


def ended(tmp_path: Path, how: str) -> tuple[Report, str]:
    first, _ = started(tmp_path, how)
    terminal, errors = first.communicate(timeout=240)
    written = tmp_path / "run" / "report.json"
    assert written.is_file(), errors[-2000:]
    return msgspec.json.decode(written.read_bytes(), type=Report), terminal


def standing_in(folder: Path) -> list[str | None]:
    """Where the summaries of both ranks say that they stand."""
    left = [left_by(folder / f"rank{rank}.jsonl", however_old=True) for rank in range(2)]
    return [one and one.stands_in for one in left]


@pytest.mark.slow
def test_while_a_rank_hangs_the_report_says_where_and_who_waits(tmp_path: Path) -> None:
    ranks, folder = started(tmp_path, "hangs"), tmp_path / "run"
    try:
        last, said = time.monotonic() + 240, ""
        while "waiting in backward" not in said and time.monotonic() < last:
            time.sleep(1)
            if (folder / "rank0.jsonl").exists() and (folder / "rank0.jsonl").stat().st_size:
                said = "; ".join(load_report(folder).rank_ends)
        hanging = job_ranks(folder)
        while None in (summaries := standing_in(folder)) and time.monotonic() < last:
            time.sleep(1)
    finally:
        for process in ranks:
            process.kill()
            process.communicate()
    report = load_report(folder)
    late, waits, *_ = report.rank_ends
    assert "rank 1 in forward at" in late
    assert "training_step after 30 batches" in late
    assert waits.startswith("rank 0 waiting in backward at")
    stack = (folder / "rank1.stacks.txt").read_text().split("Current thread")[0]
    assert "in training_step" in stack
    assert [(one.state, one.waits) for one in hanging.ranks] == [("hanging", True), ("hanging", False)]
    assert hanging.worst[0] == 1
    assert summaries == ["backward", "forward"]
    assert "rank 1 in forward at" in hanging.answer
    assert not hanging.is_over
    killed = job_ranks(folder)
    assert [one.state for one in killed.ranks] == ["killed", "killed"]
    assert killed.is_over


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "said", "answer"),
    [
        ("killed", "rank 1 left no end (killed or crashed before the ", "Rank 1 was killed after "),
        ("failed", f"failed first, with ValueError at {{}}:{LINE} training_step after 30 batches", "Rank 1 on "),
    ],
)
def test_the_rank_that_ended_first_is_named(tmp_path: Path, how: str, said: str, answer: str) -> None:
    report, terminal = ended(tmp_path, how)
    assert report.run["status"] == "interrupted: RuntimeError"
    said = said.format(f"{tmp_path.name}/program.py")
    assert said in report.validity.caveats[0]
    assert said in " ".join(terminal.split())
    job = job_ranks(tmp_path / "run")
    assert {one.rank: one.state for one in job.ranks} == {0: "failed", 1: how}
    assert job.worst == (1, 0)
    assert job.answer.startswith(answer)
    assert job.is_over


@pytest.mark.slow
def test_a_runtime_error_of_the_users_own_comes_before_the_ranks_that_are_killed_for_it(tmp_path: Path) -> None:
    ranks, journal = started(tmp_path, "raised"), tmp_path / "run" / "rank1.jsonl"
    last = time.monotonic() + 240
    while not (journal.exists() and b"interrupted" in journal.read_bytes()) and time.monotonic() < last:
        time.sleep(0.01)
    for process in ranks:  # as a launcher does
        process.kill()
        process.communicate()
    job = job_ranks(tmp_path / "run")
    assert f":{LINE + 2} training_step" in job.answer
    assert job.worst[0] == 1


@pytest.mark.slow
def test_ranks_out_of_step_make_no_valid_run(tmp_path: Path) -> None:
    report, terminal = ended(tmp_path, "out of step")
    assert not report.validity.ok
    said = "epoch 0 had 40 batches on rank 0 and 60 batches on rank 1"
    assert said in report.validity.caveats[0]
    assert said in " ".join(terminal.split())
