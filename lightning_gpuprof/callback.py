"""The callback: Lightning's hooks go to the session, the end of the fit to the reports."""

from __future__ import annotations

import atexit
import functools
import inspect
import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import torch

import lightning_gpuprof
from lightning_gpuprof.capture.fence import (
    debugging,
    logger_part,
    must_propagate,
    suppress_exceptions,
    warn,
    warn_of_fabric,
)
from lightning_gpuprof.capture.line_timer import check_names
from lightning_gpuprof.capture.output_folder import Origin, is_local_path, launch_key
from lightning_gpuprof.capture.session import Session
from lightning_gpuprof.capture.stage_journal import FINISHED, Entry, interrupted_by
from lightning_gpuprof.capture.switches import LIVE, is_switched_on
from lightning_gpuprof.errors import (
    ArgumentError,
    ReportError,
    UnknownArgumentError,
    answer_before_the_parser,
    note_unknown_arguments,
)
from lightning_gpuprof.model.config import (
    Goal,
    HostConfig,
    NvmlConfig,
    Options,
    TraceConfig,
    check_flag,
    check_goal,
    check_int,
    check_price,
    parse_reports,
    parse_target,
    parse_windows,
)
from lightning_gpuprof.model.phases import STAGES, Stage
from lightning_gpuprof.results import Results
from lightning_gpuprof.sinks.status_line import StatusLine, progress

try:
    from lightning.pytorch.callbacks import Callback
except ImportError:  # only the older package is installed
    from pytorch_lightning.callbacks import Callback  # type: ignore[assignment]

if TYPE_CHECKING:
    import lightning.pytorch as pl

    from lightning_gpuprof.analyze.journal_columns import Journal
    from lightning_gpuprof.capture.remote_copy import RemoteCopy
    from lightning_gpuprof.end_of_run import Logged
    from lightning_gpuprof.model.report import Report
    from lightning_gpuprof.summary_file import SummaryFile

JOB_TIMEOUT_S = 15.0
"""For the analysis of the traces, which only takes CPUs that nobody else wants; on a full machine it is done later."""
INTERRUPTED_JOB_TIMEOUT_S = 2.0

_BATCH_HOOKS: dict[Stage, str] = {
    "fit": "on_train_batch_start",
    "validate": "on_validation_batch_start",
    "test": "on_test_batch_start",
    "predict": "on_predict_batch_start",
}
"""Hook of each stage that is given the batches: ours for the first one, then gone."""
_BACKWARD_HOOK = "on_before_backward"
"""Ours for the first loss, where anomaly detection is on, and for each one of several ranks on CPUs."""
_REMOTE = "remote copy"
"""What the fence calls it."""
_EMPTY_HOOKS = (
    "on_train_batch_start",
    "on_train_batch_end",
    "on_before_zero_grad",
    "on_before_backward",
    "on_after_backward",
    "on_before_optimizer_step",
    "on_validation_batch_start",
    "on_validation_batch_end",
)
"""Hooks of a step, in which nothing of ours happens."""
_INSTANCE_HOOKS = frozenset({*_BATCH_HOOKS.values(), _BACKWARD_HOOK, *_EMPTY_HOOKS})
"""Those that an instance has instead of its class's, while it measures."""

Parameters = ParamSpec("Parameters")
Group = TypeVar("Group", TraceConfig, NvmlConfig, HostConfig)
_GROUPS = {"trace": TraceConfig, "nvml": NvmlConfig, "host": HostConfig}
"""Arguments that are groups of options."""


