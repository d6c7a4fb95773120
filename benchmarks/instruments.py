"""What each variant of the overhead benchmark hands to the Trainer, and what it is held against."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch
from lightning.pytorch import Callback
from lightning.pytorch.callbacks import DeviceStatsMonitor
from lightning.pytorch.loggers import CSVLogger, Logger
from lightning.pytorch.profilers import AdvancedProfiler, Profiler, PyTorchProfiler, SimpleProfiler

BASELINE = "none"
OURS = "gpuprof"
SAMPLING_S = 0.1
"""Between two samples of the variant with all samplers: a run of a second is to hold some."""

Place = Literal["here", "fake-nvml", "traceml"]
"""Where a variant runs: in the benchmark's process, in one that finds a scripted NVML, or under TraceML's launcher."""


@dataclass(frozen=True, kw_only=True)
class Instruments:
    """What a variant hands to the Trainer."""

    callbacks: tuple[Callback, ...] = ()
    profiler: Profiler | None = None
    logger: Logger | None = None
    log_every_n_steps: int | None = None
    own_callbacks: bool = False
    """Whether the Trainer adds its own: progress bar, summary of the model, checkpoints."""


def _nothing_to_check(folder: Path) -> None:
    return None


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One row of the table."""

    label: str
    make: Callable[[Path], Instruments]
    """Gets an empty folder to write into; the folder is gone after the run."""
    baseline: str = BASELINE
    """The variant whose run of the same round it is held against."""
    place: Place = "here"
    by_default: bool = True
    check: Callable[[Path], None] = _nothing_to_check
    """Looks into the folder after a run, and raises if the variant did not do what is to be measured."""


class EmptyCallback(Callback):
    """Overrides nothing: Lightning calls all hooks of every callback all the same."""


def no_instrument(folder: Path) -> Instruments:
    return Instruments()


def empty_callback(folder: Path) -> Instruments:
    return Instruments(callbacks=(EmptyCallback(),))


def gpuprof_default(folder: Path) -> Instruments:
    # Imported here: the other variants can be measured without this package.
    from lightning_gpuprof import GpuProfiler

    return Instruments(callbacks=(GpuProfiler(dirpath=str(folder), reports=["json"]),))


def own_callbacks(folder: Path) -> Instruments:
    return replace(csv_logger(folder), own_callbacks=True)


def own_and_empty(folder: Path) -> Instruments:
    return replace(own_callbacks(folder), callbacks=(EmptyCallback(),))


def own_and_gpuprof(folder: Path) -> Instruments:
    return replace(own_callbacks(folder), callbacks=gpuprof_default(folder).callbacks)


def gpuprof_phases_only(folder: Path) -> Instruments:
    from lightning_gpuprof import GpuProfiler

    profiler = GpuProfiler(trace=False, nvml=False, host=False, dirpath=str(folder), reports=["json"])
    return Instruments(callbacks=(profiler,))


def gpuprof_sampling(folder: Path) -> Instruments:
    """All samplers at their default intervals, and no window."""
    from lightning_gpuprof import GpuProfiler

    return Instruments(callbacks=(GpuProfiler(trace=False, dirpath=str(folder), reports=["json"]),))


def gpuprof_all(folder: Path) -> Instruments:
    from lightning_gpuprof import GpuProfiler, HostConfig, NvmlConfig

    profiler = GpuProfiler(
        nvml=NvmlConfig(interval_s=SAMPLING_S),
        host=HostConfig(interval_s=SAMPLING_S),
        dirpath=str(folder),
        reports=["json"],
    )
    return Instruments(callbacks=(profiler,))


def gpus_were_sampled(folder: Path) -> None:
    """Raise unless the journal has samples of a GPU and of the host."""
    journal = (folder / "rank0.jsonl").read_bytes()
    for source in (b'"nvml"', b'"host"'):
        if b'"source":' + source not in journal:
            raise RuntimeError(f"nothing was sampled from {source.decode()}: the variant measures something else")


def simple_profiler(folder: Path) -> Instruments:
    return Instruments(profiler=SimpleProfiler(dirpath=folder, filename="simple"))


def advanced_profiler(folder: Path) -> Instruments:
    return Instruments(profiler=AdvancedProfiler(dirpath=folder, filename="advanced"))


def pytorch_profiler(folder: Path) -> Instruments:
    schedule = torch.profiler.schedule(wait=90, warmup=5, active=5)
    return Instruments(profiler=PyTorchProfiler(dirpath=folder, filename="pytorch", schedule=schedule))


def csv_logger(folder: Path) -> Instruments:
    return Instruments(logger=CSVLogger(folder))


def device_stats(folder: Path) -> Instruments:
    return Instruments(callbacks=(DeviceStatsMonitor(),), logger=CSVLogger(folder))


def csv_logger_each_step(folder: Path) -> Instruments:
    return Instruments(logger=CSVLogger(folder), log_every_n_steps=1)


def device_stats_each_step(folder: Path) -> Instruments:
    return Instruments(callbacks=(DeviceStatsMonitor(),), logger=CSVLogger(folder), log_every_n_steps=1)


VARIANTS: Mapping[str, Variant] = {
    BASELINE: Variant(label="no callback", make=no_instrument),
    "empty": Variant(label="an empty callback", make=empty_callback),
    OURS: Variant(label="GpuProfiler()", make=gpuprof_default),
    "own": Variant(label="a Trainer's own callbacks", make=own_callbacks),
    "own-empty": Variant(label="the same, and an empty one", make=own_and_empty, baseline="own"),
    "own-gpuprof": Variant(label="the same, and GpuProfiler()", make=own_and_gpuprof, baseline="own"),
    "gpuprof-phases": Variant(label="GpuProfiler (phases)", make=gpuprof_phases_only),
    "gpuprof-all": Variant(
        label="GpuProfiler (sampling)", make=gpuprof_all, place="fake-nvml", check=gpus_were_sampled
    ),
    "not-sampling": Variant(
        label="GpuProfiler, no sampler", make=gpuprof_phases_only, place="fake-nvml", by_default=False
    ),
    "sampling": Variant(
        label="GpuProfiler, samplers by default",
        make=gpuprof_sampling,
        baseline="not-sampling",
        place="fake-nvml",
        by_default=False,
        check=gpus_were_sampled,
    ),
    "simple": Variant(label="SimpleProfiler", make=simple_profiler),
    "advanced": Variant(label="AdvancedProfiler", make=advanced_profiler),
    "pytorch": Variant(label="PyTorchProfiler 90/5/5", make=pytorch_profiler),
    # The monitor needs a logger, which costs something itself: the run that it is held against has the same one. The
    # monitor logs every 50 steps as Lightning does by default: that shows in the mean, not in the median.
    "csv-logger": Variant(label="a CSVLogger", make=csv_logger),
    "device-stats": Variant(label="DeviceStatsMonitor", make=device_stats, baseline="csv-logger"),
    "csv-logger-1": Variant(label="a CSVLogger, each step", make=csv_logger_each_step, by_default=False),
    "device-stats-1": Variant(
        label="DeviceStatsMonitor, each step",
        make=device_stats_each_step,
        baseline="csv-logger-1",
        by_default=False,
    ),
    # Its launcher attaches the callback to every fit of the process: there is nothing to hand over.
    "traceml": Variant(label="TraceML", make=no_instrument, place="traceml", by_default=False),
}


def with_baselines(names: list[str]) -> tuple[str, ...]:
    """The variants and what they are held against, each once, in the table's order."""
    wanted = {BASELINE, *names, *(VARIANTS[name].baseline for name in names)}
    return tuple(name for name in VARIANTS if name in wanted)
