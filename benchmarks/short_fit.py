"""What a fit of a few steps takes longer with the profiler, and what hundreds of them leave behind; writes JSON.

Test suites and searches make many short fits, for which the profiler's begin and end are all that it costs. In each
round every variant fits the same small model once, in an order that is drawn anew, and is held against the fit without
the profiler of the same round. Wall time is what a user waits; CPU time of the process tells the same on a machine that
others use. The first fit of a process also imports what makes the report; it is measured in processes of its own. What
hundreds of fits leave (memory, threads, open files, trainers) is measured in a process for each variant. Run it with
nothing else running::

    python benchmarks/short_fit.py --rounds 40 --fits 200
"""

import argparse
import contextlib
import gc
import io
import json
import logging
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
import warnings
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.pytorch import Trainer
from lightning.pytorch.demos.boring_classes import BoringModel
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from paired import Interval, at_least, bootstrap, command_line, wide_console, write_json
from rich.table import Table

from lightning_gpuprof import GpuProfiler

STEPS = 4
NONE, DEFAULT = "nothing", "GpuProfiler()"
ALL_REPORTS = ["terminal", "tensorboard", "html", "json"]
VARIANTS: Mapping[str, Mapping[str, Any] | None] = {
    NONE: None,
    DEFAULT: {},
    "all reports asked for": {"reports": ALL_REPORTS},
    "no report files": {"reports": []},
    "no report files, no samplers": {"reports": [], "host": False, "nvml": False, "input_pipeline": False},
}
"""Arguments of the profiler, None for none. The last two are parts of the second."""
LOGGERS = {
    "no logger": lambda folder: False,
    "CSVLogger": CSVLogger,
    "TensorBoardLogger": TensorBoardLogger,
}
SETTLED = 20
"""Fits after which memory is looked at first: caches are filled."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """What one variant costs beside one logger."""

    logger: str
    variant: str
    fit_s: float
    added_s: Interval
    added_cpu_s: Interval


@dataclass(frozen=True, kw_only=True)
class First:
    """The first fit of a process, without a logger; medians."""

    variant: str
    fit_s: float
    cpu_s: float


@dataclass(frozen=True, kw_only=True)
class Left:
    """What one process holds after many fits."""

    variant: str
    fits: int
    first_mib: float
    """Resident memory after the first few fits."""
    last_mib: float
    threads: int
    files: int
    children: int
    trainers: int
    """Trainers and models that are still alive."""


def fit_once(arguments: Mapping[str, Any] | None, folder: str, logger: Any = False) -> tuple[Trainer, BoringModel]:
    """One fit of a few steps."""
    callbacks = [] if arguments is None else [GpuProfiler(**arguments)]
    trainer = Trainer(
        accelerator="cpu",
        default_root_dir=folder,
        logger=logger,
        callbacks=callbacks,
        max_epochs=1,
        limit_train_batches=STEPS,
        limit_val_batches=1,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    model = BoringModel()
    with contextlib.redirect_stdout(io.StringIO()):
        trainer.fit(model)
    return trainer, model


def time_once(variant: str, logger: str) -> tuple[float, float]:
    """Wall and CPU seconds of one fit in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="short-fit-") as folder:
        begin, cpu = time.perf_counter(), time.process_time()
        fit_once(VARIANTS[variant], folder, LOGGERS[logger](folder))
        return time.perf_counter() - begin, time.process_time() - cpu


def measure(logger: str, rounds: int, seed: int) -> list[Result]:
    """All variants in every round, in an order that is drawn anew."""
    rng, draws = random.Random(seed), np.random.default_rng(seed)
    for name in VARIANTS:
        time_once(name, logger)  # imports
    took: dict[str, list[tuple[float, float]]] = {name: [] for name in VARIANTS}
    for _ in range(rounds):
        for name in rng.sample(list(VARIANTS), len(VARIANTS)):
            gc.collect()
            took[name].append(time_once(name, logger))
    plain = np.array(took[NONE])
    added = {name: np.array(each) - plain for name, each in took.items()}
    return [
        Result(
            logger=logger,
            variant=name,
            fit_s=float(np.median(np.array(took[name])[:, 0])),
            added_s=bootstrap(added[name][:, 0].tolist(), draws),
            added_cpu_s=bootstrap(added[name][:, 1].tolist(), draws),
        )
        for name in VARIANTS
    ]


def firsts(rounds: int) -> list[First]:
    """The first fit of as many processes, without the profiler and with it; those before the first round compile."""
    took: dict[str, list[list[float]]] = {NONE: [], DEFAULT: []}
    for _ in range(rounds + 1):
        for name, times in took.items():
            times.append(json.loads(in_process("--first", name)))
    medians = {name: np.median(np.array(times[1:]), axis=0) for name, times in took.items()}
    return [First(variant=name, fit_s=float(wall), cpu_s=float(cpu)) for name, (wall, cpu) in medians.items()]


