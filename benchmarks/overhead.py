"""What profilers and callbacks add to a training step, in paired, shuffled rounds; prints a table, writes JSON.

Run it from anywhere, with nothing else running::

    python benchmarks/overhead.py --rounds 12 --steps 3000

In each round every variant trains the same toy model once, in random order. The time of a step is the time between two
entries of ``training_step``, which the model itself notes: the measurement adds no callback, and is the same for all
variants. What happens after the last step (reports, trace files) is not in it. A variant is judged by the difference
of its median step to that of its plain run *of the same round*, so that a slow drift of the machine cancels out.
Variants all run once before the first round, because the first use of torch.profiler leaves traces in the process.
Fits differ by where their memory lies, so each fit draws a layout: on a slow or noisy machine, many short ones say more
(``--rounds 60 --steps 300``). A trace window opens after two seconds at the earliest (``--steps 8000``).

The plain run is one without any callback, in the same process; but

- what needs a logger is held against a run with the same logger;
- ``gpuprof-all`` (a scripted NVML, all samplers ten times a second) runs in a fresh process, with a plain run there;
- ``traceml`` runs under its own launcher, in an environment of its own (``traceml_environment.py``), and is held
  against the same program in the same environment without the launcher.
"""

import argparse
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import torch
from instruments import BASELINE, OURS, VARIANTS, with_baselines
from paired import Interval, Multiple, at_least, bootstrap, command_line, multiple, times, wide_console, write_json
from rich.console import Console
from rich.table import Table
from separate_process import under_traceml, why_not, with_nvml
from toy_run import PRERUN_STEPS, WARMUP_STEPS, Run, be_quiet, train_once

DEFAULT_VARIANTS = tuple(name for name, variant in VARIANTS.items() if variant.by_default)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a measurement depends on besides the machine."""

    variants: tuple[str, ...]
    rounds: int
    steps: int
    accelerator: str
    seed: int


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A variant's run and the plain run of the same round that it is held against."""

    run: Run
    plain: Run


@dataclass(frozen=True, kw_only=True)
class Result:
    """What one variant costs."""

    variant: str
    label: str
    baseline: str
    step_us: float
    """Median over rounds of the median step."""
    added_us: Interval
    """Paired difference of the median step to the plain run of the same round."""
    added_mean_us: Interval
    """The same for the mean step, which rare expensive steps (a trace window) show in."""
    added_quiet_us: Interval
    """The same for the 5 % quantile of the steps: what is added when other programs do not disturb."""
    ratio: Interval
    """Median step as a multiple of the plain run's."""
    times_ours: Multiple | None
    """``added_us`` as a multiple of ours; None if ours was not measured."""
    times_ours_mean: Multiple | None
    """The same for ``added_mean_us``."""
    rounds: tuple[Pair, ...]


def measure(settings: Settings, console: Console) -> dict[str, list[Pair]]:
    """All variants in every round, in an order that is drawn anew for each."""
    rng = random.Random(settings.seed)
    for name in settings.variants:
        if VARIANTS[name].place == "here":
            train_once(VARIANTS[name], steps=PRERUN_STEPS, accelerator=settings.accelerator)
    pairs: dict[str, list[Pair]] = {name: [] for name in settings.variants}
    for number in range(1, settings.rounds + 1):
        here: dict[str, Run] = {}
        for name in rng.sample(settings.variants, k=len(settings.variants)):
            if VARIANTS[name].place == "here":
                here[name] = train_once(VARIANTS[name], steps=settings.steps, accelerator=settings.accelerator)
            else:
                pairs[name].append(_pair_elsewhere(name, settings, rng))
        for name, run in here.items():
            pairs[name].append(Pair(run=run, plain=here[VARIANTS[name].baseline]))
        plain = here[BASELINE].median_us
        console.print(f"round {number} of {settings.rounds}: {plain:.0f} µs a step without callback", style="dim")
    return pairs


def _pair_elsewhere(name: str, settings: Settings, rng: random.Random) -> Pair:
    """One run of a variant that has processes of its own, and its plain run, in an order that is drawn."""
    order = rng.sample((name, VARIANTS[name].baseline), k=2)
    if VARIANTS[name].place == "traceml":
        runs = [
            under_traceml(each, launched=each == name, steps=settings.steps, accelerator=settings.accelerator)
            for each in order
        ]
    else:
        runs = with_nvml(order, steps=settings.steps, accelerator=settings.accelerator)
    by_name = dict(zip(order, runs, strict=True))
    return Pair(run=by_name[name], plain=by_name[VARIANTS[name].baseline])


