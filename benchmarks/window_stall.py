"""How long a trace window keeps training waiting, ours against Lightning's PyTorchProfiler; a table and JSON.

Run it from anywhere, with nothing else running::

    python benchmarks/window_stall.py --rounds 3

The workload has very many small operators: a window of five steps holds some 295,000 events. In each round every
variant runs once, in random order, in a process of its own, so that what one profiler leaves behind does not burden
the next. All is seen from the training thread: a step goes from one entry of ``training_step`` to the next, which the
model notes.

- *stall*: the longest step around the window, less the run's own median step before it.
- *lost*: all that the steps took longer than the median, from the warm-up on until they are back.
- *stop*, *export*: what torch needed to collect the trace and to write it; ``*`` = on a thread beside the training,
  which does not wait for it.
- *tracing*: by how much the traced steps before the stall took longer than the median.
- *resume*: from the end of the stall until three steps in a row are within 10 % of the median again. Our trace is
  written (``*``) and analysed beside the training meanwhile.
- *end*: from the last step to the return of ``fit``; only with ``--with-end``: PyTorchProfiler takes 20 s there.

``pytorch`` is Lightning's profiler as it is (plain JSON), ``pytorch-gzip`` the same with
``tensorboard_trace_handler(use_gzip=True)``. Neither records shapes, as is their default; ours does. The variants with
``-shapes`` and ``-no-shapes`` compare like with like; ``-waiting`` is ours with ``background_stop=False``, as it is
with a GPU, and ``-background`` with ``True``.
"""

import argparse
import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from paired import Interval, Multiple, at_least, bootstrap, command_line, multiple, times, wide_console, write_json
from rich.console import Console
from rich.table import Table
from window_run import ACTIVE, VARIANTS, WARMUP, Settings, WindowRun

HERE = Path(__file__).parent
DEFAULT_VARIANTS = ("gpuprof", "pytorch", "pytorch-gzip")
BLOCKS = 737
"""Blocks of the network: 59,000 events a step."""
SETTLING_STEPS = 3
"""First steps, which do not count for the median."""
BACK_RATIO = 1.1
BACK_STEPS = 3
TIMEOUT_S = 600


@dataclass(frozen=True, kw_only=True)
class Stall:
    """What one window cost the training thread."""

    step_ms: float
    """Median step before the window."""
    stall_ms: float
    lost_ms: float | None
    """None if the run ended before its steps were back."""
    stop_ms: float | None
    """None if torch's profiler was not stopped through the calls that are watched."""
    export_ms: float | None
    beside: bool
    """Both were on a thread beside the training."""
    tracing_ms: float
    resume_ms: float | None
    """None if the run ended before its steps were back."""
    after_ratio: float
    """Median step after the stall as a multiple of the one before the window."""
    end_ms: float | None
    trace_events: int
    trace_bytes: int


@dataclass(frozen=True, kw_only=True)
class Result:
    """What the windows of one variant cost, over rounds."""

    variant: str
    stall_ms: Interval
    lost_ms: Interval | None
    stop_ms: float | None
    export_ms: float | None
    beside: bool
    tracing_ms: float
    resume_ms: float | None
    after_ratio: float
    end_ms: float | None
    trace_events: int
    trace_bytes: int
    times_ours: dict[str, Multiple]
    """The stall as a multiple of that of each of our variants, in the same rounds."""
    lost_times_ours: dict[str, Multiple]
    """The same of all that was lost."""
    rounds: tuple[Stall, ...]


