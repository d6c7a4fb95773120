"""The options of :class:`~lightning_gpuprof.GpuProfiler`, checked before training starts."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any, Literal, get_args

import msgspec

from lightning_gpuprof.errors import ArgumentError
from lightning_gpuprof.model.conditions import GOAL, SAMPLES, THRESHOLDS, UNTRACED

Window = int | tuple[int, int] | list[int]
ReportKind = str
SINKS = "lightning_gpuprof.sinks"
"""Group of entry points under which other packages name sinks; the name is the kind of report."""

Goal = Literal["throughput", "latency", "memory", "cost"]
Samples = int | Callable[[Any], int]

OWN_KINDS: tuple[ReportKind, ...] = ("terminal", "tensorboard", "html", "json")


def check_flag(argument: str, value: object, *, unset: str = "") -> None:
    """Refuse what is neither true nor false.

    Args:
        argument: Its name.
        value: What was given.
        unset: What null stands for, if it is allowed.

    Raises:
        ArgumentError: It is something else.
    """
    if not isinstance(value, bool) and (value is not None or not unset):
        raise ArgumentError(argument, value, f"be true, false, or null for: {unset}" if unset else "be true or false")


def check_int(argument: str, value: object, minimum: int) -> None:
    """Refuse what is no integer, or too small.

    Args:
        argument: Its name.
        value: What was given.
        minimum: The least that it may be.

    Raises:
        ArgumentError: It cannot work.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise ArgumentError(argument, value, f"be an integer of at least {minimum}")


def _check_seconds(argument: str, value: object, minimum: float) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not minimum <= value <= 3600:
        raise ArgumentError(argument, value, f"be a number of seconds from {minimum:g} to 3600")


@dataclass(frozen=True)
class TraceConfig:
    """How trace windows are recorded.

    Args:
        active: Optimizer steps that a window keeps when ``windows`` names only its start.
        warmup: Optimizer steps before a window that are traced and discarded.
        every_n_steps: Also open a window of ``active`` steps at every multiple of so many optimizer steps.
        on_slow_step: Also open a window when steps turn slow and stay so: by half at once, or by 3 % for fifty steps
            and more.
        ranks: Global ranks that record windows.
        record_shapes: Record the shapes of operator inputs.
        with_stack: Record Python stacks. A window costs more with them.
        modules: Name the calls of at most so many of the model's modules: whole levels of the tree, outermost first.
            With ``with_stack`` all; 0: none. Where ``torch.compile`` is used, only stacks name them, by class:
            ``Linear_0``.
        profile_memory: Record tensor allocations. Perturbs times.
        memory_snapshot: In each window record the CUDA allocator's history, too. Costs some microseconds per
            allocation inside the window.
        background_stop: End and write traces on a thread beside the training, which else waits for it for seconds.
            ``None``: with torch 2.13.0 or 2.14.1 on Linux on x86-64 without a GPU. ``True``: also with a GPU. Other
            versions of torch wait in any case. Not possible with ``with_stack``.
        every_kernel: Count and time every kernel of every step on all ranks, in place of windows. Needs torch 2.13 and
            ``cupti-python``; what it costs was not measured on a GPU yet.
        max_windows: At most so many windows per run, those named in ``windows`` first, and as many on request.
        max_mb: After a window whose JSON was larger than so many MB, no further ones are opened.
        max_steps: At most so many batches in one window, without warm-up.
        max_s: A window is closed after so many seconds.
    """

    active: int = 3
    warmup: int = 2
    every_n_steps: int | None = None
    on_slow_step: bool = False
    ranks: list[int] = field(default_factory=lambda: [0])
    record_shapes: bool = True
    with_stack: bool = False
    modules: int = 100
    profile_memory: bool = False
    memory_snapshot: bool = False
    max_windows: int = 10
    max_mb: int = 256
    max_steps: int = 200
    max_s: float = 30.0
    background_stop: bool | None = None
    every_kernel: bool = False

    def __post_init__(self) -> None:
        check_int("trace.active", self.active, 1)
        check_int("trace.warmup", self.warmup, 0)
        check_int("trace.modules", self.modules, 0)
        check_int("trace.max_windows", self.max_windows, 0)
        check_int("trace.max_mb", self.max_mb, 1)
        if self.every_n_steps is not None:
            check_int("trace.every_n_steps", self.every_n_steps, self.active + self.warmup + 1)
        check_int("trace.max_steps", self.max_steps, 1)
        _check_seconds("trace.max_s", self.max_s, 0.1)
        if self.active > self.max_steps:
            raise ArgumentError(
                "trace.active", self.active, f"be at most trace.max_steps ({self.max_steps})", "Lower it or raise that."
            )
        if not isinstance(self.ranks, (list, tuple)):
            raise ArgumentError("trace.ranks", self.ranks, "be a list of global ranks", "Write [0].")
        for rank in self.ranks:
            check_int("trace.ranks", rank, 0)
        for name in (
            "on_slow_step",
            "record_shapes",
            "with_stack",
            "profile_memory",
            "memory_snapshot",
            "every_kernel",
        ):
            check_flag(f"trace.{name}", getattr(self, name))
        check_flag("trace.background_stop", self.background_stop, unset="where it was tried")
        if self.background_stop and self.with_stack:
            raise ArgumentError(
                "trace.background_stop", True, "not be set beside trace.with_stack", "Leave out one of them."
            )


