"""What the profiler adds to a step, found by alternating it with nothing inside one fit; prints a table, writes JSON.

Two fits of one program differ by several microseconds a step for no reason but where their memory lies. Here one fit
changes every sixty steps, in an order that is drawn anew for each turn, between no profiler, ours (all of it that runs
in the training thread is taken off and put back), and an empty callback. Each turn gives one pair of medians. Measured
in a trainer without other callbacks, and in one with as many as Lightning puts there by default (progress bar,
checkpoint, summary; here they are empty). Run it with nothing else running::

    python benchmarks/one_fit.py --steps 60000
"""

import gc
import logging
import random
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from lightning.pytorch import Callback, Trainer
from paired import Interval, at_least, bootstrap, command_line, wide_console, write_json
from rich.table import Table
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from toy_run import BATCH_SIZE, CLASSES, FEATURES, Toy

from lightning_gpuprof import GpuProfiler
from lightning_gpuprof.capture.input.torch_private import TimedOrder

BLOCK = 60
SETTLING = 5
"""Steps of a block that do not count: caches turn warm."""
BATCHES = 512
NONE, EMPTY, OURS = "none", "empty", "gpuprof"
MODES = (NONE, EMPTY, OURS)
OTHERS = (0, 3)
LABELS = {NONE: "nothing", EMPTY: "an empty callback", OURS: "GpuProfiler()"}


class EmptyCallback(Callback):
    """Overrides nothing: Lightning calls all hooks of every callback all the same."""


class Other(Callback):
    """One of the callbacks that were there before."""


