"""What a look at the training thread's line costs: steps beside each look against those before and after it.

Run it from anywhere, with nothing else running; two minutes::

    python benchmarks/look_cost.py

The real sampler looks some ten times a second from a thread of its own at a loop of torch's operators, and at one of
pure Python, which needs the interpreter most. Whole fits with and without looks differ by more than looks cost.
"""

import argparse
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from paired import RESULTS, at_least, wide_console, write_json
from rich.table import Table
from torch import nn

from lightning_gpuprof.capture.call_sites import CallSiteSampler

WARM_UP = 200
TRIMMED = 0.1
"""Of the looks at either end: a moment in which others had the CPU hits few of them."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """What looks add to the steps."""

    name: str
    step_us: float
    looks: int
    looks_per_s: float
    added_us: float
    """By a look, to all steps beside it: the trimmed mean."""
    low_us: float
    high_us: float
    """95 % of the mean."""
    ratio: float
    """Of the training time."""


def operators() -> Callable[[], object]:
    """A training step of torch's operators."""
    model = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batch = torch.randn(32, 32)

    def step() -> None:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()

    return step


def python() -> Callable[[], object]:
    """A step of Python alone."""
    numbers = range(5_000)
    return lambda: sum(number * number for number in numbers)


class Looks:
    """The sampler on a thread of its own; notes when it asks for the interpreter and looks."""

    def __init__(self) -> None:
        self.times: list[tuple[float, float]] = []
        self._over = threading.Event()
        self._sampler = CallSiteSampler(threading.get_ident(), lambda: 0)
        self._thread = threading.Thread(target=self._run, name="gpuprof-looks")  # as the real one
        self._thread.start()

    def _run(self) -> None:
        self._sampler.open()
        while not self._over.is_set():
            begin_s = time.perf_counter()
            self._sampler.sample(time.perf_counter_ns())
            self.times.append((begin_s, time.perf_counter()))
            time.sleep(max(0.0, self._sampler.interval_s))

    def end(self) -> None:
        """Wait for the last one."""
        self._over.set()
        self._thread.join()


def measure(name: str, step: Callable[[], object], seconds: float) -> Result:
    """Run a step beside looks.

    Args:
        name: Of the step.
        step: What is timed.
        seconds: For so long.
    """
    for _ in range(WARM_UP):
        step()
    looks, edges = Looks(), [time.perf_counter()]
    while edges[-1] - edges[0] < seconds:
        step()
        edges.append(time.perf_counter())
    looks.end()
    added = added_s(np.array(edges), looks.times)
    added.sort()
    kept = added[round(TRIMMED * len(added)) : len(added) - round(TRIMMED * len(added))]
    mean_us, unsure_us = 1e6 * float(kept.mean()), 1.96e6 * float(kept.std()) / len(kept) ** 0.5
    rate = len(looks.times) / seconds
    return Result(
        name=name,
        step_us=1e6 * float(np.median(np.diff(edges))),
        looks=len(added),
        looks_per_s=rate,
        added_us=mean_us,
        low_us=mean_us - unsure_us,
        high_us=mean_us + unsure_us,
        ratio=mean_us * rate / 1e6,
    )


def added_s(edges: np.ndarray, looks: Sequence[tuple[float, float]]) -> np.ndarray:
    """By each look: the time of the steps beside it, minus what as many of its neighbours on both sides take.

    Args:
        edges: When steps began and ended, one more than steps.
        looks: From when to when; those without room for neighbours are left out.
    """
    found = []
    for number, (begin_s, end_s) in enumerate(looks):
        first, last = np.searchsorted(edges, [begin_s, end_s])
        first, count = first - 1, last - first + 2  # one more, which may have waited for the look's end
        before, after = first - count // 2, first + count + (count + 1) // 2
        earlier = looks[number - 1][1] if number else edges[0]
        later = looks[number + 1][0] if number + 1 < len(looks) else edges[-1]
        if before < 0 or after >= len(edges) or edges[before] < earlier or edges[after] > later:
            continue
        beside = edges[first + count] - edges[first]
        found.append(beside - (edges[after] - edges[before] - beside))
    return np.array(found)


def as_table(results: Sequence[Result]) -> Table:
    """The results for a person."""
    table = Table("step", "µs", "looks", "a second", "a look adds, µs (95 %)", "of the time", title="Cost of looks")
    for one in results:
        cells = f"{one.added_us:+.0f} ({one.low_us:+.0f} to {one.high_us:+.0f})", f"{one.ratio:+.2%}"
        table.add_row(one.name, f"{one.step_us:.0f}", str(one.looks), f"{one.looks_per_s:.1f}", *cells)
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, default=RESULTS / "look_cost.json", help="where the results go")
    parser.add_argument("--seconds", type=at_least(5), default=60, help="for each step")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    steps = (("torch's operators", operators()), ("pure Python", python()))
    results = [measure(name, step, options.seconds) for name, step in steps]
    wide_console().print(as_table(results))
    settings = {"seconds": options.seconds}
    write_json(options.json, "look_cost", settings=settings, results=[asdict(one) for one in results])
    return 0


if __name__ == "__main__":
    sys.exit(main())
