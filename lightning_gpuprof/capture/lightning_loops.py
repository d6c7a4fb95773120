"""The one place that touches private parts of Lightning: the edges of steps, epochs and evaluation loops.

Read in lightning and pytorch_lightning 2.4.0 to 2.6.6: what :meth:`LoopEdges.patch_points` names, with what is lost
without each; ``fit_loop.epoch_loop._batches_that_stepped``; ``_signal_connector._original_handlers``.
Only attributes of these *instances* are set, and taken back at the end. Where one is missing, that edge is not measured
and the caller gets its name; without those that begin and end steps there are none.
"""

from __future__ import annotations

import functools
import signal
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from lightning_gpuprof.capture.fence import suppress_exceptions
from lightning_gpuprof.capture.profiler_tap import ProfilerTap
from lightning_gpuprof.capture.step_clock import StepClock
from lightning_gpuprof.capture.triggers import SIGNAL_NAME
from lightning_gpuprof.errors import GpuProfError
from lightning_gpuprof.model.phases import WRITES_OF_LOGGERS, Phase, Stage

if TYPE_CHECKING:
    import lightning.pytorch as pl

ITERATOR = "iter(dataloader)"
"""Name of the place in which an evaluation loop makes its iterator."""

_LOSS_OF_RUN = "windows can be requested only once steps begin, and a learning rate search counts as training"
_LOSS_OF_TEARDOWN = "an error inside a learning rate search ends without a report"
_LOSS_OF_SETUP = "the time to make the loaders is not shown separately"
_LOSS_OF_ITERATOR = "the time to start an evaluation's workers is not shown separately"
_LOSS_OF_STEPS = "steps cannot be measured"
_LOSS_OF_LOG = "time of self.log counts for the hook that calls it"

Undo = Callable[[], None]
_ABSENT = object()


class PatchPoint(msgspec.Struct, frozen=True):
    """A method of Lightning that gets a function of ours in its place."""

    path: str
    """From the trainer on."""
    wrap: Callable[[Callable[..., Any]], Callable[..., Any]]
    """Makes that function."""
    loss: str
    """What is lost where this version of Lightning has no such method."""
    required: bool = False
    """Without it no step is measured: what was measured would be wrong."""


class MissingEdgeError(GpuProfError):
    """A version of Lightning without a method that the measurement of steps cannot do without."""


class _Edge(functools.partial[Any]):
    """A function in the place of a loop's method. A copied or pickled loop gets its own class's method instead.

    A ``partial`` because calling one costs no Python frame. What it has not, as ``__name__`` and ``__self__``, is the
    method's own.
    """

    owner: object
    name: str
    original: Callable[..., Any]

    def __reduce__(self) -> tuple[Any, ...]:
        # Asked of a loop whose own attributes are not set yet, the name gives the bound method of its class.
        return getattr, (self.owner, self.name)

    def __getattr__(self, name: str) -> Any:
        if name == "original":  # not there yet
            raise AttributeError(name)
        return getattr(self.original, name)


def _patch(
    owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]], register: Callable[[Undo], None]
) -> bool:
    original = getattr(owner, name, None)
    if not callable(original):
        return False
    before = vars(owner).get(name, _ABSENT)
    edge = _Edge(make(original))
    edge.owner, edge.name, edge.original = owner, name, original

    def undo() -> None:
        if vars(owner).get(name) is not edge:
            return  # somebody replaced it after us: theirs stays
        if before is _ABSENT:
            delattr(owner, name)
        else:
            setattr(owner, name, before)

    register(undo)
    setattr(owner, name, edge)
    return True


