"""Two ranks on the CPU that do not end alike: killed, failed, out of step. What the first rank's report says of it."""

import contextlib
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import psutil
import pytest

from lightning_gpuprof.analyze.rank_summary import left_by
from lightning_gpuprof.cli.main import main
from lightning_gpuprof.job_ranks import job_ranks
from lightning_gpuprof.model.report import Report
from lightning_gpuprof.pipeline import load_report

PROGRAM = """
import json, os, signal, sys, threading, time
import lightning as L, torch
from torch.utils.data import DataLoader, TensorDataset
from forked_ranks import forked_ranks
from lightning_gpuprof import GpuProfiler, HostConfig

class Net(L.LightningModule):
    def __init__(self, how):
        super().__init__()
        self.how = how
        self.layer = torch.nn.Linear(64, 10)
    def training_step(self, batch, batch_idx):
        if self.global_rank == 1 and batch_idx == 30:
            if self.how == "killed":
                summary = f"{self.how}/rank1.summary.json"
                while not (os.path.exists(summary) and b'"sites":' in open(summary, "rb").read()):
                    time.sleep(0.1)
                os.kill(os.getpid(), signal.SIGKILL)
            if self.how == "failed":
                raise ValueError("planted")
            if self.how == "raised":
                raise RuntimeError("of the user")
            if self.how == "refused":
                loss = self.layer(batch[0]).sum()
                loss.backward()
                loss.backward()
            if self.how == "hangs":
                threading.Event().wait()
        x, y = batch
        return torch.nn.functional.cross_entropy(self.layer(x), y)
    def train_dataloader(self):
        batches = 40 if self.how != "out of step" or self.global_rank == 0 else 60
        data = TensorDataset(torch.randn(16 * batches, 64), torch.randint(0, 10, (16 * batches,)))
        return DataLoader(data, batch_size=16)
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

def train(how, rank):
    output = os.open(f"{how}.{rank}.txt", os.O_CREAT | os.O_WRONLY)
    os.dup2(output, 1)
    os.dup2(output, 2)
    reads = []
    def note(event, args):
        if event == "open" and str(args[0]).endswith("rank0.jsonl") and args[1].startswith("r"):
            if threading.current_thread() is threading.main_thread():
                reads.append(args)
    sys.addaudithook(note)
    dirpath = how
    if how == "apart":
        dirpath = "file://" + os.path.abspath(how)
        os.mkdir(f"node{rank}")
        os.chdir(f"node{rank}")
    host = HostConfig(hang_s=1 if how == "hangs" else 60)  # one that is to be killed waits for its summary
    profiler = GpuProfiler(dirpath=dirpath, reports=["json", "terminal"], windows=[], nvml=False, host=host)
    trainer = L.Trainer(
        accelerator="cpu", devices=1, num_nodes=2, strategy="ddp", max_epochs=3 if how == "out of step" else 1,
        logger=False,
        enable_checkpointing=False, enable_progress_bar=False, use_distributed_sampler=False, callbacks=[profiler],
        max_steps=120 if how == "out of step" else -1,
    )
    trainer.fit(Net(how))
    print(len(reads), "times read")

if __name__ == "__main__":
    torch.set_num_threads(1)
    ranks = {how: forked_ranks(lambda rank: train(how, rank), nodes=True) for how in sys.argv[1:]}
    print(json.dumps(ranks), flush=True)
    for _ in range(2 * len(ranks)):
        os.wait()
"""

LINE = next(number for number, line in enumerate(PROGRAM.splitlines(), 1) if "planted" in line)

pytestmark = pytest.mark.slow


class Jobs(NamedTuple):
    """Jobs of two ranks each, by what becomes of them; each has a folder of that name."""

    folder: Path
    ranks: dict[str, list[psutil.Process]]

    def ended(self, how: str) -> tuple[Report, str]:
        """The report of a job whose first rank comes to an end, and what it printed."""
        self.ranks[how][0].wait(240)
        printed, written = (self.folder / f"{how}.0.txt").read_text(), self.folder / how / "report.json"
        assert written.is_file(), printed[-2000:]
        return msgspec.json.decode(written.read_bytes(), type=Report), " ".join(printed.split())

    def kill(self, how: str) -> None:
        """As a launcher does once a rank has failed."""
        for rank in self.ranks[how]:
            with contextlib.suppress(psutil.NoSuchProcess):
                rank.kill()
            rank.wait()


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    """All are forked from one process, which imports torch and Lightning once."""
    folder = tmp_path_factory.mktemp("ranks")
    program = folder / "program.py"
    program.write_text(PROGRAM)
    words = [sys.executable, str(program), "hangs", "killed", "failed", "raised", "refused", "out of step", "apart"]
    with subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        pids = json.loads(process.stdout.readline())
        jobs = Jobs(folder, {how: [psutil.Process(pid) for pid in of] for how, of in pids.items()})
        for how in ("raised", "refused"):
            journal, last = folder / how / "rank1.jsonl", time.monotonic() + 240
            while not (journal.exists() and b"interrupted" in journal.read_bytes()) and time.monotonic() < last:
                time.sleep(0.01)
            jobs.kill(how)
        yield jobs
        for how in jobs.ranks:
            jobs.kill(how)


