"""The adapter to Lightning's loops: what it replaces it gives back, and its own failure is not training's."""

import warnings
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.demos.boring_classes import BoringModel
from lightning.pytorch.loggers import Logger
from quiet_trainer import trainer_in

from lightning_gpuprof.capture.lightning_loops import LoopEdges, untimed
from lightning_gpuprof.capture.profiler_tap import ProfilerTap
from lightning_gpuprof.capture.step_clock import ClosedStep, StepClock


def short_trainer(folder: Path) -> pl.Trainer:
    return trainer_in(folder, limit_train_batches=5, limit_val_batches=1)


def tap_on(inner: Any, clock: StepClock, on_failure: Any, overridden: Any = frozenset()) -> ProfilerTap:
    return ProfilerTap(
        inner,
        clock,
        forward=False,
        manual=False,
        overridden=overridden,
        does_nothing=lambda key, hook: False,
        on_failure=on_failure,
        on_end=lambda error: None,
    )


def edges_of(trainer: Any, clock: StepClock, tap: ProfilerTap, on_failure: Any) -> LoopEdges:
    return LoopEdges(
        trainer,
        "fit",
        clock,
        tap,
        on_run=lambda: None,
        on_start=lambda: None,
        on_validation=lambda: None,
        on_epoch_end=lambda: None,
        on_exception=lambda error: None,
        on_failure=on_failure,
    )


def attached(trainer: Any, clock: StepClock, failures: list[Exception]) -> LoopEdges:
    tap = tap_on(trainer.profiler, clock, failures.append)
    trainer.profiler = tap
    edges = edges_of(trainer, clock, tap, failures.append)
    assert edges.attach() == []
    return edges


def weights(model: torch.nn.Module) -> list[torch.Tensor]:
    return [p.detach().clone() for p in model.parameters()]


def trained(folder: Path, prepare: Any) -> list[torch.Tensor]:
    pl.seed_everything(3)
    model = BoringModel()
    trainer = short_trainer(folder)
    prepare(trainer)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer.fit(model)
    return weights(model)


def test_an_edge_that_fails_is_reported_once_and_training_goes_on_bit_by_bit(tmp_path: Path) -> None:
    failures: list[Exception] = []
    loops: list[Any] = []

    def prepare(trainer: Any) -> None:
        clock = StepClock()

        def broken() -> None:
            raise IndexError("planted")

        clock.begin_step = broken
        attached(trainer, clock, failures)
        loops.append(trainer.fit_loop.epoch_loop)

    with_us = trained(tmp_path / "a", prepare)
    without = trained(tmp_path / "b", lambda trainer: None)
    assert [str(error) for error in failures] == ["planted"]
    assert "advance" not in vars(loops[0])
    assert all(torch.equal(a, b) for a, b in zip(with_us, without, strict=True))


def test_an_action_that_cannot_be_classified_is_not_timed() -> None:
    failures: list[Exception] = []
    clock = StepClock()
    # Without the set of overridden hooks, classifying a hook of the batch fails.
    tap = tap_on(pl.profilers.PassThroughProfiler(), clock, failures.append, overridden=None)
    with tap.profile("[LightningModule]X.on_train_batch_start"):
        pass
    with tap.profile("[LightningModule]X.on_train_batch_start"):
        pass
    assert len(failures) == 1


class OfSeveralRanks:
    """A trainer that says so; of the rest it is the other one."""

    world_size = 2

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._trainer, name)


def without(trainer: Any, name: str, failures: list[Exception]) -> list[str]:
    """What is said where the loop of epochs has no such method."""
    clock = StepClock()
    tap = tap_on(trainer.profiler, clock, failures.append)
    trainer.fit_loop.epoch_loop.__dict__[name] = None
    edges = edges_of(trainer, clock, tap, failures.append)
    said = edges.attach()
    edges.detach()
    assert "run" not in vars(trainer.fit_loop.epoch_loop)
    return said


def test_an_edge_that_lightning_does_not_have_is_told_with_what_is_lost(tmp_path: Path) -> None:
    failures: list[Exception] = []
    (said,) = without(OfSeveralRanks(short_trainer(tmp_path)), "_broadcast_sigterm_tensor", failures)
    assert "no fit_loop.epoch_loop._broadcast_sigterm_tensor: time in which ranks agree" in said
    assert failures == []


def test_one_rank_agrees_with_nobody(tmp_path: Path) -> None:
    assert without(short_trainer(tmp_path), "_broadcast_sigterm_tensor", []) == []


def test_without_the_edge_of_steps_nothing_is_measured_in_the_loops(tmp_path: Path) -> None:
    failures: list[Exception] = []
    assert without(short_trainer(tmp_path), "advance", failures) == []
    assert [str(failure) for failure in failures] == [
        "this version of Lightning has no fit_loop.epoch_loop.advance: steps cannot be measured"
    ]


class Written(Logger):
    """Takes its time in ``log_metrics``, on the clock that it is given."""

    name = "written"
    version = 0

    def __init__(self, times: list[int]) -> None:
        super().__init__()
        self.times = times
        self.steps: list[int] = []

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self.times[0] += 7
        self.steps.append(step or 0)

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """Nothing."""


def test_each_logger_s_writes_within_logging_are_timed_and_no_others() -> None:
    times = [0]
    first, second = Written(times), Written(times)
    trainer = trainer_in(None, logger=[first, second])
    failures: list[Exception] = []
    clock = StepClock(now=lambda: times[0], cpu_now=lambda: 0)
    edges = attached(trainer, clock, failures)
    logging, callback = (clock.slot(phase, phase) for phase in ("logging", "callbacks"))
    clock.begin_training(-1, 0)
    clock.begin_step()
    for slot in (logging, callback):
        with clock.context(slot):
            first.log_metrics({"a": 1.0}, 1)
            second.log_metrics(metrics={"a": 1.0}, step=2)
            second.save()
            untimed(first.log_metrics)({"a": 1.0}, 3)
    clock.begin_step()
    (step,) = (one for one in clock.closed if isinstance(one, ClosedStep))
    charged = {slot.action: step.charged[slot.id] for slot in clock.slots if step.charged[slot.id]}
    assert charged == {"logging": 7, "callbacks": 21, "Written.log_metrics": 7, "Written #2.log_metrics": 7}
    assert (first.steps, second.steps) == ([1, 3, 1, 3], [2, 2])
    edges.detach()
    assert not {"log_metrics", "save"} & (vars(first).keys() | vars(second).keys())
    assert failures == []


def test_a_logger_that_takes_no_attributes_is_left_as_it_is() -> None:
    class Closed(Written):
        def __setattr__(self, name: str, value: object) -> None:
            if name in ("log_metrics", "save"):
                raise AttributeError(name)
            super().__setattr__(name, value)

    failures: list[Exception] = []
    edges = attached(trainer_in(None, logger=[Closed([0])]), StepClock(), failures)
    edges.detach()
    assert failures == []
