"""What profilers and callbacks add to a training step, in paired, shuffled rounds; prints a table, writes JSON.

Run it from anywhere, with nothing else running::

    python benchmarks/overhead.py --rounds 12 --steps 1000

In each round every variant trains the same toy model once, in random order, in this process. The time of a step is
the time between two entries of ``training_step``, which the model itself notes: the measurement adds no callback, and
is the same for all variants. What happens after the last step (reports, trace files) is not in it. A variant is judged
by the difference of its median step to that of the plain run *of the same round*, so that a slow drift of the machine
cancels out. Variants all run once before the first round, because the first use of torch.profiler leaves traces in the
process.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import os
import platform
import random
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import lightning
import numpy as np
import torch
from lightning.pytorch import Callback, LightningModule, Trainer, seed_everything
from lightning.pytorch.profilers import AdvancedProfiler, Profiler, PyTorchProfiler, SimpleProfiler
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader

RESULTS = Path(__file__).parent / "results"
WARMUP_STEPS = 100
PRERUN_STEPS = 250
BATCH_SIZE = 32
FEATURES = 32
WIDTH = 128
CLASSES = 10
BOOTSTRAP_RESAMPLES = 10_000
BASELINE = "none"


@dataclass(frozen=True, kw_only=True)
class Instruments:
    """What a variant hands to the Trainer."""

    callbacks: tuple[Callback, ...] = ()
    profiler: Profiler | None = None


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


class EmptyCallback(Callback):
    """Overrides nothing: Lightning calls all hooks of every callback all the same."""


def no_instrument(folder: Path) -> Instruments:
    return Instruments()


def empty_callback(folder: Path) -> Instruments:
    return Instruments(callbacks=(EmptyCallback(),))


def gpuprof_default(folder: Path) -> Instruments:
    # Imported here: the other variants can be measured without this package.
    from lightning_gpuprof import GpuProfiler

    return Instruments(callbacks=(GpuProfiler(dirpath=str(folder), reports=["json"]),))


def gpuprof_phases_only(folder: Path) -> Instruments:
    from lightning_gpuprof import GpuProfiler

    profiler = GpuProfiler(trace=False, nvml=False, host=False, dirpath=str(folder), reports=["json"])
    return Instruments(callbacks=(profiler,))


def simple_profiler(folder: Path) -> Instruments:
    return Instruments(profiler=SimpleProfiler(dirpath=folder, filename="simple"))


def advanced_profiler(folder: Path) -> Instruments:
    return Instruments(profiler=AdvancedProfiler(dirpath=folder, filename="advanced"))


def pytorch_profiler(folder: Path) -> Instruments:
    schedule = torch.profiler.schedule(wait=90, warmup=5, active=5)
    return Instruments(profiler=PyTorchProfiler(dirpath=folder, filename="pytorch", schedule=schedule))


VARIANTS: dict[str, Callable[[Path], Instruments]] = {
    BASELINE: no_instrument,
    "empty": empty_callback,
    "gpuprof": gpuprof_default,
    "gpuprof-phases": gpuprof_phases_only,
    "simple": simple_profiler,
    "advanced": advanced_profiler,
    "pytorch": pytorch_profiler,
}
DEFAULT_VARIANTS = tuple(name for name in VARIANTS if name != "advanced")
LABELS = {
    BASELINE: "no callback",
    "empty": "an empty callback",
    "gpuprof": "GpuProfiler()",
    "gpuprof-phases": "GpuProfiler (phases)",
    "simple": "SimpleProfiler",
    "advanced": "AdvancedProfiler",
    "pytorch": "PyTorchProfiler 90/5/5",
}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a measurement depends on besides the machine."""

    variants: tuple[str, ...]
    rounds: int
    steps: int
    accelerator: str
    seed: int


@dataclass(frozen=True, kw_only=True)
class Run:
    """One training run of one variant: microseconds per step, after the warm-up."""

    median_us: float
    mean_us: float


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A median over rounds with its 95 % bootstrap interval."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Result:
    """What one variant costs."""

    variant: str
    label: str
    step_us: float
    """Median over rounds of the median step."""
    added_us: Interval
    """Paired difference of the median step to the plain run of the same round."""
    added_mean_us: Interval
    """The same for the mean step, which rare expensive steps (a trace window) show in."""
    ratio: Interval
    """Median step as a multiple of the plain run's."""
    rounds: tuple[Run, ...]


def train_once(make: Callable[[Path], Instruments], *, steps: int, accelerator: str) -> Run:
    """Train the toy model with what ``make`` returns.

    Args:
        make: Gets an empty folder to write into; the folder is gone afterwards.
        steps: Training steps; the first ``WARMUP_STEPS`` are left out of the result.
        accelerator: Lightning's name, ``cpu`` or ``gpu``.
    """
    seed_everything(1, verbose=False)
    batches = [
        (torch.randn(BATCH_SIZE, FEATURES), torch.randint(CLASSES, (BATCH_SIZE,)))  # made before the clock runs
        for _ in range(steps)
    ]
    model = Toy()
    with tempfile.TemporaryDirectory(prefix="overhead-") as folder:
        instruments = make(Path(folder))
        trainer = Trainer(
            accelerator=accelerator,
            devices=1,
            max_steps=steps,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            callbacks=list(instruments.callbacks),
            profiler=instruments.profiler,
        )
        gc.collect()
        trainer.fit(model, DataLoader(batches, batch_size=None))  # type: ignore[arg-type]
    periods_us = np.diff(np.array(model.entered_ns, dtype=np.int64))[WARMUP_STEPS:] / 1e3
    return Run(median_us=float(np.median(periods_us)), mean_us=float(np.mean(periods_us)))


