"""The callback: Lightning's hooks go to the session, the end of the fit to the reports."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import lightning_gpuprof
from lightning_gpuprof import pipeline
from lightning_gpuprof.capture.fence import warn
from lightning_gpuprof.capture.session import FitEntry, Session
from lightning_gpuprof.errors import ArgumentError
from lightning_gpuprof.model.config import (
    HostConfig,
    NvmlConfig,
    Options,
    TraceConfig,
    parse_reports,
    parse_windows,
)
from lightning_gpuprof.model.report import Report

try:
    from lightning.pytorch.callbacks import Callback
except ImportError:  # only the older package is installed
    from pytorch_lightning.callbacks import Callback  # type: ignore[assignment]

if TYPE_CHECKING:
    import lightning.pytorch as pl

FINISHED = "finished"
JOB_TIMEOUT_S = 60.0
INTERRUPTED_JOB_TIMEOUT_S = 2.0

Group = TypeVar("Group", TraceConfig, NvmlConfig, HostConfig)


class GpuProfiler(Callback):
    """Tells where the training time goes, what is wrong and what to change.

    ``Trainer(callbacks=[GpuProfiler()])`` is enough. Every wall-clock second of ``fit`` is accounted to a phase or a
    part; GPUs and host are sampled beside it; one short trace window is recorded once the run is steady; at the end a
    report is printed and written to ``dirpath``. Training is never changed or stopped by it: a part that fails is
    switched off, with one warning.

    Args:
        windows: Optimizer steps to trace: ``200``, ``(200, 205)`` with both ends included, a list of such, ``[]`` for
            none. ``None`` traces one window once the run is steady. In YAML write ``[[200, 205]]`` for a range.
        trace: How windows are recorded; ``false`` switches them off.
        nvml: How GPUs are sampled; ``false`` switches it off.
        host: How CPUs and memory are sampled; ``false`` switches it off.
        dirpath: Folder for everything that is written; ``~`` and ``$VARIABLES`` are expanded. Default:
            ``<trainer.log_dir>/gpuprof``. An earlier run in it is kept: the new one goes to ``gpuprof-2`` and so on.
        log_every_n_steps: Cadence of the scalars to the trainer's loggers. Default: the trainer's.
        reports: What to make at the end, out of ``terminal``, ``tensorboard``, ``html``, ``json``.
        baseline: An earlier run's folder or ``report.json`` to compare with at the end.
        enabled: ``false`` leaves the callback in place without effect.

    Raises:
        GpuProfError: An argument cannot work; the message names it, its value and the way out.
    """

    def __init__(
        self,
        windows: list[int | tuple[int, int]] | tuple[int, int] | int | None = None,
        trace: bool | TraceConfig = True,
        nvml: bool | NvmlConfig = True,
        host: bool | HostConfig = True,
        dirpath: str | None = None,
        log_every_n_steps: int | None = None,
        reports: list[str] | None = None,
        baseline: str | None = None,
        enabled: bool = True,
    ) -> None:
        trace_config = _group("trace", trace, TraceConfig)
        if log_every_n_steps is not None and (isinstance(log_every_n_steps, bool) or log_every_n_steps < 1):
            raise ArgumentError("log_every_n_steps", log_every_n_steps, "be at least 1, or None for the trainer's")
        if baseline is not None and not Path(baseline).expanduser().exists():
            raise ArgumentError("baseline", baseline, "name an existing run folder or report.json")
        if dirpath is not None and not isinstance(dirpath, (str, os.PathLike)):
            raise ArgumentError("dirpath", dirpath, "be a path")
        self.options = Options(
            windows=parse_windows(windows, (trace_config or TraceConfig()).active),
            trace=trace_config,
            nvml=_group("nvml", nvml, NvmlConfig),
            host=_group("host", host, HostConfig),
            dirpath=None if dirpath is None else os.fspath(dirpath),
            log_every_n_steps=log_every_n_steps,
            reports=parse_reports(["terminal", "tensorboard", "html", "json"] if reports is None else reports),
            baseline=baseline,
        )
        self.enabled = enabled
        self.report: Report | None = None
        """The report of the last ``fit``; None before."""
        self.folder: Path | None = None
        """Where the last ``fit`` was recorded."""
        self._session: Session | None = None
        self._entry: FitEntry | None = None
        self._log: object = None

    # Lightning hands each callback the module's `log` first thing in `fit`, long before `setup` is called (which comes
    # after process groups are made and data is prepared): the earliest sign that the fit has begun.
    @property
    def log(self) -> object:
        """The LightningModule's ``log``, as Lightning attaches it."""
        return self._log

    @log.setter
    def log(self, function: object) -> None:
        self._log = function
        self._entry = FitEntry.now()

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Begin to measure."""
        if not self.enabled or stage != "fit" or not self._is_first_of(trainer):
            return
        if self._session is not None:  # the fit before ended without telling us
            self._session.finish("abandoned")
            self._session = None
        entry, self._entry = self._entry or FitEntry.now(), None
        _fenced(lambda: self._begin(trainer, pl_module, entry))

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Loaders and counters are there."""
        if (session := self._session) is not None:
            with session.fence.around("start of training"):
                session.training_starts(pl_module)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """What follows is no training."""
        if (session := self._session) is not None:
            with session.fence.around("end of training"):
                session.training_ends()

    def teardown(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Stop, report, leave the trainer as it was."""
        self._end(trainer, FINISHED)

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        """Keep what was measured; the exception goes on unchanged."""
        self._end(trainer, f"interrupted: {type(exception).__name__}")

    # Lightning skips hooks that are not callable before it spends anything on them; an empty method costs about 2 us.
    on_train_batch_start = None  # type: ignore[assignment]
    on_train_batch_end = None  # type: ignore[assignment]
    on_before_zero_grad = None  # type: ignore[assignment]
    on_before_backward = None  # type: ignore[assignment]
    on_after_backward = None  # type: ignore[assignment]
    on_before_optimizer_step = None  # type: ignore[assignment]
    on_validation_batch_start = None  # type: ignore[assignment]
    on_validation_batch_end = None  # type: ignore[assignment]

    def __getstate__(self) -> dict[str, object]:
        """Copies and pickles of a running callback measure nothing: threads and files cannot be copied."""
        return {**self.__dict__, "_session": None, "_log": None, "_entry": None}

    def _begin(self, trainer: pl.Trainer, module: pl.LightningModule, entry: FitEntry) -> None:
        self._session = Session(trainer, module, self.options, entry, lightning_gpuprof.__version__)

    def _end(self, trainer: pl.Trainer, status: str) -> None:
        session, self._session = self._session, None
        if session is None:
            return
        session.finish(status)
        self.folder = session.folder
        if trainer.is_global_zero:
            with session.fence.around("report"):
                # Ctrl-C is switched off by Lightning while it ends an interrupted run: do not keep anybody waiting.
                session.wait_for_traces(JOB_TIMEOUT_S if status == FINISHED else INTERRUPTED_JOB_TIMEOUT_S)
                self.report = pipeline.finish_run(
                    session.folder,
                    kinds=self.options.reports,
                    baseline=self.options.baseline,
                    notices=session.notices,
                    trainer_loggers=trainer.loggers,
                    step=trainer.global_step,
                )

    def _is_first_of(self, trainer: Any) -> bool:
        """Two of us in one trainer (one of them made by the factory): only the first measures."""
        several = [c for c in trainer.callbacks if isinstance(c, GpuProfiler) and c.enabled]
        return not several or several[0] is self


def _group(name: str, value: object, kind: type[Group]) -> Group | None:
    if value is True:
        return kind()
    if value is False or value is None:
        return None
    if not isinstance(value, kind):
        raise ArgumentError(name, value, f"be a bool or a {kind.__name__}")
    return value


def _fenced(begin: Callable[[], None]) -> None:
    """Before there is a session there is no fence: a failure is a warning and nothing is measured."""
    try:
        begin()
    except Exception as error:
        if os.environ.get("GPUPROF_DEBUG"):
            raise
        warn(f"gpuprof: nothing is measured: {type(error).__name__}: {error}")