def summarise(pairs: Mapping[str, Sequence[Pair]], seed: int) -> list[Result]:
    """Each variant against its plain runs, and against what ours adds."""
    rng = np.random.default_rng(seed)
    added = {name: [pair.run.median_us - pair.plain.median_us for pair in of] for name, of in pairs.items()}
    added_mean = {name: [pair.run.mean_us - pair.plain.mean_us for pair in of] for name, of in pairs.items()}
    return [
        Result(
            variant=name,
            label=VARIANTS[name].label,
            baseline=VARIANTS[name].baseline,
            step_us=float(np.median([pair.run.median_us for pair in of])),
            added_us=bootstrap(added[name], rng),
            added_mean_us=bootstrap(added_mean[name], rng),
            added_quiet_us=bootstrap([pair.run.quiet_us - pair.plain.quiet_us for pair in of], rng),
            ratio=bootstrap([pair.run.median_us / pair.plain.median_us for pair in of], rng),
            times_ours=multiple(added[name], added[OURS], rng) if OURS in pairs else None,
            times_ours_mean=multiple(added_mean[name], added_mean[OURS], rng) if OURS in pairs else None,
            rounds=tuple(of),
        )
        for name, of in pairs.items()
    ]


def is_baseline(name: str) -> bool:
    """Whether the variant is measured only to hold others against it."""
    return name == BASELINE or any(variant.baseline == name for variant in VARIANTS.values())


def as_table(results: Sequence[Result]) -> Table:
    """The results for a person."""
    table = Table(
        title="Time of a training step in µs",
        caption="added: paired difference of the median step to the plain run (with the same logger, where there is "
        "one); x of ours: as a multiple of what GpuProfiler() adds, - where ours adds nothing; mean: the same for the "
        "mean step; quiet: for the 5 % quantile of the steps, which other programs do not disturb",
    )
    for heading in ("variant", "median", "added", "95 % interval", "x of ours", "mean", "x of ours", "quiet"):
        table.add_column(heading, justify="left" if heading == "variant" else "right")
    for result in results:
        if is_baseline(result.variant):
            table.add_row(result.label, f"{result.step_us:.1f}")
            continue
        multiples = ["" if value is None else times(value) for value in (result.times_ours, result.times_ours_mean)]
        if result.variant == OURS:
            multiples = ["1", "1"]
        added, quiet = result.added_us, result.added_quiet_us
        table.add_row(
            result.label,
            f"{result.step_us:.1f}",
            f"{added.median:+.1f}",
            f"{added.low:+.1f} to {added.high:+.1f}",
            multiples[0],
            f"{result.added_mean_us.median:+.1f}",
            multiples[1],
            f"{quiet.median:+.1f} ({quiet.low:+.1f} to {quiet.high:+.1f})",
        )
    return table


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = command_line("overhead", __doc__, seed="of the order of the variants and of the bootstrap")
    parser.add_argument("--rounds", type=at_least(1), default=12, help="how often every variant runs")
    parser.add_argument(
        "--steps",
        type=at_least(WARMUP_STEPS + 2),
        default=3000,
        help=f"steps a run; the first {WARMUP_STEPS} do not count",
    )
    parser.add_argument("--variants", nargs="+", choices=list(VARIANTS), help="default: all but the optional ones")
    parser.add_argument("--also", nargs="+", choices=list(VARIANTS), default=[], help="more, beside those")
    parser.add_argument("--accelerator", choices=["cpu", "gpu"], default="cpu")
    options = parser.parse_args(arguments)
    if options.accelerator == "gpu" and not torch.cuda.is_available():
        parser.error("--accelerator gpu needs a CUDA GPU, and torch finds none here")
    for name in [*(options.variants or ()), *options.also]:
        if why := why_not(VARIANTS[name].place):
            parser.error(f"--variants {name} cannot run here: {why}")
    return options


def chosen(names: Sequence[str] | None, also: Sequence[str], console: Console) -> tuple[str, ...]:
    """The variants that were asked for, or all by default that can run here, with what they are held against."""
    if names is None:
        names = DEFAULT_VARIANTS
        for name in names:
            if why := why_not(VARIANTS[name].place):
                console.print(f"{name} is left out: {why}", style="yellow", markup=False)
        names = [name for name in names if not why_not(VARIANTS[name].place)]
    return with_baselines([*names, *also])


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write."""
    options = parse_arguments(arguments)
    console = wide_console()
    settings = Settings(
        variants=chosen(options.variants, options.also, console),
        rounds=options.rounds,
        steps=options.steps,
        accelerator=options.accelerator,
        seed=options.seed,
    )
    be_quiet()
    results = summarise(measure(settings, console), settings.seed)
    console.print(as_table(results))
    write_json(
        options.json,
        "overhead",
        accelerator=settings.accelerator,
        settings={**asdict(settings), "warmup_steps": WARMUP_STEPS, "torch_threads": torch.get_num_threads()},
        results=[asdict(result) for result in results],
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