def resident_mib() -> float:
    """Resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def children() -> int:
    """Processes that this one has started and that are still there."""
    return sum(len((task / "children").read_text().split()) for task in Path("/proc/self/task").iterdir())


def many(variant: str, fits: int) -> Left:
    """Many fits in this process."""
    alive: list[weakref.ref[Any]] = []
    first_mib = 0.0
    for number in range(1, fits + 1):
        with tempfile.TemporaryDirectory(prefix="short-fit-") as folder:
            alive += [weakref.ref(each) for each in fit_once(VARIANTS[variant], folder)]
        if number == min(SETTLED, fits):
            gc.collect()
            first_mib = resident_mib()
    gc.collect()
    return Left(
        variant=variant,
        fits=fits,
        first_mib=first_mib,
        last_mib=resident_mib(),
        threads=threading.active_count(),
        files=len(list(Path("/proc/self/fd").iterdir())) - 1,  # and the one that lists them
        children=children(),
        trainers=sum(each() is not None for each in alive),
    )


def many_elsewhere(variant: str, fits: int) -> Left:
    """Many fits in a process of their own."""
    return Left(**json.loads(in_process("--many", variant, "--fits", str(fits))))


def in_process(*arguments: str) -> str:
    """The last line of this program with other arguments; what it compiles is kept, as of an installed package."""
    command = [sys.executable, __file__, *arguments]
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True, env=environ
    )
    return done.stdout.splitlines()[-1]


def as_table(results: Sequence[Result], rounds: int) -> Table:
    """Times for a person."""
    table = Table(title=f"A fit of {STEPS} steps, medians of {rounds} rounds, ms")
    table.add_column("with")
    for title in ("logger", "fit", "added", "95 % interval", "added CPU time"):
        table.add_column(title, justify="right")
    for result in results:
        added, cpu = result.added_s, result.added_cpu_s
        row = [result.variant, result.logger, f"{result.fit_s * 1e3:.1f}"]
        if result.variant != NONE:
            row += [f"{added.median * 1e3:+.1f}", f"{added.low * 1e3:+.1f} to {added.high * 1e3:+.1f}"]
            row += [f"{cpu.median * 1e3:+.1f}"]
        table.add_row(*row)
    return table


def first_table(results: Sequence[First], rounds: int) -> Table:
    """The first fit of a process, for a person."""
    table = Table(title=f"The first fit of a process, medians of {rounds}, ms")
    table.add_column("with")
    for title in ("fit", "CPU time"):
        table.add_column(title, justify="right")
    for result in results:
        table.add_row(result.variant, f"{result.fit_s * 1e3:.0f}", f"{result.cpu_s * 1e3:.0f}")
    return table


def left_table(left: Sequence[Left]) -> Table:
    """What is left, for a person."""
    table = Table(title=f"What {left[0].fits} fits in one process leave")
    table.add_column("with")
    for title in (f"after {min(SETTLED, left[0].fits)} fits MiB", "at the end MiB", "threads", "files", "children"):
        table.add_column(title, justify="right")
    table.add_column("trainers alive", justify="right")
    for each in left:
        counts = (each.threads, each.files, each.children, each.trainers)
        table.add_row(each.variant, f"{each.first_mib:.0f}", f"{each.last_mib:.0f}", *map(str, counts))
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write."""
    parser = command_line("short_fit", __doc__, seed="of the order of the variants and of the bootstrap")
    parser.add_argument("--rounds", type=at_least(1), default=40)
    parser.add_argument("--processes", type=at_least(1), default=7, help="of which the first fit is timed")
    parser.add_argument("--fits", type=int, default=200, help="in one process; 0 leaves that part out")
    parser.add_argument("--loggers", nargs="+", choices=tuple(LOGGERS), default=tuple(LOGGERS))
    parser.add_argument("--many", choices=tuple(VARIANTS), help=argparse.SUPPRESS)
    parser.add_argument("--first", choices=tuple(VARIANTS), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    if options.many:
        print(json.dumps(asdict(many(options.many, options.fits))))
        return 0
    if options.first:
        print(json.dumps(time_once(options.first, "no logger")))
        return 0
    console = wide_console()
    results = [each for logger in options.loggers for each in measure(logger, options.rounds, options.seed)]
    console.print(as_table(results, options.rounds))
    first = firsts(options.processes)
    console.print(first_table(first, options.processes))
    left = [many_elsewhere(name, options.fits) for name in (NONE, DEFAULT, "all reports asked for") if options.fits]
    if left:
        console.print(left_table(left))
    write_json(
        options.json,
        "short_fit",
        settings={name: getattr(options, name) for name in ("rounds", "processes", "fits", "seed")} | {"steps": STEPS},
        results=[asdict(result) for result in results],
        first=[asdict(each) for each in first],
        left=[asdict(each) for each in left],
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
