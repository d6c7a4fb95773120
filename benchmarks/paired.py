"""From a command line and paired rounds to medians with intervals, and to a JSON file with what they depend on."""

import argparse
import json
import math
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
from rich.console import Console

from lightning_gpuprof.sinks.files import write_whole

RESULTS = Path(__file__).parent / "results"
MIN_WIDTH = 120
BOOTSTRAP_RESAMPLES = 10_000
PEAK_MB = """
import re, resource, sys
def peak_mb():
    if sys.platform == "linux":  # of this program: ru_maxrss has what started it as well
        with open("/proc/self/status") as status:
            return int(re.search(r"VmHWM:\\s+(\\d+)", status.read())[1]) * 1024 / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e6
"""
"""Of a program that measures itself: what it holds at most."""


def command_line(benchmark: str, doc: str | None, *, seed: str = "") -> argparse.ArgumentParser:
    """The parser of a benchmark, with ``--json``, and with ``--seed`` where it is said of what."""
    parser = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    if seed:
        parser.add_argument("--seed", type=int, default=0, help=seed)
    parser.add_argument("--json", type=Path, default=RESULTS / f"{benchmark}.json", help="where the results go")
    return parser


def at_least(minimum: int) -> Callable[[str], int]:
    """The type of an argument that is a whole number from a smallest one on."""

    def number(text: str) -> int:
        if (value := int(text)) < minimum:
            raise argparse.ArgumentTypeError(f"must be at least {minimum}, got {value}")
        return value

    return number


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A median over rounds with its 95 % bootstrap interval."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Multiple:
    """How many times as much as something else, with the 95 % bootstrap interval; None where it has no bound."""

    median: float | None
    low: float | None
    high: float | None


def bootstrap(values: Sequence[float], rng: np.random.Generator) -> Interval:
    """Median with its 95 % percentile interval (Efron 1979), the rounds being drawn with replacement."""
    sample = np.asarray(values)
    draws = np.median(rng.choice(sample, size=(BOOTSTRAP_RESAMPLES, len(sample))), axis=1)
    low, high = np.percentile(draws, [2.5, 97.5])
    return Interval(median=float(np.median(sample)), low=float(low), high=float(high))


def multiple(values: Sequence[float], unit: Sequence[float], rng: np.random.Generator) -> Multiple:
    """Median of ``values`` as a multiple of the median of ``unit``, both of the same rounds, which are drawn together.

    A unit of zero or less makes the multiple boundless: then None stands for it.
    """
    above, below = np.asarray(values), np.asarray(unit)
    rounds = rng.integers(len(above), size=(BOOTSTRAP_RESAMPLES, len(above)))
    units = np.median(below[rounds], axis=1)
    draws = np.full(BOOTSTRAP_RESAMPLES, math.inf)
    np.divide(np.median(above[rounds], axis=1), units, out=draws, where=units > 0)
    low, high = np.percentile(draws, [2.5, 97.5], method="nearest")
    bounded = [None if math.isinf(bound) else float(bound) for bound in (low, high)]
    middle = float(np.median(above) / np.median(below)) if np.median(below) > 0 else None
    return Multiple(median=middle, low=bounded[0], high=bounded[1])


def times(value: Multiple) -> str:
    """A multiple for a person, such as ``8.1 (7.7 to 8.4)``; a dash where there is nothing to multiply."""
    if value.median is None:
        return "-"
    low, high = ("∞" if bound is None else f"{bound:.1f}" for bound in (value.low, value.high))
    return f"{value.median:.1f} ({low} to {high})"


def wide_console() -> Console:
    """A console that is wide enough for the tables, also where the output goes to a file."""
    return Console(width=max(MIN_WIDTH, Console().width))


def usable_cpus() -> int:
    """CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def write_json(path: Path, benchmark: str, *, accelerator: str = "cpu", **parts: object) -> None:
    """Write the results for a program, with what they depend on, and say where; no name of this machine."""
    import lightning
    import torch

    machine: Mapping[str, object] = {
        "cpus": usable_cpus(),
        "gpu": torch.cuda.get_device_name(0) if accelerator == "gpu" else None,
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "lightning": lightning.__version__,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {"benchmark": benchmark, "machine": machine, **parts}
    write_whole(path, json.dumps(msgspec.to_builtins(document, enc_hook=str), indent=1).encode(), b"\n")
    print(f"written to {path}")