def _harmless(hook: Callable[Concatenate[GpuProfiler, Parameters], None]) -> Callable[..., None]:
    """The outermost fence, around what Lightning calls: what fails there ends our part in the run, and not the run."""

    @functools.wraps(hook)
    def harmless(self: GpuProfiler, *args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
        try:
            hook(self, *args, **kwargs)
        except Exception as error:
            if must_propagate(error) or debugging():
                raise
            with suppress_exceptions():
                self._give_up(error)

    return harmless


def _named_arguments(init: Callable[Parameters, None]) -> Callable[Parameters, None]:
    """Name the argument that was meant by one that is not there, also in a configuration that LightningCLI refused."""
    known = list(inspect.signature(init).parameters)[1:]
    options = [f"{name}.{option}" for name, group in _GROUPS.items() for option in inspect.signature(group).parameters]
    note = functools.partial(note_unknown_arguments, "GpuProfiler", [*known, *options])
    atexit.register(note)
    restore = answer_before_the_parser(
        "GpuProfiler",
        [*known, *options],
        {"": lambda **given: GpuProfiler(**given), **_GROUPS},
        lambda: atexit.unregister(note),
    )

    @functools.wraps(init)
    def named(*args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
        atexit.unregister(note)
        restore()
        for name in kwargs:
            if name not in known:
                raise UnknownArgumentError("GpuProfiler", name, known)
        init(*args, **kwargs)

    return named


class GpuProfiler(Results, Callback):
    """Shows where the training time goes, what is wrong and what to change.

    ``Trainer(callbacks=[GpuProfiler()])`` is enough. Training is never changed or stopped by it: a part that fails is
    switched off, with one warning.

    Args:
        windows: Optimizer steps to trace: ``200``, ``(200, 205)`` with both ends included, a list of such, ``[]`` for
            none. ``None`` traces one window once the run is steady, after 2 s at the earliest. In YAML write
            ``[[200, 205]]`` for a range.
        trace: How windows are recorded; ``false`` switches them off.
        nvml: How GPUs are sampled; ``false`` switches it off.
        host: How CPUs and memory are sampled; ``false`` switches it off.
        dirpath: Folder for everything that is written; ``~`` and ``$VARIABLES`` are expanded. To an address that
            fsspec knows (``s3://bucket/runs``), the default folder is copied, every 10 s and at the end. Default:
            ``<trainer.log_dir>/gpuprof``, or ``<trainer.log_dir>-gpuprof`` where checkpoints go to that folder; in
            workers of Ray Train, the storage of the run. An earlier run is kept: the new one goes to ``gpuprof-2`` and
            so on. ``fast_dev_run`` is measured only with it.
        log_every_n_steps: Cadence of the scalars to the trainer's loggers. Default: the trainer's.
        reports: What to make at the end, out of ``terminal``, ``tensorboard``, ``html``, ``json``. ``tensorboard`` is
            for all of the trainer's loggers. Default: all, but one line for a run that is too short to judge.
        baseline: An earlier run's folder or ``report.json`` to compare with at the end.
        enabled: ``false`` leaves the callback in place without effect.
        nvtx: Mark steps and phases as NVTX ranges. Default: when the process runs under Nsight Systems or Compute.
        input_pipeline: Measure in DataLoader workers what items, transforms and collation take; ``false`` switches it
            off.
        verbose: Give the trainer's loggers every phase and every value that is sampled, not only the main dozen.
        target: ``"1.3x"``, or samples per second of all ranks: the report says whether the findings can get there.
        price_per_gpu_hour: In any unit: the report has the price of a million samples.
        goal: What the report leads with: ``throughput``, ``latency`` (the slowest steps), ``memory`` or ``cost``.
        samples: Samples of a batch where ``batch_size`` is not what counts: a number, or a function of a batch, such as
            ``lambda batch: batch["input_ids"].numel()`` for tokens. It is called once, with the first batch. Strategies
            that spawn processes need a function of a module: a lambda cannot be pickled.
        lines: Functions to time line by line, with line_profiler (``pip install 'lightning-gpuprof[lines]'``):
            ``["train:Net.training_step"]``, for the script itself ``"__main__:Net.training_step"``. They get slower:
            other numbers of such a run are of little use. Calls in DataLoader workers do not count.
        thresholds: Thresholds of rules in place of their own: ``{"input-bound": {"least_ratio": 0.1}}``. ``gpuprof
            explain RULE`` lists those of a rule.

    Raises:
        GpuProfError: An argument cannot work; the message names it, its value and the way out.
    """

    @_named_arguments
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
        nvtx: bool | None = None,
        input_pipeline: bool = True,
        verbose: bool = False,
        target: float | str | None = None,
        price_per_gpu_hour: float | None = None,
        goal: Goal = "throughput",
        samples: int | Callable[[Any], int] | None = None,
        lines: list[str] | None = None,
        thresholds: dict[str, dict[str, float]] | None = None,
    ) -> None:
        trace_config = _group("trace", trace, TraceConfig)
        limits = trace_config or TraceConfig()
        if log_every_n_steps is not None:
            check_int("log_every_n_steps", log_every_n_steps, 1)
        if baseline is not None and not (
            isinstance(baseline, (str, os.PathLike)) and Path(baseline).expanduser().exists()
        ):
            raise ArgumentError("baseline", baseline, "name an existing run folder or report.json")
        check_flag("enabled", enabled)
        check_flag("nvtx", nvtx, unset="under Nsight Systems or Compute")
        check_flag("input_pipeline", input_pipeline)
        check_flag("verbose", verbose)
        if dirpath is not None and not isinstance(dirpath, (str, os.PathLike)):
            raise ArgumentError("dirpath", dirpath, "be a path")
        dirpath = None if dirpath is None else os.path.expandvars(dirpath)
        if dirpath is not None and not is_local_path(dirpath):
            import_module("lightning_gpuprof.capture.remote_copy").check_address(dirpath)
        if target is not None:
            parse_target(target)
        if price_per_gpu_hour is not None:
            check_price(price_per_gpu_hour)
        check_goal(goal, samples)
        if thresholds:
            _check_thresholds(thresholds)
        if limits.every_kernel and windows is None:
            windows = []
        if limits.every_kernel and (windows != [] or limits.on_slow_step or limits.every_n_steps is not None):
            way_out = "CUPTI serves one at a time: leave out the windows."
            raise ArgumentError("trace.every_kernel", True, "not be set beside windows", way_out)
        self.options = Options(
            windows=parse_windows(windows, limits.active, limits.max_steps),
            trace=trace_config,
            nvml=_group("nvml", nvml, NvmlConfig),
            host=_group("host", host, HostConfig),
            dirpath=dirpath,
            log_every_n_steps=log_every_n_steps,
            reports=None if reports is None else parse_reports(reports),
            baseline=baseline,
            nvtx=nvtx,
            input_pipeline=input_pipeline,
            verbose=verbose,
            target=None if target is None else str(target),
            price_per_gpu_hour=price_per_gpu_hour,
            goal=goal,
            samples=samples,
            lines=() if lines is None else check_names(lines),
            thresholds=thresholds or {},
        )
        self.enabled = enabled
        self._origin = Origin()
        self._session: Session | None = None
        self._warned_of_fabric = False
        self._entry: Entry | None = None
        self._logged: Logged | None = None
        self._summary: SummaryFile | None = None
        self._remote: RemoteCopy | None = None
        self._warned_of_another = False
        self._log: object = None
        self._skipped: tuple[str, ...] = ()

    # Lightning hands each callback the module's `log` first thing in `fit`, long before `setup` is called (which comes
    # after process groups are made and data is prepared): the earliest sign that the fit has begun.
    @property
    def log(self) -> object:
        """The LightningModule's ``log``, as Lightning attaches it."""
        return self._log

    @log.setter
    @_harmless
    def log(self, function: object) -> None:
        self._log = function
        self._entry = Entry.now()

    @_harmless
    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Begin to measure."""
        self._skip_empty_hooks(trainer)
        if not self.enabled or stage not in STAGES or not self._is_first_of(trainer) or self._is_dry_run(trainer):
            return
        measured = STAGES[STAGES.index(stage)]  # Lightning gives a member of an enumeration of strings
        if (before := self._session) is not None:
            if not before.notified_on_end:
                before.finish("abandoned")  # it ended without telling us
                self._session = None
            elif before.trainer is trainer:
                # By a hook near the stage's end; Lightning knows no stage within a stage: the one before is over.
                self.teardown(trainer, pl_module, before.stage)
                self._end(trainer)
            else:
                before.fence.report(
                    "nested", f"a {measured} of another trainer inside of this run is not measured separately"
                )
                return
        entry, self._entry = self._entry or Entry.now(), None
        self._begin(trainer, pl_module, measured, entry)

    @_harmless
    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Loaders and counters of ``fit`` are there; the loop tells of the other stages."""
        if (session := self._session_of(trainer)) is not None:
            with session.fence.around("start of training"):
                session.steps_start(pl_module)
            with session.fence.around("charts of the loggers"):
                self._offer_layout(trainer, session)

    @_harmless
    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """What follows is no training."""
        if (session := self._session_of(trainer)) is not None:
            with session.fence.around("end of training"):
                session.steps_end()

    @_harmless
    def teardown(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Give the loggers the diagnosis while they are open; other hooks and the loggers' end are still to come."""
        session = self._session_of(trainer)
        if session is None:
            return
        with session.fence.around("end of the steps"):
            session.steps_end()
            if trainer.is_global_zero:  # whatever may take long comes before the last measured moment
                with progress("waiting for the analysis of the traces"):
                    session.wait_for_traces(JOB_TIMEOUT_S)
                _end_of_run()
        if not trainer.is_global_zero:
            with session.fence.around("summary"):
                session.settle(None)
                self._complete_summary(session)
        if self._reports_to_loggers(trainer):
            with session.fence.around("loggers"), progress("giving the diagnosis to the loggers"):
                session.settle(JOB_TIMEOUT_S)
                self._report_to_loggers(trainer, session, finished=True)
        if not session.notified_on_end:
            self._end(trainer)

    @_harmless
    def on_after_setup(self, fabric: object, module: object) -> None:
        """Fabric calls this: its loops are the user's own, and nothing of them can be measured.

        Args:
            fabric: Its loops.
            module: One of its models.
        """
        if self.enabled and not self._warned_of_fabric:
            self._warned_of_fabric = True
            warn_of_fabric()

    @_harmless
    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        """Keep what was measured; the exception goes on unchanged."""
        if self._session_of(trainer) is not None:
            self._end(trainer, exception)

    @_harmless
    def start(self) -> None:
        """Trace the next steps, from a hook or a callback of your own; outside of a run nothing happens.

        After the warm-up so many steps as ``TraceConfig(active=...)`` says, or fewer with :meth:`stop`. With
        ``windows=[]`` there are no other windows.
        """
        if self._session is not None:
            self._session.windows.start()

    @_harmless
    def stop(self) -> None:
        """End the window that is open with the step that runs."""
        if self._session is not None:
            self._session.windows.stop()

    def analyse(self) -> Report:
        """The report of the last run, or during one, of what has been written of it: up to two seconds ago.

        Training waits for it meanwhile, 0.1 s for a short run and seconds after millions of steps.

        Raises:
            ReportError: Nothing was measured, it is not on rank 0, or no report can be made of what there is.
        """
        if self._session is None or self._session.trainer.global_rank:
            return self._last_report()
        try:
            made: Report = import_module("lightning_gpuprof.pipeline").report_in_training(self._session.journal.folder)
        except Exception as error:  # in a hook of the user, where any other error would end the training
            raise ReportError(f"no report can be made yet: {error}") from error
        return made

    def __getstate__(self) -> dict[str, object]:
        """Copies and pickles of a running callback measure nothing: threads and files cannot be copied."""
        kept = {name: value for name, value in self.__dict__.items() if name not in _INSTANCE_HOOKS}
        gone = dict.fromkeys(("_session", "_summary", "_remote", "_log", "_entry"))
        return {**kept, **gone, "_skipped": ()}

    def _begin(self, trainer: pl.Trainer, module: pl.LightningModule, stage: Stage, entry: Entry) -> None:
        self._logged = self._summary = self._remote = None
        if trainer.world_size > 1:
            self._summary = import_module("lightning_gpuprof.summary_file").SummaryFile()
        self._session = Session(
            trainer,
            stage,
            self.options,
            entry,
            module=module,
            launch=launch_key(trainer, self._origin, os.environ),
            version=lightning_gpuprof.__version__,
            on_end=functools.partial(self._end, trainer),
            on_written=None if self._summary is None else self._summary.renew,
            line=StatusLine.on_terminal() if trainer.is_global_zero and is_switched_on(LIVE, os.environ) else None,
            **self._hardware(),
        )
        if (address := self.options.dirpath) is not None and not is_local_path(address):
            self._copy_to(address, self._session, trainer.global_rank)
        self._remove_hooks()
        self.__dict__[_BATCH_HOOKS[stage]] = self._first_batch

    def _skip_empty_hooks(self, trainer: Any) -> None:
        """Lightning skips hooks that are not callable before it spends anything on them; an empty one costs 2 µs.

        The class has them: a subclass may call them, and a callback that holds others, which Lightning does not see.
        """
        if any(one is self for one in trainer.callbacks):
            cls = type(self)
            empty = (hook for hook in _EMPTY_HOOKS if getattr(cls, hook) is getattr(GpuProfiler, hook))
            self._skipped = tuple(empty)
            for hook in self._skipped:
                self.__dict__.setdefault(hook, None)  # of a run around this one ours may be there

    def _copy_to(self, address: str, session: Session, rank: int) -> None:
        with session.fence.around(_REMOTE):
            stage = "" if session.stage == "fit" else f"-{session.stage}"
            self._remote = import_module("lightning_gpuprof.capture.remote_copy").RemoteCopy(
                session.journal.folder,
                f"{address.rstrip('/')}/gpuprof{stage}-{session.job}",
                rank,
                functools.partial(session.fence.report, _REMOTE),
            )

    @_harmless
    def _first_batch(self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: object, *args: object) -> None:
        """The first batch of the stage, from a hook that is there for this one call."""
        if (session := self._session_of(trainer)) is not None:
            self._remove_hooks()
            session.first_batch(batch)
            if session.stage == "fit" and torch.is_anomaly_enabled():
                self.__dict__[_BACKWARD_HOOK] = self._first_backward
            elif session.waits_in_backward:
                self.__dict__[_BACKWARD_HOOK] = self._each_backward

    @_harmless
    def _first_backward(self, trainer: pl.Trainer, pl_module: pl.LightningModule, loss: torch.Tensor) -> None:
        if (session := self._session_of(trainer)) is not None:
            self._remove_hooks()
            session.first_backward(loss)

    @_harmless
    def _each_backward(self, trainer: pl.Trainer, pl_module: pl.LightningModule, loss: torch.Tensor) -> None:
        if (session := self._session_of(trainer)) is not None:
            session.backward_begins(loss)

    def _remove_hooks(self) -> None:
        for hook in _INSTANCE_HOOKS:
            self.__dict__.pop(hook, None)
        self.__dict__.update(dict.fromkeys(self._skipped))

    def _hardware(self) -> dict[str, Any]:
        """What a session is to use in the place of the machine's own devices and ranges, by argument."""
        return {}

    def _give_up(self, error: Exception) -> None:
        """Something failed that no fence of the session's was around: nothing is measured any more."""
        text = f"{type(error).__name__}: {error}"
        session, self._session = self._session, None
        if session is None:
            warn(f"gpuprof: nothing is measured: {text}")
        else:
            session.fence.report("measuring", f"switched off after {text}")
            session.give_up()
        if self._remote is not None:
            self._remote.stop()
        self._remove_hooks()

    @_harmless
    def _end(self, trainer: pl.Trainer, exception: BaseException | None = None) -> None:
        if (session := self._session) is None:
            return
        status = FINISHED
        journal: Journal | None = None
        if exception is not None:
            status = interrupted_by(exception)
            session.failed(exception)
        try:
            with session.fence.deferring():
                for _ in range(2):  # what was cut off before it began is done once more; what was done is not
                    with session.fence.around("the end"):
                        session.finish(status)
                        self.folder = session.journal.folder
                self._skipped = ()
                self._remove_hooks()
                if status != FINISHED or trainer.is_global_zero:
                    with session.fence.around("summary"):
                        journal = self._complete_summary(session)
                self._make_report(trainer, session, status, journal)
                if session.fence.held is not None and self.report is None:  # a worker died in the middle of it
                    self._make_report(trainer, session, status, journal)
                if self._remote is not None:
                    with progress(f"copying the run to {self._remote.name}"), session.fence.around(_REMOTE):
                        self._remote.finish()
        except Exception as error:
            if must_propagate(error):
                session.give_up()  # does what is left to do, mostly nothing
                self._session = None
            raise
        self._session = None

    def _make_report(self, trainer: pl.Trainer, session: Session, status: str, journal: Journal | None) -> None:
        with session.fence.around("report"):
            if not trainer.is_global_zero:
                return
            # Ctrl-C is switched off by Lightning while it ends an interrupted run: do not keep anybody waiting.
            with progress("waiting for the analysis of the traces"):
                session.wait_for_traces(JOB_TIMEOUT_S if status == FINISHED else INTERRUPTED_JOB_TIMEOUT_S)
            with session.fence.around("loggers"):
                if status != FINISHED and self._reports_to_loggers(trainer):
                    self._report_to_loggers(trainer, session, finished=False)
            self.report = _end_of_run().finish_run(
                session.journal.folder,
                kinds=self.options.reports,
                baseline=self.options.baseline,
                notices=session.journal.notices,
                logged=self._logged,
                journal=journal,
                ranks_wait_s=(self.options.host or HostConfig()).ranks_wait_s,
            )

    def _complete_summary(self, session: Session) -> Journal | None:
        """Leave what other ranks need of this one as it is now; None if there are none."""
        return None if self._summary is None else self._summary.complete(session.journal.path)

    def _reports_to_loggers(self, trainer: pl.Trainer) -> bool:
        wanted = self.options.reports is None or "tensorboard" in self.options.reports
        return bool(trainer.is_global_zero and trainer.loggers and wanted)

    def _report_to_loggers(self, trainer: pl.Trainer, session: Session, *, finished: bool) -> None:
        self._logged = _end_of_run().push_to_loggers(
            session.journal.folder,
            kinds=self.options.reports,
            notices=session.journal.notices,
            trainer_loggers=trainer.loggers,
            step=session.logger_step,
            fence=session.fence.around,
            late=functools.partial(session.fence.report, "loggers"),
            finished=finished,
            baseline=self.options.baseline,
            ranks_wait_s=(self.options.host or HostConfig()).ranks_wait_s,
        )

    def _offer_layout(self, trainer: pl.Trainer, session: Session) -> None:
        """Before the first step, so that the charts of a run that goes on are there."""
        if not self._reports_to_loggers(trainer):
            return
        sampled = self.options.nvml is not None and trainer.strategy.root_device.type == "cuda"
        for logger in trainer.loggers:
            with session.fence.around(logger_part(logger)):
                import_module("lightning_gpuprof.sinks.scalar_layout").offer(logger, gpus=sampled)

    def _is_first_of(self, trainer: Any) -> bool:
        """Two of us in one trainer (one of them made by the factory): only the first measures."""
        several = [c for c in trainer.callbacks if isinstance(c, GpuProfiler) and c.enabled]
        if not several or several[0] is self:
            return True
        if self.options not in (several[0].options, GpuProfiler().options) and not self._warned_of_another:
            self._warned_of_another = True
            warn("gpuprof: two GpuProfilers are in this trainer: the first measures, the other's options are unused")
        return False

    def _is_dry_run(self, trainer: Any) -> bool:
        """``fast_dev_run`` leaves no files, and its few batches are too few to judge; a ``dirpath`` asks for it."""
        return bool(trainer.fast_dev_run) and self.options.dirpath is None

    def _session_of(self, trainer: Any) -> Session | None:
        """What measures this trainer now."""
        session = self._session
        return session if session is not None and session.trainer is trainer else None


def _group(name: str, value: object, kind: type[Group]) -> Group | None:
    if value is True:
        return kind()
    if value is False or value is None:
        return None
    if not isinstance(value, kind):
        raise ArgumentError(name, value, f"be a bool or a {kind.__name__}")
    return value


def _check_thresholds(thresholds: dict[str, dict[str, float]]) -> None:
    """Rules are wanted only where somebody names them: they are no part of the package's import."""
    rules = import_module("lightning_gpuprof.rules.discovery").installed().rules
    import_module("lightning_gpuprof.rules.thresholds").with_thresholds(rules, thresholds)


def _end_of_run() -> ModuleType:
    """What makes reports: half of this package's import time, wanted only when all is over."""
    return import_module("lightning_gpuprof.end_of_run")