@dataclass(frozen=True)
class NvmlConfig:
    """How the GPUs of this process are sampled through NVML.

    Args:
        interval_s: Seconds between two samples.
        gpm: Read the performance counters (GPM) of Hopper and later: activity of SMs, tensor cores and DRAM.
    """

    interval_s: float = 0.5
    gpm: bool = True

    def __post_init__(self) -> None:
        _check_seconds("nvml.interval_s", self.interval_s, 0.05)
        check_flag("nvml.gpm", self.gpm)


@dataclass(frozen=True)
class HostConfig:
    """How the host is sampled: CPU by process, thread and worker, memory, disks, pressure, limits, collector pauses.

    Args:
        interval_s: Seconds between two samples.
        hang_s: After so many seconds without progress, and at least 20 step times, a rank is recorded as hanging: its
            line, its pending collective, the stacks of all threads. A checkpoint or a batch of a validation may take
            ten times as long; compilation, a debugger and a suspended process never count. ``host=false`` leaves it on.
        ranks_wait_s: When a run ends, its report waits so many seconds at most until the other ranks end, too; 2 at
            most after a failure. 0: not at all.
    """

    interval_s: float = 1.0
    hang_s: float = 15.0
    ranks_wait_s: float = 5.0

    def __post_init__(self) -> None:
        _check_seconds("host.interval_s", self.interval_s, 0.05)
        _check_seconds("host.hang_s", self.hang_s, 1)
        _check_seconds("host.ranks_wait_s", self.ranks_wait_s, 0)


class PlannedWindow(msgspec.Struct, frozen=True, kw_only=True):
    """Optimizer steps to trace, both ends included, as MindSpore's ``StopAtStep(start, stop)`` counts them.

    A step belongs to the window when ``trainer.global_step`` at its start lies in ``[start, stop]``.
    """

    start: int
    stop: int


def parse_windows(
    windows: Window | Sequence[Window] | None, active: int, max_steps: int = TraceConfig.max_steps
) -> tuple[PlannedWindow, ...] | None:
    """Turn the ``windows`` argument into windows in order.

    Args:
        windows: ``200``, ``(200, 205)``, a list of such, ``[]`` for none, ``None`` for one window once the run is
            steady. A *list* of two integers is two windows; a *tuple* of two integers is one. YAML has no tuples:
            write ``[[200, 205]]`` there.
        active: Steps of a window of which only the start is given.
        max_steps: Steps that a window may have.

    Returns:
        The windows in order of their start, or ``None`` for "once the run is steady".

    Raises:
        ArgumentError: A step is negative, a stop lies before its start, a window is too long, or two overlap.
    """
    if windows is None:
        return None
    entries: list[object] = list(windows) if isinstance(windows, list) else [windows]
    planned: list[PlannedWindow] = []
    for entry in entries:
        if isinstance(entry, (tuple, list)):
            if len(entry) != 2:
                raise ArgumentError("windows", entry, "be pairs of a start and a stop", "Write (200, 205).")
            start, stop = entry
        else:
            start, stop = entry, None
        for value in (start, stop):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
                raise ArgumentError(
                    "windows",
                    value,
                    "be optimizer steps, 0 or later",
                    "Write 200, (200, 205), a list of these, or [].",
                )
        assert isinstance(start, int)
        last = start + active - 1 if stop is None else stop
        assert isinstance(last, int)
        if last < start:
            raise ArgumentError("windows", (start, stop), "stop no earlier than they start")
        if last - start + 1 > max_steps:
            raise ArgumentError(
                "windows",
                (start, stop),
                f"be at most trace.max_steps ({max_steps}) steps long",
                f"A few steps show everything; for more, set TraceConfig(max_steps={last - start + 1}).",
            )
        planned.append(PlannedWindow(start=start, stop=last))
    planned.sort(key=lambda w: w.start)
    for before, after in itertools.pairwise(planned):
        if after.start <= before.stop:
            raise ArgumentError(
                "windows",
                [(before.start, before.stop), (after.start, after.stop)],
                "not overlap",
                "Merge the two or move one.",
            )
    return tuple(planned)


