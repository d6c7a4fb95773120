"""What the probe inside of DataLoader workers costs per item; prints a table, writes JSON.

Run it from anywhere, with nothing else running::

    python benchmarks/input_probe.py --rounds 15

Each round makes the batches of every case twice in random order, with the probe and without, by one forked worker or
in the training process. CPU time of the process that makes the batches is compared, which a busy machine blurs less
than wall time; the start of a worker is in both, and what the probe needs once per iterator is in the share. Added
time and its share are medians over the rounds with 95 % bootstrap intervals; the share is what the limit of 2 % of
item time refers to.
"""

import gc
import random
import resource
import time
import timeit
import zlib
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from paired import Interval, bootstrap, command_line, wide_console, write_json
from rich.table import Table
from torch.utils.data import DataLoader, Dataset

from lightning_gpuprof.capture.input.measurement import InputMeasurement
from lightning_gpuprof.capture.input.sampler import InputSampler

BATCH = 16


DATA = bytes(8_000_000)


@lru_cache(maxsize=1)
def bytes_per_us() -> float:
    """Of how many bytes the CPU of this machine makes a checksum in a microsecond."""
    took_s = min(timeit.repeat(lambda: zlib.crc32(DATA), number=1, repeat=20))
    return len(DATA) / took_s / 1e6


class Work:
    """A transform that computes for as long as told, in C as decoders do.

    A loop of Python instead is up to a tenth faster or slower by where the interpreter's own stack lies, and the
    probe's frames move that.
    """

    def __init__(self, us: float) -> None:
        self.data = DATA[: max(1, round(us * bytes_per_us()))]

    def __call__(self, item: Any) -> Any:
        """The item as it is, later."""
        zlib.crc32(self.data)
        return item


class Compose:
    """As torchvision's."""

    def __init__(self, transforms: Sequence[Callable[[Any], Any]]) -> None:
        self.transforms = list(transforms)

    def __call__(self, item: Any) -> Any:
        """The item after all transforms."""
        for transform in self.transforms:
            item = transform(item)
        return item


class Items(Dataset[torch.Tensor]):
    """Items that take about so long, by a number of transforms."""

    def __init__(self, size: int, us: float, transforms: int) -> None:
        self.rows = torch.arange(float(size)).unsqueeze(1)
        self.transform = Compose([Work(us / transforms) for _ in range(transforms)])

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.transform(self.rows[index])


@dataclass(frozen=True, kw_only=True)
class Case:
    """Items of one kind, made by a worker or by the training process."""

    name: str
    item_us: float
    transforms: int
    workers: int
    items: int


CASES = tuple(
    Case(name=name, item_us=us, transforms=transforms, workers=workers, items=items)
    for workers in (1, 0)
    for name, us, transforms, items in (
        ("short items", 5.0, 1, 32_000),
        ("100 us", 100.0, 1, 6_400),
        ("100 us in 10 transforms", 100.0, 10, 6_400),
        ("1 ms in 4 transforms", 1000.0, 4, 800),
    )
)


@dataclass(frozen=True, kw_only=True)
class Result:
    """What the probe adds to one case."""

    case: Case
    item_us: float
    """CPU time per item without the probe, median."""
    added_us: Interval
    share: Interval
    rounds: tuple[tuple[float, float], ...]
    """CPU time per item in us, with and without."""


def cpu_s(case: Case) -> float:
    """CPU time so far of the processes that make the batches; of workers, only of ended ones."""
    if not case.workers:
        return time.process_time()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def item_us(case: Case, *, probed: bool) -> float:
    """CPU time per item in us."""
    loader = DataLoader(
        Items(case.items, case.item_us, case.transforms),
        batch_size=BATCH,
        num_workers=case.workers,
        multiprocessing_context="fork" if case.workers else None,
    )
    errors: list[Exception] = []
    measurement = InputMeasurement(lambda: loader, on_failure=errors.append, notice=print) if probed else nullcontext()
    gc.collect()
    gc.freeze()  # a collection looks at what is made here, not at all that torch has
    begin = cpu_s(case)
    if isinstance(measurement, InputMeasurement):
        measurement.begin()
    for _ in loader:
        pass
    used = cpu_s(case) - begin
    gc.unfreeze()
    if isinstance(measurement, InputMeasurement):
        InputSampler(measurement.iterators).close()
        measurement.end()
        measurement.remove_files()
    if errors:
        raise errors[0]
    return used / case.items * 1e6


def measure(cases: Sequence[Case], rounds: int, seed: int = 0) -> list[Result]:
    """Run all cases in random order, so often.

    Args:
        cases: What.
        rounds: How often each is run with the probe and without.
        seed: Fixes the order.
    """
    shuffle, rng = random.Random(seed), np.random.default_rng(seed)
    times: dict[Case, list[tuple[float, float]]] = {case: [] for case in cases}
    for case in cases:
        item_us(case, probed=True)  # what is compiled or imported on first use
    for _ in range(rounds):
        for case in shuffle.sample(list(cases), len(cases)):
            order = shuffle.sample((True, False), 2)
            found = {probed: item_us(case, probed=probed) for probed in order}
            times[case].append((found[True], found[False]))
    return [
        Result(
            case=case,
            item_us=float(np.median([without for _, without in pairs])),
            added_us=bootstrap([with_us - without for with_us, without in pairs], rng),
            share=bootstrap([with_us / without - 1 for with_us, without in pairs], rng),
            rounds=tuple(pairs),
        )
        for case, pairs in times.items()
    ]


def table(results: Sequence[Result]) -> Table:
    """The results for people."""
    shown = Table(title="Cost of the probe in the input pipeline: CPU time per item, medians with 95 % intervals")
    for column in ("made by", "items", "one item", "added", "share"):
        shown.add_column(column, justify="left" if column in ("made by", "items") else "right")
    for result in results:
        added, share = result.added_us, result.share
        shown.add_row(
            "a worker" if result.case.workers else "the training process",
            result.case.name,
            f"{result.item_us:.1f} µs",
            f"{added.median:+.2f} µs ({added.low:+.2f} to {added.high:+.2f})",
            f"{share.median:+.2%} ({share.low:+.2%} to {share.high:+.2%})",
        )
    return shown


def main(arguments: Sequence[str] | None = None) -> int:
    parser = command_line("input_probe", __doc__)
    parser.add_argument("--rounds", type=int, default=15, help="with and without, of every case; default: 15")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    results = measure(CASES, options.rounds)
    wide_console().print(table(results))
    write_json(
        options.json, "input_probe", rounds=options.rounds, batch_size=BATCH, results=[asdict(r) for r in results]
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
