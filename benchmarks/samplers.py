"""What sampling at the default intervals costs: a core's share in the background, and what it adds to a step.

Run it from anywhere, with nothing else running::

    python benchmarks/samplers.py --rounds 10 --steps 15000

Each round trains the toy of ``overhead.py`` with the profiler twice in one process that finds a scripted NVML, in an
order that is drawn: with its samplers (NVML, host, garbage collector, compiler) at their default intervals, and
without; then in the other order. The limits that this is held against are 1 % of one core and nothing measurable in the
step. A run is to last some seconds, as a sample is taken once a second.
"""

import random
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
from paired import Interval, at_least, bootstrap, command_line, wide_console, write_json
from rich.table import Table
from separate_process import why_not, with_nvml
from toy_run import WARMUP_STEPS, Run

OFF, ON = "not-sampling", "sampling"


@dataclass(frozen=True, kw_only=True)
class Result:
    """What sampling adds; microseconds a step, and shares of one core."""

    step_us: float
    added_us: Interval
    """Paired difference of the median step."""
    added_mean_us: Interval
    added_quiet_us: Interval
    """Of the 5 % quantile."""
    background_ratio: Interval
    """All threads of the profiler, with samplers."""
    added_background_ratio: Interval


def measure(rounds: int, steps: int, accelerator: str, seed: int) -> list[dict[str, Run]]:
    """Pairs of runs; two of opposite order follow each other."""
    rng = random.Random(seed)
    pairs = []
    for _ in range(rounds):
        order = rng.sample((OFF, ON), k=2)
        for each in (order, order[::-1]):
            runs = with_nvml(each, steps=steps, accelerator=accelerator)
            pairs.append(dict(zip(each, runs, strict=True)))
    return pairs


def summarise(pairs: Sequence[dict[str, Run]], seed: int) -> Result:
    """Sampling against not sampling in the same process.

    Raises:
        ValueError: A run reported no background time.
    """
    rng = np.random.default_rng(seed)
    background = {name: [_background(pair[name]) for pair in pairs] for name in (OFF, ON)}
    return Result(
        step_us=float(np.median([pair[OFF].median_us for pair in pairs])),
        added_us=bootstrap([pair[ON].median_us - pair[OFF].median_us for pair in pairs], rng),
        added_mean_us=bootstrap([pair[ON].mean_us - pair[OFF].mean_us for pair in pairs], rng),
        added_quiet_us=bootstrap([pair[ON].quiet_us - pair[OFF].quiet_us for pair in pairs], rng),
        background_ratio=bootstrap(background[ON], rng),
        added_background_ratio=bootstrap((np.array(background[ON]) - np.array(background[OFF])).tolist(), rng),
    )


def _background(run: Run) -> float:
    if run.background_cpu_ratio is None:
        raise ValueError("a run reported no CPU time of the profiler's own threads")
    return run.background_cpu_ratio


def as_table(result: Result) -> Table:
    """The result for a person."""
    table = Table(title=f"Sampling at default intervals, in a step of {result.step_us:.0f} µs")
    table.add_column("what")
    for heading in ("median", "95 % interval"):
        table.add_column(heading, justify="right")
    for name, value in (
        ("added to the median step, µs", result.added_us),
        ("added to the mean step, µs", result.added_mean_us),
        ("added to the 5 % quantile, µs", result.added_quiet_us),
    ):
        table.add_row(name, f"{value.median:+.2f}", f"{value.low:+.2f} to {value.high:+.2f}")
    for name, value in (
        ("threads of ours, % of a core", result.background_ratio),
        ("of it by sampling, % of a core", result.added_background_ratio),
    ):
        table.add_row(name, f"{100 * value.median:.2f}", f"{100 * value.low:.2f} to {100 * value.high:.2f}")
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write."""
    parser = command_line("samplers", __doc__, seed="of the order and of the bootstrap")
    parser.add_argument("--rounds", type=at_least(1), default=10, help="each of two processes with two runs")
    parser.add_argument("--steps", type=at_least(WARMUP_STEPS + 2), default=15_000, help="a run; some seconds of them")
    parser.add_argument("--accelerator", choices=["cpu", "gpu"], default="cpu")
    options = parser.parse_args(arguments)
    if why := why_not("fake-nvml"):
        parser.error(f"it cannot run here: {why}")
    pairs = measure(options.rounds, options.steps, options.accelerator, options.seed)
    result = summarise(pairs, options.seed)
    console = wide_console()
    console.print(as_table(result))
    write_json(
        options.json,
        "samplers",
        accelerator=options.accelerator,
        settings={"rounds": options.rounds, "steps": options.steps, "seed": options.seed},
        result=asdict(result),
        rounds=[{name: asdict(run) for name, run in pair.items()} for pair in pairs],
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