def stall_of(run: WindowRun, before: int) -> Stall:
    """Judge a run by its own steps before the window.

    Args:
        run: What was measured.
        before: Steps before the profiler did anything.
    """
    periods: NDArray[np.float64] = np.diff(np.array(run.entered_ns, dtype=np.float64)) / 1e6
    normal = float(np.median(periods[SETTLING_STEPS : before - 1]))
    begin, last = before - 1, before + WARMUP + ACTIVE - 1
    longest = begin + int(np.argmax(periods[begin : last + 2]))
    stall = float(periods[longest]) - normal
    traced = float(np.sum(periods[begin : min(longest, last)] - normal))
    spent = {
        what: [(call.end_ns - call.begin_ns) / 1e6 for call in run.calls if call.what == what]
        for what in ("stop", "export")
    }
    stop, export = (sum(spent[what]) if spent[what] else None for what in ("stop", "export"))
    closed = max(longest, last) + 1
    after = periods[closed:]
    back = [
        position
        for position in range(len(after) - BACK_STEPS + 1)
        if np.all(after[position : position + BACK_STEPS] <= BACK_RATIO * normal)
    ]
    return Stall(
        step_ms=normal,
        stall_ms=stall,
        lost_ms=float(np.sum(periods[begin : closed + back[0]] - normal)) if back else None,
        stop_ms=stop,
        export_ms=export,
        beside=any(call.beside for call in run.calls),
        tracing_ms=traced,
        resume_ms=float(np.sum(after[: back[0]])) if back else None,
        after_ratio=float(np.median(after)) / normal,
        end_ms=None if run.finished_ns is None else (run.finished_ns - run.entered_ns[-1]) / 1e6,
        trace_events=run.trace_events,
        trace_bytes=run.trace_bytes,
    )