def untimed(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method without what :class:`LoopEdges` put around it."""
    return method.original if isinstance(method, _Edge) else method


@dataclass(eq=False, repr=False)
class LoopEdges:
    """Reports to the clock where steps and epochs begin, and to the tap when an inner evaluation loop runs."""

    trainer: pl.Trainer
    """The trainer whose loops are watched."""
    stage: Stage
    """Which of them run now."""
    clock: StepClock
    """Gets the edges of steps and epochs."""
    tap: ProfilerTap
    """Gets the regions."""
    _: KW_ONLY
    on_run: Callable[[], None]
    """Called before a loop of the stage runs, before its workers are started; also before the sanity check."""
    on_start: Callable[[], None]
    """Called when the first step of a stage other than ``fit`` is about to begin; there is no hook for that."""
    on_validation: Callable[[], None]
    """Called when validation is about to begin beside a training step; not for the sanity check."""
    on_epoch_end: Callable[[], None]
    """Called when the last step of an epoch is over."""
    on_exception: Callable[[BaseException], None]
    """Called with the exception by which the stage was ended, once Lightning has torn the trainer down: a learning rate
    search replaces the trainer's callbacks by its own, and ours gets no exception then."""
    on_failure: Callable[[Exception], None]
    """Called when one of the edges itself fails; the loops have been given back then."""

    def __post_init__(self) -> None:
        self._undo: list[Undo] = []
        self._attached = False
        self._running = False

    def attach(self) -> list[str]:
        """Begin to watch.

        Returns:
            What this version of Lightning does not have, and what is lost by that. Where it is what steps cannot be
            measured without, ``on_failure`` was called.
        """
        missing = []
        self._attached = True
        for edge in self.patch_points():
            *path, name = edge.path.split(".")
            owner: Any = self.trainer
            for part in path:
                owner = getattr(owner, part, None)
            if _patch(owner, name, edge.wrap, self._undo.append):
                continue
            lacking = f"this version of Lightning has no {edge.path}: {edge.loss}"
            if edge.required:
                self._failed(MissingEdgeError(lacking))
                return []
            missing.append(lacking)
        if self.stage == "fit":
            self._time_loggers()
        return missing

    def detach(self) -> None:
        """Give the loops back as they were."""
        self._attached = False
        self._restore()

    def _restore(self) -> None:
        while self._undo:
            self._undo[-1]()
            self._undo.pop()

    @property
    def batches_that_stepped(self) -> int:
        """The step axis of the trainer's loggers: batches after which the optimizer was due."""
        # With one optimizer, as nearly all trainings have, both are the same.
        epoch_loop = getattr(self.trainer.fit_loop, "epoch_loop", None)
        return int(getattr(epoch_loop, "_batches_that_stepped", self.trainer.global_step))

    def patch_points(self) -> list[PatchPoint]:
        """What of Lightning's is wrapped in this stage."""
        return self._fit_points() if self.stage == "fit" else self._evaluation_points()

    def _common_points(self, loop: str) -> list[PatchPoint]:
        """Of the loop of any stage."""
        return [
            PatchPoint("_teardown", self._wrap_teardown, _LOSS_OF_TEARDOWN),
            PatchPoint(f"{loop}.run", self._wrap_run, _LOSS_OF_RUN),
            PatchPoint(f"{loop}.setup_data", self._timed_as("setup_data", "loop"), _LOSS_OF_SETUP),
        ]

    def _log_point(self, loop: str) -> PatchPoint:
        """``self.log`` in a hook: most of its time (83 % measured) is in the collection of results."""
        return PatchPoint(f"{loop}._results.log", self._timed_as("self.log", "logging"), _LOSS_OF_LOG)

    def _iterator_point(self, loop: str) -> PatchPoint:
        """Nearly all of an evaluation loop's ``reset`` is ``iter(dataloader)``, which starts the workers."""
        return PatchPoint(f"{loop}.reset", self._timed_as(ITERATOR, "loop"), _LOSS_OF_ITERATOR)

    def _fit_points(self) -> list[PatchPoint]:
        loop = "fit_loop.epoch_loop"
        found = [
            *self._common_points("fit_loop"),
            PatchPoint(f"{loop}.run", self._wrap_epoch, "the last step of an epoch lasts until the next begins"),
            PatchPoint(f"{loop}.advance", self._wrap_step, _LOSS_OF_STEPS, required=True),
            PatchPoint(
                f"{loop}.val_loop.run",
                self._wrap_inner_evaluation,
                "validation cannot be separated from training steps",
                required=True,
            ),
            self._iterator_point(f"{loop}.val_loop"),
            self._log_point(loop),
        ]
        if self.trainer.world_size > 1:  # since Lightning 2.5.2; called with several ranks only
            sync = self._timed_as("broadcast_sigterm", "sync")
            path = f"{loop}._broadcast_sigterm_tensor"
            found.append(PatchPoint(path, sync, "time in which ranks agree on signals counts as loop"))
        return found

    def _evaluation_points(self) -> list[PatchPoint]:
        loop = f"{self.stage}_loop"
        predicting = self.stage == "predict"
        step = "_predict_step" if predicting else "_evaluation_step"
        found = [
            *self._common_points(loop),
            self._iterator_point(loop),
            PatchPoint(f"{loop}.on_run_start", self._wrap_evaluation_start, _LOSS_OF_STEPS, required=True),
            PatchPoint(f"{loop}.{step}", self._wrap_evaluation_step, _LOSS_OF_STEPS, required=True),
            PatchPoint(f"{loop}.on_run_end", self._wrap_evaluation_end, "the last step does not end", required=True),
        ]
        return found if predicting else [*found, self._log_point(loop)]

    def _fenced(self, edge: Callable[..., object], *args: object) -> None:
        """Lightning called; a failure of ours ends here, and the edges with it."""
        try:
            edge(*args)
        except Exception as error:
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        try:
            self.detach()
        finally:
            self.on_failure(error)

    def _wrap_run(self, run: Callable[[], Any]) -> Callable[[], Any]:
        def timed_run() -> Any:
            if self._running:
                return self._trial(run)
            self._fenced(self._announce_run)
            self._running = True
            try:
                return run()
            finally:
                self._running = False

        return timed_run

    def _wrap_teardown(self, teardown: Callable[[], None]) -> Callable[[], None]:
        trainer = self.trainer

        def observed_teardown() -> None:
            error = None
            try:
                # Also where `fit` is called inside an `except` of the user's: there the status says which it is.
                error = sys.exc_info()[1] if getattr(trainer, "interrupted", False) else None
            except Exception as failure:
                self._failed(failure)
            try:
                teardown()
            finally:
                if error is not None:
                    self._fenced(self.on_exception, error)

        return observed_teardown

    def _trial(self, run: Callable[[], Any]) -> Any:
        """A learning rate search in the middle of training runs the loop inside itself: its batches are no steps.

        Its optimizer steps are taken back by Lightning, and so by the clock.
        """
        optimizer_steps = self.clock.counters()[1]
        self._restore()
        try:
            return run()
        finally:
            if self._attached:  # not given back meanwhile, after a failure
                self._fenced(self.attach)
                self.clock.set_optimizer_steps(optimizer_steps)

    def _announce_run(self) -> None:
        """Only once Lightning has set its own handlers of signals: it leaves out those that it finds taken.

        A learning rate finder runs the loop before.
        """
        signals = getattr(self.trainer, "_signal_connector", None)
        originals = getattr(signals, "_original_handlers", True)
        if not originals:
            return
        number = getattr(signal, SIGNAL_NAME, None)  # not on Windows
        before = number and signal.getsignal(number)
        self.on_run()
        ours = number and signal.getsignal(number)
        if ours is not before and isinstance(originals, dict):
            # Lightning puts back what it found before other callbacks' last hooks: ours is to stay until they are over.
            self._undo.append(lambda: originals.__setitem__(number, before))
            originals[number] = ours

    def _timed_as(self, name: str, phase: Phase) -> Callable[[Callable[..., None]], Callable[..., None]]:
        """Wraps a method all of whose time belongs to a place that Lightning does not name."""
        place = self.tap.place

        def wrap(method: Callable[..., None]) -> Callable[..., None]:
            def timed(*args: Any, **kwargs: Any) -> None:
                with place(name, phase):
                    method(*args, **kwargs)

            return timed

        return wrap

    def _time_loggers(self) -> None:
        """Each logger's time gets a name of its own within that of logging; it costs nothing where nothing is written.

        What callbacks and hooks write by themselves stays their time.
        """
        place = self.tap.place
        names: Counter[str] = Counter()

        def wrap(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
            def timed(*args: Any, **kwargs: Any) -> Any:
                if not self._is_logging():
                    return method(*args, **kwargs)
                with place(name, "logging"):
                    return method(*args, **kwargs)

            return timed

        for logger in {id(one): one for one in self.trainer.loggers}.values():
            owner = type(logger).__name__
            names[owner] += 1
            owner += f" #{names[owner]}" if names[owner] > 1 else ""
            for method in WRITES_OF_LOGGERS:
                with suppress_exceptions():  # a logger that takes no attributes is not timed
                    _patch(logger, method, functools.partial(wrap, f"{owner}.{method}"), self._undo.append)

    def _is_logging(self) -> bool:
        """Whether the training loop is at its logging, to which the time is charged now."""
        try:
            around = self.clock.slots[self.clock.current_slot()]
            return around.phase == "logging" and around.region == "main"
        except Exception as error:
            self._failed(error)
            return False

    def _wrap_epoch(self, run: Callable[[Any], None]) -> Callable[[Any], None]:
        trainer = self.trainer
        clock, begin_epoch, end_epoch = self.clock, self.clock.begin_epoch, self.clock.end_epoch

        def begin() -> None:
            begin_epoch(trainer.current_epoch, trainer.fit_loop.epoch_loop.total_batch_idx)

        def end() -> None:
            end_epoch()
            with clock.context(clock.own_slot):
                self.on_epoch_end()

        def timed_run(data_fetcher: Any) -> None:
            self._fenced(begin)
            try:
                run(data_fetcher)
            finally:
                self._fenced(end)

        return timed_run

    def _wrap_step(self, advance: Callable[[Any], None]) -> Callable[[Any], None]:
        begin_step, cancel_step = self.clock.begin_step, self.clock.cancel_step
        abort_step = self.clock.abort_step

        def timed_advance(data_fetcher: Any) -> None:
            try:
                begin_step()
            except Exception as error:
                self._failed(error)
            try:
                advance(data_fetcher)
            except StopIteration:
                self._fenced(cancel_step)
                raise
            except BaseException:
                self._fenced(abort_step)
                raise

        return timed_advance

    def _wrap_evaluation_start(self, on_run_start: Callable[[], None]) -> Callable[[], None]:
        clock = self.clock

        def begin() -> None:
            with clock.context(clock.own_slot):
                self.on_start()
            clock.begin_epoch(0, -1)
            clock.begin_step()

        def timed_start() -> None:
            on_run_start()
            self._fenced(begin)

        return timed_start

    def _wrap_evaluation_step(self, step: Callable[..., None]) -> Callable[..., None]:
        # No method is called once a batch before the fetch: the end of a batch is the start of the next.
        count, begin_step, abort_step = self.clock.count, self.clock.begin_step, self.clock.abort_step

        def timed_step(*args: Any, **kwargs: Any) -> None:
            try:
                step(*args, **kwargs)
            except StopIteration:  # the step fetched by itself and found the end
                raise
            except BaseException:
                self._fenced(abort_step)
                raise
            try:
                count()
                begin_step()
            except Exception as error:
                self._failed(error)

        return timed_step

    def _wrap_evaluation_end(self, on_run_end: Callable[[], Any]) -> Callable[[], Any]:
        cancel_step, end_epoch = self.clock.cancel_step, self.clock.end_epoch

        def end() -> None:
            cancel_step()  # the fetch after the last batch
            end_epoch()
            self.on_epoch_end()

        def timed_end() -> Any:
            self._fenced(end)
            return on_run_end()

        return timed_end

    def _wrap_inner_evaluation(self, run: Callable[[], Any]) -> Callable[[], Any]:
        trainer, tap, clock = self.trainer, self.tap, self.clock

        def begin() -> None:
            with clock.context(clock.own_slot):
                self.on_validation()

        def timed_run() -> Any:
            sanity = trainer.sanity_checking
            self._fenced(self._announce_run if sanity else begin)
            before = tap.enter_region("sanity" if sanity else "validation")
            try:
                with tap.place("evaluation loop", "loop"):
                    return run()
            finally:
                tap.enter_region(before)

        return timed_run