def standing_in(folder: Path) -> list[str | None]:
    """Where the summaries of both ranks say that they stand."""
    left = [left_by(folder / f"rank{rank}.jsonl", however_old=True) for rank in range(2)]
    return [one and one.stands_in for one in left]


def test_while_a_rank_hangs_the_report_says_where_and_who_waits(jobs: Jobs) -> None:
    folder = jobs.folder / "hangs"
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
        jobs.kill("hangs")
    report = load_report(folder)
    late, waits, *_ = report.rank_ends
    assert "rank 1 in forward at" in late
    assert "training_step after 30 batches" in late
    # What DDP reduces in the backward has no line of Python; torch's flight recorder knows it (torch 2.9 and later).
    assert re.match(r"rank 0 waiting in backward \(all_?reduce #\d+\) at", waits)
    stacks = (folder / "rank1.stacks.txt").read_text()  # the first may be of a wait for the other rank's start
    assert "in training_step" in stacks
    assert [(one.state, one.waits) for one in hanging.ranks] == [("hanging", True), ("hanging", False)]
    assert hanging.worst[0] == 1
    assert summaries == ["backward", "forward"]
    assert "rank 1 in forward at" in hanging.answer
    assert not hanging.is_over
    killed = job_ranks(folder)
    assert [one.state for one in killed.ranks] == ["killed", "killed"]
    assert killed.is_over


@pytest.mark.parametrize(
    ("how", "said", "answer"),
    [
        ("killed", "rank 1 recorded no end (killed or crashed before the ", "Rank 1 was killed after "),
        ("failed", f"failed first, with ValueError at program.py:{LINE} training_step after 30 batches", "Rank 1 on "),
    ],
)
def test_the_rank_that_ended_first_is_named(jobs: Jobs, how: str, said: str, answer: str) -> None:
    report, printed = jobs.ended(how)
    assert report.run["status"] == "interrupted: RuntimeError"
    assert said in report.validity.caveats[0]
    assert said in printed
    job = job_ranks(jobs.folder / how)
    assert {one.rank: one.state for one in job.ranks} == {0: "failed", 1: how}
    assert job.worst == (1, 0)
    assert job.answer.startswith(answer)
    assert job.is_over


@pytest.mark.parametrize(("how", "line"), [("raised", LINE + 2), ("refused", LINE + 6)])
def test_a_runtime_error_of_its_own_comes_before_the_ranks_that_are_killed_for_it(
    jobs: Jobs, how: str, line: int
) -> None:
    job = job_ranks(jobs.folder / how)
    assert f":{line} training_step" in job.answer
    assert job.worst[0] == 1


def test_a_killed_rank_leaves_what_a_post_mortem_needs(jobs: Jobs) -> None:
    jobs.ended("killed")
    left = left_by(jobs.folder / "killed" / "rank1.jsonl", however_old=True)
    assert len(left.steps.columns()[2]["forward"]) > 10
    assert min(left.memory["rss"], left.memory["available"]) > 10**7
    assert "program.py:" in left.sites["forward"]
    killed = job_ranks(jobs.folder / "killed").ranks[1]
    assert "; held " in killed.detail
    assert "program.py:" in killed.detail


def test_ranks_out_of_step_make_no_valid_run(jobs: Jobs) -> None:
    report, printed = jobs.ended("out of step")
    assert not report.validity.ok
    said = "epoch 0 had 40 batches on rank 0 and 60 batches on rank 1"
    assert said in report.validity.caveats[0]
    assert said in printed


def test_ranks_without_a_common_folder_meet_at_an_address(
    jobs: Jobs, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for rank in jobs.ranks["apart"]:
        rank.wait(240)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert len([*jobs.folder.glob("node*/gpuprof/rank*.jsonl")]) == 2
    (folder,) = (jobs.folder / "apart").iterdir()
    assert {"rank0.jsonl", "rank1.jsonl", "rank0.summary.json", "rank1.summary.json", "report.json"} == {
        file.name for file in folder.iterdir()
    }
    assert main(["ranks", f"file://{jobs.folder}/apart"]) == 0
    assert "2 ranks on 1 host: 2 finished" in capsys.readouterr().out
    assert main(["report", f"file://{folder}", "--rank", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["run"]["rank"] == 1


def test_the_first_rank_reads_its_journal_once(jobs: Jobs) -> None:
    _, printed = jobs.ended("out of step")
    assert "1 times read" in printed