def parse_reports(reports: Sequence[str]) -> tuple[ReportKind, ...]:
    """Check the ``reports`` argument.

    Raises:
        ArgumentError: A name is not one of ``terminal, tensorboard, html, json``, nor a sink of another package.
    """
    if isinstance(reports, str) or not isinstance(reports, Sequence):
        raise ArgumentError("reports", reports, "be a list of names", 'Write ["terminal", "html"].')
    if unknown := [name for name in reports if name not in OWN_KINDS]:
        installed = metadata.entry_points(group=SINKS).names
        for name in unknown:
            if name not in installed:
                raise ArgumentError("reports", name, f"contain only {', '.join((*OWN_KINDS, *sorted(installed)))}")
    return (*(kind for kind in OWN_KINDS if kind in reports), *dict.fromkeys(unknown))


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """All options of a profiler after they were checked; a group that is switched off is None."""

    windows: tuple[PlannedWindow, ...] | None
    trace: TraceConfig | None
    nvml: NvmlConfig | None
    host: HostConfig | None
    dirpath: str | None
    log_every_n_steps: int | None
    reports: tuple[ReportKind, ...] | None
    """None: all of them, of a run too short to judge no page and no summary."""
    baseline: str | None
    nvtx: bool | None = None
    """Ranges for NVIDIA's profilers; None = under one of them."""
    input_pipeline: bool = True
    """Measure inside of DataLoader workers."""
    verbose: bool = False
    """Give loggers every phase and every sampled value, not only the dozen that matter most."""
    target: str | None = None
    """What the run is to reach: ``1.3x``, or samples per second."""
    price_per_gpu_hour: float | None = None
    goal: Goal = "throughput"
    samples: Samples | None = None
    """Of a batch, or what counts those of the first one."""
    lines: tuple[str, ...] = ()
    """Functions to time line by line, as ``package.module:Class.method``."""
    thresholds: Mapping[str, Mapping[str, float]] = {}
    """Rule id -> threshold -> value, in place of the rules' own."""

    def targets(self) -> dict[str, str | int | float | bool | None]:
        """What the journal must hold of them, as conditions, so that a report made later says the same."""
        found: dict[str, str | int | float | bool | None] = {
            "gpuprof.target": self.target,
            "gpuprof.price_per_gpu_hour": self.price_per_gpu_hour,
            GOAL: None if self.goal == "throughput" else self.goal,
            SAMPLES: self.samples if isinstance(self.samples, int) else None,
            "gpuprof.baseline": True if self.baseline is not None else None,
            UNTRACED: True if self.windows == () else None,
            **{
                f"{THRESHOLDS}{rule}.{name}": value
                for rule, values in self.thresholds.items()
                for name, value in values.items()
            },
        }
        return {name: value for name, value in found.items() if value is not None}


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """What a run is to reach: a factor over itself, or a throughput. One of the two is given."""

    speedup: float | None = None
    samples_per_s: float | None = None

    def __str__(self) -> str:
        return f"{self.speedup:g}x" if self.speedup is not None else f"{self.samples_per_s:g} samples/s"


def parse_target(target: object) -> Target:
    """Check the ``target`` argument.

    Args:
        target: ``"1.3x"``, or samples per second of all ranks as a number or as its text.

    Raises:
        ArgumentError: It is neither; a factor is not above 1; samples per second are not above 0.
    """
    way_out = 'Write target="1.3x" for a factor, or target=500 for samples per second.'
    text = str(target).strip().lower()
    as_factor = text.endswith("x")
    try:
        value = float(text.removesuffix("x").removesuffix("samples/s"))
    except ValueError:
        value = math.nan
    least = 1.0 if as_factor else 0.0
    if isinstance(target, bool) or not math.isfinite(value) or value <= least:
        raise ArgumentError("target", target, "be a factor above 1 such as '1.3x', or samples per second", way_out)
    return Target(speedup=value) if as_factor else Target(samples_per_s=value)


def check_goal(goal: object, samples: object) -> None:
    """Check the ``goal`` and ``samples`` arguments.

    Args:
        goal: One of :data:`Goal`.
        samples: Of a batch, or what counts them.

    Raises:
        ArgumentError: There is no such goal; samples are neither a positive integer nor a function.
    """
    if goal not in get_args(Goal):
        raise ArgumentError("goal", goal, f"be one of {', '.join(get_args(Goal))}")
    if samples is not None and not callable(samples):
        check_int("samples", samples, 1)


def check_price(price: object) -> None:
    """Check the ``price_per_gpu_hour`` argument; raises ArgumentError if it is no positive number."""
    if isinstance(price, bool) or not isinstance(price, (int, float)) or not math.isfinite(price) or price <= 0:
        raise ArgumentError(
            "price_per_gpu_hour", price, "be a number above 0", "Write what one GPU costs an hour: 2.5."
        )
