"""How soon a rank that hangs is named, and how often one is named that does not; prints a table, writes JSON.

Run it from anywhere::

    python benchmarks/rank_hang.py

Jobs of two gloo processes train with short steps until one rank stops for good: in its forward, in a callback, or while
it fetches a batch. Beside them, ordinary fits of one process run for some minutes: steps that sleep, with a validation
of 3 s and a checkpoint of 4 s now and then, one fit with steps of 6 s. All of them sleep most of the time. Folders are
looked at as ``gpuprof ranks DIR --watch`` does, once a second. A fit is called hanging wrongly if any look says so.
"""

import logging
import os
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from paired import at_least, command_line, wide_console, write_json
from rich.table import Table
from torch import nn
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))  # the tests fork ranks, too

from forked_ranks import forked_ranks

from lightning_gpuprof import GpuProfiler, HostConfig
from lightning_gpuprof.errors import JournalError
from lightning_gpuprof.job_ranks import job_ranks

PLACES = {"forward": "forward", "callback": "callbacks", "fetch": "data_wait"}
"""Where a rank stops -> the phase that has to be named."""
STEPS_BEFORE = 60
STEP_S = 0.1
LONG_STEP_S = 6.0
VALIDATION_S, CHECKPOINT_S = 3.0, 4.0
ENDLESS = 10**9


@dataclass(kw_only=True)
class Job:
    """One fit, and what was said of it."""

    folder: Path
    place: str = ""
    """Where a rank stops; empty: none does."""
    rank: int = 0
    """That stops."""
    step_s: float = STEP_S
    named_s: float | None = None
    """From the stop to the right answer."""
    answer: str = ""
    alarms: list[str] = field(default_factory=list)
    """Answers that were wrong."""


class Rows(Dataset[torch.Tensor]):
    """Many rows; fetching may stop."""

    def __init__(self, job: Job, rank: int) -> None:
        self.job, self.rank, self.fetched = job, rank, 0

    def __len__(self) -> int:
        return ENDLESS

    def __getitem__(self, index: int) -> torch.Tensor:
        self.fetched += 1
        stop(self.job, self.rank, "fetch", self.fetched)
        return torch.full((8,), 1.0)


class Net(LightningModule):
    """One layer; steps sleep, and may stop."""

    def __init__(self, job: Job) -> None:
        super().__init__()
        self.job, self.layer = job, nn.Linear(8, 1)

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        """Sleep."""
        stop(self.job, self.global_rank, "forward", batch_idx)
        time.sleep(self.job.step_s)
        loss: torch.Tensor = self.layer(batch).square().mean()
        return loss

    def validation_step(self, batch: torch.Tensor, batch_idx: int) -> None:
        """Sleep longer."""
        time.sleep(VALIDATION_S)

    def on_save_checkpoint(self, checkpoint: dict[str, object]) -> None:
        """Sleep as a slow disk would."""
        time.sleep(CHECKPOINT_S)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Plain SGD."""
        return torch.optim.SGD(self.parameters(), lr=0.0)


class Stops(Callback):
    """May stop after a batch."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def on_train_batch_end(self, trainer: Trainer, *args: object) -> None:
        """After a batch."""
        stop(self.job, trainer.global_rank, "callback", trainer.global_step)


def stop(job: Job, rank: int, place: str, step: int) -> None:
    """Stop for good where the job says so, and note when."""
    if (place, rank) == (job.place, job.rank) and step == STEPS_BEFORE:
        (job.folder / "stopped").write_text(repr(time.time()))
        threading.Event().wait()


def train(job: Job, rank: int, ranks: int) -> None:
    """One rank of a fit; it does not end by itself."""
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore")
    sys.stdout = sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - until the process ends
    Trainer(
        accelerator="cpu",
        devices=ranks,
        strategy="ddp" if ranks > 1 else "auto",
        max_steps=-1,
        val_check_interval=None if job.place else 200,
        limit_val_batches=0 if job.place else 1,
        default_root_dir=job.folder,
        logger=False,
        enable_checkpointing=not job.place,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
        callbacks=[GpuProfiler(dirpath=str(job.folder / "run"), reports=[], windows=[]), Stops(job)],
    ).fit(Net(job), DataLoader(Rows(job, rank)), DataLoader([torch.ones(8)]))


def started(job: Job, ranks: int) -> list[int]:
    """The processes of a fit, forked from this one, which has imported torch."""
    job.folder.mkdir()

    def work(rank: int) -> None:
        try:
            train(job, rank, ranks)
        finally:
            os._exit(1)

    return forked_ranks(work, ranks=ranks)


def look(job: Job) -> None:
    """Note what is said of a job now."""
    try:
        found = job_ranks(job.folder / "run")
    except JournalError:  # nothing is written yet
        return
    if all(one.state != "hanging" for one in found.ranks):
        return
    stopped = job.folder / "stopped"
    since_s = time.time() - float(stopped.read_text() or "inf") if stopped.exists() else None
    is_right = since_s is not None and f"rank {job.rank} in {PLACES[job.place]}" in found.answer
    if not is_right:
        job.alarms.append(found.answer)
    elif job.named_s is None:
        job.named_s, job.answer = since_s, found.answer


def run(folder: Path, hangs: int, ordinary: int, minutes: float) -> tuple[list[Job], list[Job], float]:
    """All jobs beside each other: those that hang, those that do not, and the hours that the latter ran in all."""
    places = [*PLACES]
    hanging = [
        Job(folder=folder / f"hangs{at}", place=places[at % len(places)], rank=at // len(places) % 2)
        for at in range(hangs)
    ]
    healthy = [Job(folder=folder / f"ordinary{at}", step_s=STEP_S if at else LONG_STEP_S) for at in range(ordinary)]
    pids = [pid for job in healthy for pid in started(job, 1)]
    pids += [pid for job in hanging for pid in started(job, 2)]
    begin = time.monotonic()
    try:
        while (took_s := time.monotonic() - begin) < 60 * minutes:
            for job in (*(one for one in hanging if one.named_s is None), *healthy):
                look(job)
            time.sleep(1.0)
    finally:
        for pid in pids:
            os.kill(pid, 9)
        for pid in pids:
            os.waitpid(pid, 0)
    return hanging, healthy, ordinary * took_s / 3600


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the jobs, print a table, write JSON.

    Args:
        arguments: The command line.
    """
    parser = command_line("rank_hang", __doc__)
    parser.add_argument("--hangs", type=at_least(1), default=6, help="jobs of which a rank hangs")
    parser.add_argument("--ordinary", type=at_least(1), default=12, help="fits that do not")
    parser.add_argument("--minutes", type=float, default=5.0, help="for which all of them run")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="gpuprof-benchmark-") as folder:
        hanging, healthy, hours = run(Path(folder), options.hangs, options.ordinary, options.minutes)
    table = Table("stops in", "rank", "named after", "said", title="A rank that hangs")
    for job in hanging:
        table.add_row(job.place, str(job.rank), "-" if job.named_s is None else f"{job.named_s:.0f} s", job.answer)
    wide_console().print(table)
    alarms = [answer for job in (*hanging, *healthy) for answer in job.alarms]
    print(f"{len(alarms)} wrong answers; {hours:.2f} hours of ordinary fits")
    write_json(
        options.json,
        "rank_hang",
        threshold_s=HostConfig.hang_s,
        hangs=[{"place": one.place, "rank": one.rank, "named_s": one.named_s, "said": one.answer} for one in hanging],
        ordinary={"fits": len(healthy), "hours": hours},
        wrong=alarms,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