def measure(settings: Settings, console: Console) -> dict[str, list[Run]]:
    """All variants in every round, in an order that is drawn anew for each."""
    rng = random.Random(settings.seed)
    for variant in settings.variants:
        train_once(VARIANTS[variant], steps=PRERUN_STEPS, accelerator=settings.accelerator)
    runs: dict[str, list[Run]] = {variant: [] for variant in settings.variants}
    for number in range(1, settings.rounds + 1):
        for variant in rng.sample(settings.variants, k=len(settings.variants)):
            runs[variant].append(train_once(VARIANTS[variant], steps=settings.steps, accelerator=settings.accelerator))
        plain = runs[BASELINE][-1].median_us
        console.print(f"round {number} of {settings.rounds}: {plain:.0f} µs a step without callback", style="dim")
    return runs


def bootstrap(values: Sequence[float], rng: np.random.Generator) -> Interval:
    """Median with its 95 % percentile interval (Efron 1979), the rounds being drawn with replacement."""
    sample = np.asarray(values)
    draws = np.median(rng.choice(sample, size=(BOOTSTRAP_RESAMPLES, len(sample))), axis=1)
    low, high = np.percentile(draws, [2.5, 97.5])
    return Interval(median=float(np.median(sample)), low=float(low), high=float(high))


def summarise(runs: dict[str, list[Run]], seed: int) -> list[Result]:
    """Each variant against the plain run of the same round."""
    rng = np.random.default_rng(seed)
    results = []
    for variant, of_variant in runs.items():
        pairs = list(zip(of_variant, runs[BASELINE], strict=True))
        results.append(
            Result(
                variant=variant,
                label=LABELS[variant],
                step_us=float(np.median([run.median_us for run in of_variant])),
                added_us=bootstrap([run.median_us - plain.median_us for run, plain in pairs], rng),
                added_mean_us=bootstrap([run.mean_us - plain.mean_us for run, plain in pairs], rng),
                ratio=bootstrap([run.median_us / plain.median_us for run, plain in pairs], rng),
                rounds=tuple(of_variant),
            )
        )
    return results


def as_table(results: Sequence[Result]) -> Table:
    """The results for a person."""
    table = Table(
        title="Time of a training step in µs",
        caption="added: paired difference of the median step to no callback; mean: the same for the mean step",
    )
    table.add_column("variant")
    table.add_column("median", justify="right")
    table.add_column("added", justify="right")
    table.add_column("95 % interval", justify="right")
    table.add_column("ratio", justify="right")
    table.add_column("mean", justify="right")
    for result in results:
        if result.variant == BASELINE:
            table.add_row(result.label, f"{result.step_us:.1f}")
            continue
        added = result.added_us
        table.add_row(
            result.label,
            f"{result.step_us:.1f}",
            f"{added.median:+.1f}",
            f"{added.low:+.1f} to {added.high:+.1f}",
            f"{result.ratio.median:.3f}",
            f"{result.added_mean_us.median:+.1f}",
        )
    return table


def usable_cpus() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def write_json(path: Path, results: Sequence[Result], settings: Settings) -> None:
    """The results for a program, with what they depend on; no name of this machine."""
    document = {
        "benchmark": "overhead",
        "machine": {
            "cpus": usable_cpus(),
            "gpu": torch.cuda.get_device_name(0) if settings.accelerator == "gpu" else None,
            "system": platform.system(),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "lightning": lightning.__version__,
        },
        "settings": {
            **asdict(settings),
            "warmup_steps": WARMUP_STEPS,
            "torch_threads": torch.get_num_threads(),
        },
        "results": [asdict(result) for result in results],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=12, help="how often every variant runs")
    parser.add_argument("--steps", type=int, default=1000, help=f"steps a run; the first {WARMUP_STEPS} do not count")
    parser.add_argument("--variants", nargs="+", choices=list(VARIANTS), default=list(DEFAULT_VARIANTS))
    parser.add_argument("--accelerator", choices=["cpu", "gpu"], default="cpu")
    parser.add_argument("--seed", type=int, default=0, help="of the order of the variants and of the bootstrap")
    parser.add_argument("--json", type=Path, default=RESULTS / "overhead.json", help="where the results go")
    options = parser.parse_args(arguments)
    if options.rounds < 1:
        parser.error(f"--rounds must be at least 1, got {options.rounds}")
    if options.steps < WARMUP_STEPS + 2:
        parser.error(f"--steps must be at least {WARMUP_STEPS + 2}, got {options.steps}")
    if options.accelerator == "gpu" and not torch.cuda.is_available():
        parser.error("--accelerator gpu needs a CUDA GPU, and torch finds none here")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write."""
    options = parse_arguments(arguments)
    settings = Settings(
        variants=tuple(dict.fromkeys([BASELINE, *options.variants])),
        rounds=options.rounds,
        steps=options.steps,
        accelerator=options.accelerator,
        seed=options.seed,
    )
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    console = Console()
    results = summarise(measure(settings, console), settings.seed)
    console.print(as_table(results))
    write_json(options.json, results, settings)
    console.print(f"written to {options.json}", markup=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
