"""A source of reports: a real fit on the CPU in which faults are planted."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lightning_gpuprof import GpuProfiler, NvmlConfig
from truths.models import Kind
from truths.setup import Fault, Setup, set_up

Change = Callable[[Setup], None]


@dataclass(frozen=True, kw_only=True)
class Fit:
    """A real fit.

    Attributes:
        kind: Of the model.
        faults: Planted in this order.
        steps: Training steps.
        threads: On which torch computes.
        traced: Trace one window, from optimizer step 40 on; otherwise none is traced, which only
            saves time.
        nvml: How GPUs are sampled; there are none for a fit on the CPU.
    """

    kind: Kind
    faults: tuple[Fault, ...] = ()
    steps: int = 250
    threads: int = 1
    traced: bool = False
    nvml: bool | NvmlConfig = False

    def longer(self, workers: object) -> Fit:
        """This fit, so long that it uses up many times the batches that workers make while it starts."""
        return replace(self, steps=max(self.steps, 20 * workers)) if isinstance(workers, int) else self

    def __call__(self, folder: Path, seed: int, change: Change | None = None) -> Path:
        """Run it; see :meth:`run`.

        Raises:
            RuntimeError: The run wrote no report.
        """
        profiler = self.run(folder, seed, change)
        if profiler.folder is None or not (report := profiler.folder / "report.json").is_file():
            raise RuntimeError("the run wrote no report")
        return report

    def run(self, folder: Path, seed: int, change: Change | None = None) -> GpuProfiler:
        """Run it; ``change`` is applied to what is about to be run, after the faults."""
        setup = self.setup(folder, seed)
        if change is not None:
            change(setup)
        options: dict[str, Any] = {"windows": [40] if self.traced else [], **setup.profiler}
        profiler = GpuProfiler(dirpath=str(folder / "gpuprof"), reports=["json"], nvml=self.nvml, **options)
        setup.fit([profiler])
        return profiler

    def setup(self, folder: Path, seed: int) -> Setup:
        """The fit with its faults, before it runs."""
        be_quiet()
        setup = set_up(self.kind, steps=self.steps, folder=str(folder), seed=seed, threads=self.threads)
        for fault in self.faults:
            fault(setup)
        return setup


def fit(kind: Kind, *faults: Fault, **settings: Any) -> Fit:
    """A real fit, as :class:`Fit` has it."""
    return Fit(kind=kind, faults=faults, **settings)


def be_quiet() -> None:
    """Keep Lightning's and torch's advice off the terminal, in this process."""
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore")
