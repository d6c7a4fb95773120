"""What a step costs more on each of two gloo ranks, beside an empty callback and beside none; writes JSON.

Two processes train the same small model with DDP again and again, each time with another variant, in an order that is
drawn anew in each round and is the same on both ranks. The model notes when each of its steps begins. What a variant
costs is the difference of its median step to that of the same round's fit with an empty callback, likewise to that of
the fit without any, and likewise of its mean step, in which samplers, writers and a window count as well. The JSON has
every round. Run it with nothing else running::

    python benchmarks/rank_cost.py
"""

import argparse
import json
import logging
import os
import random
import sys
import tempfile
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from instruments import EmptyCallback
from lightning.pytorch import LightningModule, Trainer
from paired import at_least, bootstrap, command_line, wide_console, write_json
from rich.table import Table
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))  # the tests fork ranks, too

from forked_ranks import forked_ranks

from lightning_gpuprof import GpuProfiler

RANKS = 2
WARM_UP = 50
WIDTH = 256


NONE, EMPTY = "nothing", "empty callback"
BASES = {"beyond_empty": EMPTY, "beyond_nothing": NONE}
STATISTICS = ("median", "mean")
"""Of the steps of a fit."""
VARIANTS = {
    NONE: list,
    EMPTY: lambda: [EmptyCallback()],
    "GpuProfiler()": lambda: [GpuProfiler(reports=[])],
    "GpuProfiler(trace=False)": lambda: [GpuProfiler(reports=[], trace=False)],
}
"""Callbacks of a fit. Reports are made after it; a window is opened within it."""


class Model(LightningModule):
    """Three layers; notes when its steps begin."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10))
        self.begins_ns: list[int] = []

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        """Note when it began."""
        self.begins_ns.append(time.perf_counter_ns())
        loss: torch.Tensor = self.layers(batch[0]).square().mean()
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Plain SGD."""
        return torch.optim.SGD(self.parameters(), lr=1e-3)


def step_us(variant: str, steps: int, folder: str) -> tuple[float, float]:
    """Median and mean step of one fit, without its first steps."""
    model = Model()
    trainer = Trainer(
        accelerator="cpu",
        devices=RANKS,
        strategy="ddp",
        max_steps=steps,
        default_root_dir=folder,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=VARIANTS[variant](),
    )
    trainer.fit(model, DataLoader(TensorDataset(torch.randn(RANKS * steps * 16, WIDTH)), batch_size=16))
    steps_us = np.diff(model.begins_ns[WARM_UP:]) / 1e3
    return float(np.median(steps_us)), float(np.mean(steps_us))


def rank(options: argparse.Namespace, into: Path) -> None:
    """All fits of one rank; their steps go to a file."""
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    drawn = random.Random(options.seed)
    rounds = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.rounds + 1):  # the first one imports and connects
            order = drawn.sample(list(VARIANTS), len(VARIANTS))
            found = {variant: step_us(variant, options.steps, f"{folder}/{number}") for variant in order}
            rounds += [found] if number else []
    into.write_text(json.dumps(rounds))


def run(options: argparse.Namespace) -> list[list[dict[str, list[float]]]]:
    """The rounds of each rank: variant -> median and mean step in us."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"{number}.json" for number in range(RANKS)]

        def work(number: int) -> None:
            rank(options, files[number])
            os._exit(0)

        codes = [os.waitpid(pid, 0)[1] for pid in forked_ranks(work, ranks=RANKS)]
        if any(codes):
            raise SystemExit("a rank failed")
        return [json.loads(file.read_text()) for file in files]


def summary(rounds: Sequence[Mapping[str, Sequence[float]]], seed: int) -> dict[str, dict[str, Any]]:
    """What each variant's step takes, and takes longer than in the same round's other fits, in us."""
    rng = np.random.default_rng(seed)
    found: dict[str, dict[str, Any]] = {}
    for variant in VARIANTS:
        found[variant] = {"median_step": asdict(bootstrap([one[variant][0] for one in rounds], rng))}
        for key, base in BASES.items():
            for which, name in enumerate(STATISTICS):
                longer = [one[variant][which] - one[base][which] for one in rounds]
                found[variant][f"{key}_{name}"] = asdict(bootstrap(longer, rng))
    return found


def main() -> int:
    """Run the rounds, print a table, write JSON."""
    parser = command_line("rank_cost", __doc__, seed="of the orders")
    parser.add_argument("--rounds", type=at_least(3), default=24, help="of one fit of each variant")
    parser.add_argument("--steps", type=at_least(WARM_UP + 10), default=1000, help="of a fit")
    options = parser.parse_args()
    rounds = run(options)
    ranks = [summary(of_rank, options.seed) for of_rank in rounds]
    columns = [f"{name}: us beyond {base}" for base in BASES.values() for name in STATISTICS]
    table = Table("rank", "callback", "step us", *columns, title="What a step of DDP costs")
    for number, found in enumerate(ranks):
        for variant, one in found.items():
            shown = [
                "{median:+.1f} ({low:+.1f} to {high:+.1f})".format(**one[f"{key}_{name}"])
                for key in BASES
                for name in STATISTICS
            ]
            table.add_row(str(number), variant, f"{one['median_step']['median']:,.0f}", *shown)
    wide_console().print(table)
    write_json(options.json, "rank cost", steps=options.steps, ranks=ranks, rounds=rounds)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
