"""Trains the toy model once with what a variant hands over; as a program it does so in a process of its own.

``python benchmarks/toy_run.py JOB`` runs the variants that the job names, in its order, and writes one result a line to
the job's file. ``separate_process.py`` starts it, for variants that would disturb others in the same process.
"""

import ctypes
import gc
import json
import logging
import os
import random
import sys
import tempfile
import time
import warnings
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader

sys.path.insert(0, str(Path(__file__).parent))  # a launcher that runs this file does not put its folder there
from instruments import VARIANTS, Variant

WARMUP_STEPS = 100
PRERUN_STEPS = 250
BATCH_SIZE = 32
FEATURES = 32
WIDTH = 128
CLASSES = 10
_layouts = random.Random()  # of no seed: children of a benchmark do not draw the same ones


@dataclass(frozen=True, kw_only=True)
class Job:
    """What a process of its own does."""

    variants: tuple[str, ...]
    steps: int
    accelerator: str
    results: str
    """File for the results."""
    nvml: str = ""
    """A library to load as the driver's, or empty."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One training run of one variant: microseconds per step, after the warm-up."""

    median_us: float
    mean_us: float
    quiet_us: float
    """5 % quantile: a step that nobody disturbed, on a machine that others share."""
    background_cpu_ratio: float | None = None
    """CPU time of ours beside the training thread over the wall time; None where there is no report of ours."""


class Toy(LightningModule):
    """A perceptron with a step of about half a millisecond on one CPU; notes when each training step begins."""

    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(
            nn.Linear(FEATURES, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, CLASSES)
        )
        self.entered_ns: list[int] = []

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        """Cross entropy of a batch."""
        self.entered_ns.append(time.perf_counter_ns())
        features, labels = batch
        return functional.cross_entropy(self.network(features), labels)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Plain SGD."""
        return torch.optim.SGD(self.parameters(), lr=0.01)


def train_once(variant: Variant, *, steps: int, accelerator: str) -> Run:
    """Train the toy model with what the variant hands over.

    Args:
        variant: What to measure.
        steps: Training steps; the first ``WARMUP_STEPS`` are left out of the result.
        accelerator: Lightning's name, ``cpu`` or ``gpu``.
    """
    seed_everything(1, verbose=False)
    batches = [
        (torch.randn(BATCH_SIZE, FEATURES), torch.randint(CLASSES, (BATCH_SIZE,)))  # made before the clock runs
        for _ in range(steps)
    ]
    # Where memory lies makes up to a tenth of a step's time, and stays alike for a variant: each fit draws its own.
    ballast = [torch.empty(_layouts.randrange(16, 1 << 16)) for _ in range(_layouts.randrange(200))]
    del ballast[:: _layouts.randrange(2, 5)]
    model = Toy()
    with tempfile.TemporaryDirectory(prefix="overhead-") as folder:
        instruments = variant.make(Path(folder))
        trainer = Trainer(
            accelerator=accelerator,
            devices=1,
            max_steps=steps,
            logger=instruments.logger or False,
            log_every_n_steps=instruments.log_every_n_steps,
            enable_checkpointing=instruments.own_callbacks,
            enable_progress_bar=instruments.own_callbacks,
            enable_model_summary=instruments.own_callbacks,
            default_root_dir=folder,
            callbacks=list(instruments.callbacks),
            profiler=instruments.profiler,
        )
        gc.collect()
        with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):  # the progress bar
            trainer.fit(model, DataLoader(batches, batch_size=None))  # type: ignore[arg-type]
        variant.check(Path(folder))
        background = _background_cpu_ratio(Path(folder))
    periods_us = np.diff(np.array(model.entered_ns, dtype=np.int64))[WARMUP_STEPS:] / 1e3
    return Run(
        median_us=float(np.median(periods_us)),
        mean_us=float(np.mean(periods_us)),
        quiet_us=float(np.quantile(periods_us, 0.05)),
        background_cpu_ratio=background,
    )


def _background_cpu_ratio(folder: Path) -> float | None:
    report = folder / "report.json"
    if not report.is_file():
        return None
    ratio = json.loads(report.read_text(encoding="utf-8"))["overhead"].get("background_cpu_ratio")
    return None if ratio is None else float(ratio)


def be_quiet() -> None:
    """Keep Lightning's advice off the terminal, and torch to one thread, in this process."""
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)


def main() -> int:
    """Do the job of the first argument."""
    job = Job(**json.loads(sys.argv[1]))
    if job.nvml:
        # Loaded under the driver's soname, it is what the loader gives to whoever asks for that name later.
        ctypes.CDLL(job.nvml, ctypes.RTLD_GLOBAL)
    be_quiet()
    for name in job.variants:
        train_once(VARIANTS[name], steps=PRERUN_STEPS, accelerator=job.accelerator)
    with Path(job.results).open("w", encoding="utf-8") as results:
        for name in job.variants:
            run = train_once(VARIANTS[name], steps=job.steps, accelerator=job.accelerator)
            results.write(json.dumps(asdict(run)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