def in_a_process(settings: Settings) -> WindowRun:
    """One run in a fresh process.

    Raises:
        RuntimeError: It failed, or its profiler recorded no trace.
    """
    finished = subprocess.run(
        [sys.executable, str(HERE / "window_run.py"), json.dumps(asdict(settings))],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    if finished.returncode:
        raise RuntimeError(f"the run of {settings.variant} failed ({finished.returncode}):\n{finished.stderr[-2000:]}")
    run = WindowRun.parse(finished.stdout.splitlines()[-1])
    if settings.variant != "none" and not run.trace_events:
        raise RuntimeError(f"{settings.variant} recorded no trace:\n{finished.stderr[-2000:]}")
    return run


def measure(
    variants: Sequence[str], rounds: int, seed: int, settings: Callable[[str], Settings], console: Console
) -> dict[str, list[Stall]]:
    """All variants in every round, in an order that is drawn anew for each."""
    rng = random.Random(seed)
    stalls: dict[str, list[Stall]] = {variant: [] for variant in variants}
    for number in range(1, rounds + 1):
        for variant in rng.sample(variants, k=len(variants)):
            of_variant = settings(variant)
            stall = stall_of(in_a_process(of_variant), of_variant.before)
            stalls[variant].append(stall)
            console.print(f"round {number} of {rounds}: {variant} {stall.stall_ms:.0f} ms", style="dim")
    return stalls


def summarise(stalls: Mapping[str, Sequence[Stall]], seed: int) -> list[Result]:
    """Each variant over its rounds, and against each of ours in the same rounds."""
    rng = np.random.default_rng(seed)
    waited = {variant: [stall.stall_ms for stall in of] for variant, of in stalls.items()}
    lost = {variant: _present([stall.lost_ms for stall in of]) for variant, of in stalls.items()}
    ours = [variant for variant in stalls if variant.startswith("gpuprof")]
    return [
        Result(
            variant=variant,
            stall_ms=bootstrap(waited[variant], rng),
            lost_ms=bootstrap(lost[variant], rng) if lost[variant] else None,
            stop_ms=_median(stall.stop_ms for stall in of),
            export_ms=_median(stall.export_ms for stall in of),
            beside=any(stall.beside for stall in of),
            tracing_ms=float(np.median([stall.tracing_ms for stall in of])),
            resume_ms=_median(stall.resume_ms for stall in of),
            after_ratio=float(np.median([stall.after_ratio for stall in of])),
            end_ms=_median(stall.end_ms for stall in of),
            trace_events=int(np.median([stall.trace_events for stall in of])),
            trace_bytes=int(np.median([stall.trace_bytes for stall in of])),
            times_ours={own: multiple(waited[variant], waited[own], rng) for own in ours if own != variant},
            lost_times_ours={
                own: multiple(lost[variant], lost[own], rng)
                for own in ours
                if own != variant and lost[own] and lost[variant]
            },
            rounds=tuple(of),
        )
        for variant, of in stalls.items()
    ]


def _median(values: Iterable[float | None]) -> float | None:
    present = _present(list(values))
    return float(np.median(present)) if present else None


def _present(values: Sequence[float | None]) -> list[float]:
    """Nothing if any round has no value: a median of the others would be of the better rounds only."""
    present = [value for value in values if value is not None]
    return present if len(present) == len(values) else []


def as_table(results: Sequence[Result]) -> Table:
    """The results for a person."""
    own = next((result.variant for result in results if result.variant.startswith("gpuprof")), "")
    table = Table(
        title="What a window keeps training waiting, in ms",
        caption="stall: the longest step, less a usual one; lost: what all steps took longer until they were back; "
        "stop, export: torch's, * beside the training; resume: until steps are back within 10 %",
    )
    headings = ("events", "MB", "stall", "95 % interval", "lost", "stop", "export", "tracing", "resume", "end")
    table.add_column("variant")
    for heading in (*headings, *((f"stall x {own}", f"lost x {own}") if own else ())):
        table.add_column(heading, justify="right")
    for result in results:
        beside = "*" if result.beside else ""
        parts = (result.tracing_ms, result.resume_ms, result.end_ms)
        table.add_row(
            result.variant,
            f"{result.trace_events:,}",
            f"{result.trace_bytes / 1e6:.0f}",
            f"{result.stall_ms.median:.0f}",
            f"{result.stall_ms.low:.0f} to {result.stall_ms.high:.0f}",
            "-" if result.lost_ms is None else f"{result.lost_ms.median:.0f}",
            *("-" if part is None else f"{part:.0f}{beside}" for part in (result.stop_ms, result.export_ms)),
            *("-" if part is None else f"{part:.0f}" for part in parts),
            *(
                times(of[own]) if own in of else "1" if own == result.variant else "-"
                for of in ((result.times_ours, result.lost_times_ours) if own else ())
            ),
        )
    return table


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = command_line("window_stall", __doc__, seed="of the order of the variants and of the bootstrap")
    parser.add_argument("--rounds", type=at_least(1), default=3, help="how often every variant runs")
    parser.add_argument("--variants", nargs="+", choices=list(VARIANTS), default=list(DEFAULT_VARIANTS))
    parser.add_argument(
        "--blocks", type=at_least(1), default=BLOCKS, help="size of the network: about 80 events a step each"
    )
    parser.add_argument("--before", type=at_least(SETTLING_STEPS + 3), default=20, help="steps before the window")
    parser.add_argument("--after", type=at_least(BACK_STEPS + 2), default=60, help="steps after it")
    parser.add_argument("--with-end", action="store_true", help="also measure the end of the fit")
    parser.add_argument("--accelerator", choices=["cpu", "gpu"], default="cpu")
    options = parser.parse_args(arguments)
    if options.accelerator == "gpu" and not torch.cuda.is_available():
        parser.error("--accelerator gpu needs a CUDA GPU, and torch finds none here")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write."""
    options = parse_arguments(arguments)
    console = wide_console()

    def settings(variant: str) -> Settings:
        return Settings(
            variant=variant,
            blocks=options.blocks,
            before=options.before,
            after=options.after,
            accelerator=options.accelerator,
            with_end=options.with_end,
        )

    variants = list(dict.fromkeys(options.variants))
    results = summarise(measure(variants, options.rounds, options.seed, settings, console), options.seed)
    console.print(as_table(results))
    write_json(
        options.json,
        "window_stall",
        accelerator=options.accelerator,
        settings={
            **{key: value for key, value in vars(options).items() if key != "json"},
            "warmup": WARMUP,
            "active": ACTIVE,
            "torch_threads": 1,
        },
        results=[asdict(result) for result in results],
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