class Alternating(Toy):
    """The toy; calls ``turn`` with the block's number before the first step of each block."""

    turn: Callable[[int], None]
    at_last: tuple[int, Callable[[], None]]
    """The last step, and what is done in it."""

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        """One step, after the change if one is due."""
        if batch_idx % BLOCK == 0:
            self.turn(batch_idx // BLOCK)
        if batch_idx == self.at_last[0]:
            self.at_last[1]()
        return super().training_step(batch, batch_idx)


class Batches(Dataset[tuple[Tensor, Tensor]]):
    """The same few batches again and again, made before the clock runs."""

    def __init__(self, length: int) -> None:
        self._made = [
            (torch.randn(BATCH_SIZE, FEATURES), torch.randint(CLASSES, (BATCH_SIZE,))) for _ in range(BATCHES)
        ]
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self._made[index % BATCHES]


class Switch:
    """Takes all of the profiler that runs in the training thread out of a fit, and puts it back.

    That is: its place among the trainer's callbacks, its edges and its tap, its two callbacks of the garbage collector,
    and the classes of the loader's fetcher and iterator. Its threads go on.

    Args:
        profiler: In a fit that has begun.
        trainer: Of the fit.
        collector: ``gc.callbacks`` before the fit.
    """

    def __init__(self, profiler: GpuProfiler, trainer: Any, collector: Sequence[Any]) -> None:
        self._profiler, self._trainer = profiler, trainer
        self._session: Any = profiler._session
        self._collector = [callback for callback in gc.callbacks if callback not in collector]
        self._timed: list[tuple[Any, type]] = []
        """The loader's fetcher and iterator, each with the class that it has by itself."""
        for own in self._session._inputs._own:
            is_order = isinstance(own, TimedOrder)
            timed: Any = own._iterator() if is_order else own._fetcher()
            if timed is not None:
                self._timed.append((timed, own._base if is_order else own._classes.base))
        self._ours: list[type] = []
        self.on = True

    def put(self, on: bool) -> None:
        """As it is to be."""
        if on is not self.on:
            (self._put_on if on else self._restore)()
        self.on = on

    def _restore(self) -> None:
        self._session._edges.detach()
        self._trainer.profiler = self._session.tap.inner
        self._trainer.callbacks.remove(self._profiler)
        for callback in self._collector:
            gc.callbacks.remove(callback)
        self._ours = [type(timed) for timed, _ in self._timed]
        for timed, plain in self._timed:
            timed.__class__ = plain

    def _put_on(self) -> None:
        for (timed, _), ours in zip(self._timed, self._ours, strict=True):
            timed.__class__ = ours
        gc.callbacks.extend(self._collector)
        self._trainer.callbacks.insert(0, self._profiler)
        self._trainer.profiler = self._session.tap
        self._session._edges.attach()


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a mode adds to the median step of a block, µs."""

    other_callbacks: int
    mode: str
    label: str
    step_us: float
    added_us: Interval


def alternate(steps: int, seed: int, others: int) -> dict[str, list[float]]:
    """Train once beside so many other callbacks; median step of each block by mode, µs, in the order of the turns."""
    rng = random.Random(seed)
    model = Alternating()
    order: list[str] = []
    modes: list[str] = []
    empty = EmptyCallback()
    with tempfile.TemporaryDirectory(prefix="one-fit-") as folder:
        profiler = GpuProfiler(dirpath=folder, reports=["json"], windows=[])
        trainer: Any = Trainer(
            accelerator="cpu",
            devices=1,
            max_steps=steps,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            callbacks=[profiler, *(Other() for _ in range(others))],
        )

        switches: list[Switch] = []
        collector = list(gc.callbacks)

        def turn(block: int) -> None:
            if not switches:
                switches.append(Switch(profiler, trainer, collector))
            if not order:
                order.extend(rng.sample(MODES, len(MODES)))
            mode = order.pop()
            modes.append(mode)
            if empty in trainer.callbacks:
                trainer.callbacks.remove(empty)
            switches[0].put(mode == OURS)
            if mode == EMPTY:
                trainer.callbacks.append(empty)

        model.turn = turn
        model.at_last = steps - 1, lambda: switches[0].put(True)
        trainer.fit(model, DataLoader(Batches(steps), batch_size=None))
    took_us = np.diff(np.array(model.entered_ns, dtype=np.int64)) / 1e3
    medians: dict[str, list[float]] = {mode: [] for mode in MODES}
    for block, mode in enumerate(modes):
        of_block = took_us[block * BLOCK + SETTLING : (block + 1) * BLOCK - 1]
        if len(of_block) == BLOCK - SETTLING - 1:
            medians[mode].append(float(np.median(of_block)))
    turns = min(len(values) for values in medians.values())
    return {mode: values[1:turns] for mode, values in medians.items()}  # the first turn warms up


def summarise(medians: dict[str, list[float]], seed: int, others: int) -> list[Result]:
    """Each mode against nothing, of the same turn."""
    rng = np.random.default_rng(seed)
    plain = np.array(medians[NONE])
    return [
        Result(
            other_callbacks=others,
            mode=mode,
            label=LABELS[mode],
            step_us=float(np.median(medians[mode])),
            added_us=bootstrap((np.array(medians[mode]) - plain).tolist(), rng),
        )
        for mode in MODES
    ]


def as_table(results: Sequence[Result], turns: int) -> Table:
    """The results for a person."""
    beside = results[0].other_callbacks
    title = f"Time of a training step in µs beside {beside} other callbacks, {turns} turns in one fit"
    table = Table(title=title)
    table.add_column("with")
    for title in ("median", "added", "95 % interval"):
        table.add_column(title, justify="right")
    for result in results:
        added = result.added_us
        if result.mode == NONE:
            table.add_row(result.label, f"{result.step_us:.1f}")
        else:
            table.add_row(
                result.label, f"{result.step_us:.1f}", f"{added.median:+.1f}", f"{added.low:+.1f} to {added.high:+.1f}"
            )
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write."""
    parser = command_line("one_fit", __doc__, seed="of the order of the modes and of the bootstrap")
    parser.add_argument("--steps", type=at_least(BLOCK * len(MODES) * 3), default=60_000)
    options = parser.parse_args(arguments)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    begin = time.perf_counter()
    console = wide_console()
    results: list[Result] = []
    turns = 0
    for others in OTHERS:
        medians = alternate(options.steps, options.seed, others)
        turns = len(medians[NONE])
        of_these = summarise(medians, options.seed, others)
        console.print(as_table(of_these, turns))
        results += of_these
    settings = {"steps": options.steps, "block": BLOCK, "seed": options.seed, "turns": turns}
    write_json(
        options.json,
        "one_fit",
        settings={**settings, "took_s": round(time.perf_counter() - begin, 1)},
        results=[asdict(result) for result in results],
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
