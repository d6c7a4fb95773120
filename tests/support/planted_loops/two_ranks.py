"""Two gloo processes on the CPU that train together: run as a program, which Lightning starts once more for rank 1.

The plan of the naps goes in as JSON on the command line; each rank leaves what it slept beside its journal.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import lightning.pytorch as pl

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lightning_gpuprof.pipeline import make_report
from planted_loops.case import Case
from planted_loops.disturbance import Disturbance
from planted_loops.naps import Naps
from planted_loops.places import in_step
from planted_loops.planting import loader, planted_module
from planted_loops.run import Run

BATCHES = 10
TIMEOUT_S = 120.0


class LateRank(pl.Callback):
    """One rank takes naps after each of its batches but the last; the others wait for it before the next."""

    def __init__(self, naps: Naps, rank: int) -> None:
        self.naps = naps
        self.rank = rank

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """After a batch."""
        if trainer.global_rank == self.rank and batch_idx < BATCHES - 1:
            self.naps.take("late")


def train(folder: Path, plan: dict[str, float], *, awake: bool) -> None:
    """What each of the ranks does."""
    naps = Naps(plan, awake=awake)
    run = Run(folder, naps)
    trainer = run.trainer(callbacks=[LateRank(naps, 0)], strategy="ddp", devices=2)
    trainer.fit(planted_module(naps), loader(naps, 2 * BATCHES))
    (folder / f"slept{trainer.global_rank}.json").write_text(json.dumps(naps.slept_s))


def two_ranks(run: Run) -> None:
    """Train in two processes, and keep what each rank's journal says."""
    folder = run.folder / "ranks"
    folder.mkdir()
    arguments = [str(folder), json.dumps(run.naps.plan), *(["--awake"] if run.naps.awake else [])]
    disturbance = Disturbance()
    ranks = subprocess.Popen(
        [sys.executable, __file__, *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Lightning's rank 1 is a child of rank 0
    )
    try:
        _, told = ranks.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        os.killpg(ranks.pid, signal.SIGKILL)
        ranks.wait()
        raise AssertionError(f"the ranks hang: they were stopped after {TIMEOUT_S} s") from None
    if ranks.returncode:
        raise AssertionError(f"the ranks failed: {told[-2000:]}")
    lost_s = disturbance.lost_s()
    slept_s = [json.loads((folder / f"slept{rank}.json").read_text()) for rank in range(2)]
    slept_s[1]["wait for the late rank"] = slept_s[0].get("late", 0.0)
    for rank in range(2):
        alone = folder / f"rank{rank}"
        alone.mkdir()
        (folder / "gpuprof" / f"rank{rank}.jsonl").rename(alone / f"rank{rank}.jsonl")
        run.keep(make_report(alone), slept_s[rank], steps=BATCHES, lost_s=lost_s)


CASES = (
    Case(
        name="two gloo ranks, the first is late",
        do=two_ranks,
        naps={"dataset": 0.02, "training_step": 0.03, "optimizer": 0.01, "late": 0.1},
        places={
            "late": in_step("callbacks", "LateRank.on_train_batch_end"),
            "wait for the late rank": in_step("sync"),
        },
        approximate=frozenset({"wait for the late rank"}),
        varies="setup",
        slow=True,
    ),
)

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("plan", type=json.loads)
    parser.add_argument("--awake", action="store_true")
    options = parser.parse_args()
    train(options.folder, options.plan, awake=options.awake)
