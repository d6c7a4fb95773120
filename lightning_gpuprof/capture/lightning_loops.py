"""The one place that touches private parts of Lightning: the edges of steps, epochs and evaluation loops.

Read in lightning 2.6.6 and pytorch_lightning 2.6.6: ``fit_loop.run`` and ``setup_data``, ``fit_loop.epoch_loop`` with
``run``, ``advance``, ``_broadcast_sigterm_tensor``, ``_batches_that_stepped`` and ``_results.log``,
``epoch_loop.val_loop.run``. Only attributes of these *instances* are set, and taken back at the end. Where one is
missing, that edge is not measured and the caller is told.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lightning_gpuprof.capture.profiler_tap import ProfilerTap
from lightning_gpuprof.capture.step_clock import StepClock

if TYPE_CHECKING:
    import lightning.pytorch as pl

Undo = Callable[[], None]
_ABSENT = object()


class _Edge(functools.partial[Any]):
    """A function in the place of a loop's method. A copied or pickled loop gets its own class's method instead.

    A ``partial`` because calling one costs no Python frame.
    """

    owner: object
    name: str

    def __reduce__(self) -> tuple[Any, ...]:
        # Asked of a loop whose own attributes are not set yet, the name gives the bound method of its class.
        return getattr, (self.owner, self.name)


def _replace(owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Undo | None:
    original = getattr(owner, name, None)
    if not callable(original):
        return None
    before = vars(owner).get(name, _ABSENT)
    edge = _Edge(make(original))
    edge.owner, edge.name = owner, name
    setattr(owner, name, edge)

    def undo() -> None:
        if vars(owner).get(name) is not edge:
            return  # somebody replaced it after us: theirs stays
        if before is _ABSENT:
            delattr(owner, name)
        else:
            setattr(owner, name, before)

    return undo


class LoopEdges:
    """Tells the clock where steps and epochs begin and the tap when the evaluation loop runs.

    Args:
        trainer: The trainer whose loops are watched.
        clock: Told of steps and epochs.
        tap: Told of regions.
        on_epoch_end: Told when the last step of an epoch is over.
        on_exception: Told when ``fit`` is left by an exception, before any callback hears of it.
        on_failure: Told when one of the edges itself fails; the loops have been given back then.
    """

    def __init__(
        self,
        trainer: pl.Trainer,
        clock: StepClock,
        tap: ProfilerTap,
        *,
        on_epoch_end: Callable[[], None],
        on_exception: Callable[[], None],
        on_failure: Callable[[Exception], None],
    ) -> None:
        self._trainer = trainer
        self._clock = clock
        self._tap = tap
        self._on_epoch_end = on_epoch_end
        self._on_exception = on_exception
        self._on_failure = on_failure
        self._undo: list[Undo] = []

    def attach(self) -> list[str]:
        """Begin to watch.

        Returns:
            Names of the edges that this version of Lightning does not have.
        """
        fit_loop = self._trainer.fit_loop
        epoch_loop = fit_loop.epoch_loop
        wanted: list[tuple[object, str, Callable[[Callable[..., Any]], Callable[..., Any]]]] = [
            (fit_loop, "run", self._around_fit),
            (fit_loop, "setup_data", self._around_setup_data),
            (epoch_loop, "run", self._around_epoch),
            (epoch_loop, "advance", self._around_step),
            (epoch_loop, "_broadcast_sigterm_tensor", self._around_sigterm),
            (epoch_loop.val_loop, "run", self._around_evaluation),
            (getattr(epoch_loop, "_results", None), "log", self._around_log),
        ]
        missing = []
        for owner, name, make in wanted:
            undo = _replace(owner, name, make)
            if undo is None:
                missing.append(f"{type(owner).__name__}.{name}")
            else:
                self._undo.append(undo)
        return missing

    def detach(self) -> None:
        """Give the loops back as they were."""
        while self._undo:
            self._undo.pop()()

    @property
    def batches_that_stepped(self) -> int:
        """The step axis of the trainer's loggers: batches after which the optimizer was due."""
        return int(self._trainer.fit_loop.epoch_loop._batches_that_stepped)

    def _around_fit(self, run: Callable[[], None]) -> Callable[[], None]:
        def timed_run() -> None:
            try:
                run()
            except BaseException:
                self._on_exception()
                raise

        return timed_run

    def _around_setup_data(self, setup_data: Callable[[], None]) -> Callable[[], None]:
        def timed_setup_data() -> None:
            with self._tap.place("setup_data", "loop"):
                setup_data()

        return timed_setup_data

    def _around_epoch(self, run: Callable[[Any], None]) -> Callable[[Any], None]:
        trainer = self._trainer
        begin_epoch, end_epoch = self._clock.begin_epoch, self._clock.end_epoch

        def timed_run(data_fetcher: Any) -> None:
            begin_epoch(trainer.current_epoch, trainer.fit_loop.epoch_loop.total_batch_idx)
            try:
                run(data_fetcher)
            finally:
                end_epoch()
                self._on_epoch_end()

        return timed_run

    def _around_step(self, advance: Callable[[Any], None]) -> Callable[[Any], None]:
        begin_step, cancel_step = self._clock.begin_step, self._clock.cancel_step
        abort_step = self._clock.abort_step

        def timed_advance(data_fetcher: Any) -> None:
            try:
                begin_step()
            except Exception as error:
                self.detach()
                self._on_failure(error)
            try:
                advance(data_fetcher)
            except StopIteration:
                cancel_step()
                raise
            except BaseException:
                abort_step()
                raise

        return timed_advance

    def _around_sigterm(self, broadcast: Callable[[], None]) -> Callable[[], None]:
        def timed_broadcast() -> None:
            with self._tap.place("broadcast_sigterm", "sync"):
                broadcast()

        return timed_broadcast

    def _around_log(self, log: Callable[..., None]) -> Callable[..., None]:
        """``self.log`` in a hook: nearly all of its time (98 % measured) is in the collection of results."""
        place = self._tap.place

        def timed_log(*args: Any, **kwargs: Any) -> None:
            with place("self.log", "logging"):
                log(*args, **kwargs)

        return timed_log

    def _around_evaluation(self, run: Callable[[], Any]) -> Callable[[], Any]:
        trainer, tap = self._trainer, self._tap

        def timed_run() -> Any:
            before = tap.enter_region("sanity" if trainer.sanity_checking else "validation")
            try:
                with tap.place("evaluation loop", "validation"):
                    return run()
            finally:
                tap.enter_region(before)

        return timed_run
