"""One run of a case: makes trainers with the profiler in them, runs them, and keeps report and naps of each."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning.pytorch as lightning_pytorch
from checked_screen import checked
from quiet_trainer import QUIET

from lightning_gpuprof import GpuProfiler
from lightning_gpuprof.model.report import Report
from planted_loops.disturbance import Disturbance
from planted_loops.naps import Naps
from planted_loops.planting import loader, planted_callback, planted_module


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One fit (or other stage) of a case.

    Attributes:
        report: What the profiler found.
        slept_s: Place → seconds that were really slept there.
        steps: Steps that there must have been; None if the case does not say.
        optimizer_steps: The same for the optimizer.
        lost_s: What other work on the machine took from it, at most.
    """

    report: Report
    slept_s: dict[str, float]
    steps: int | None
    optimizer_steps: int | None
    lost_s: float


class Run:
    """What a case works with.

    Args:
        folder: An empty folder to write into.
        naps: The naps that are planned.
    """

    def __init__(self, folder: Path, naps: Naps) -> None:
        self.folder = folder
        self.naps = naps
        self.measured: list[Measured] = []

    def profiler(self) -> GpuProfiler:
        """The profiler, without what is not about time: samplers, windows, reports for people."""
        return GpuProfiler(windows=[], nvml=False, host=False, reports=["json"], dirpath=str(self.folder / "gpuprof"))

    def settings(self) -> dict[str, Any]:
        """Of a trainer that does nothing beside the training."""
        return {**QUIET, "devices": 1, "default_root_dir": str(self.folder)}

    def trainer(
        self, own: GpuProfiler | None = None, *, callbacks: Any = (), package: Any = lightning_pytorch, **options: Any
    ) -> Any:
        """A trainer with the profiler as its first callback, and with a planted callback if naps are planned in one."""
        several = [own or self.profiler(), *callbacks, *self.planted_callbacks(package)]
        return package.Trainer(**{**self.settings(), "callbacks": several, **options})

    def planted_callbacks(self, package: Any = lightning_pytorch) -> list[Any]:
        """The planted callback, if there is something planned in it."""
        return [planted_callback(self.naps, package=package)] if self.naps.planned("callback.") else []

    def fit(
        self,
        module: Any = None,
        data: Any = None,
        *,
        trainer: Any = None,
        steps: int | None = None,
        optimizer_steps: int | None = None,
        ckpt_path: str | None = None,
        val: Any = None,
        **options: Any,
    ) -> Any:
        """Fit and keep what was measured; by default ten batches of a plain module. Returns the trainer."""
        trainer = trainer or self.trainer(**options)
        module = planted_module(self.naps) if module is None else module
        data = loader(self.naps, 10) if data is None else data
        self.measure(
            trainer,
            lambda: trainer.fit(module, data, val, ckpt_path=ckpt_path),
            steps=steps,
            optimizer_steps=optimizer_steps,
        )
        return trainer

    def measure(
        self,
        trainer: Any,
        work: Callable[[], object],
        *,
        steps: int | None = None,
        optimizer_steps: int | None = None,
    ) -> None:
        """Do the work and keep the report and the naps of it."""
        profiler = next(callback for callback in trainer.callbacks if isinstance(callback, GpuProfiler))
        self.naps.slept_s = {}
        self.naps.name = functools.partial(_name_now, trainer, profiler)
        profiler.report = None
        disturbance = Disturbance()
        work()
        lost_s = disturbance.lost_s()
        if profiler.report is None:
            raise AssertionError("the profiler made no report")
        self.keep(profiler.report, self.naps.slept_s, steps=steps, optimizer_steps=optimizer_steps, lost_s=lost_s)

    def keep(
        self,
        report: Report,
        slept_s: dict[str, float],
        *,
        steps: int | None,
        optimizer_steps: int | None = None,
        lost_s: float = 0.0,
    ) -> None:
        """Keep what was measured elsewhere; its report has to be one that can be trusted."""
        self.measured.append(
            Measured(
                report=checked(report), slept_s=slept_s, steps=steps, optimizer_steps=optimizer_steps, lost_s=lost_s
            )
        )


def _name_now(trainer: Any, profiler: GpuProfiler, place: str) -> str:
    """What a place is called at this moment of a run."""
    if profiler not in trainer.callbacks:  # a tuner has taken the callbacks away for its trials
        return f"trial {place}"
    if trainer.state.fn != "fit":
        return f"{trainer.state.fn.value} {place}"
    if trainer.sanity_checking:
        return f"sanity {place}"
    owner, dot, hook = place.rpartition(".")
    if hook in ("iter", "first fetch", "on_train_epoch_start") and trainer.current_epoch > 0:
        return f"{owner}{dot}later {hook}"
    return place
