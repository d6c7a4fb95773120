"""Every way out of a fit ends the measuring: the trainer as it was found, nothing left open, a footer, a report."""

import gc
import os
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import lightning.pytorch as pl
import pytest
from lightning.pytorch.callbacks import BatchSizeFinder, LearningRateFinder
from lightning.pytorch.strategies import SingleDeviceStrategy
from lightning.pytorch.tuner import Tuner
from planted_runs import Planted, Sleepy, quiet_profiler, trainer_for
from torch.utils.data import DataLoader

from lightning_gpuprof.analyze.journal import read_journal
from lightning_gpuprof.model.report import Report

pytestmark = [
    pytest.mark.usefixtures("ctrl_c_as_it_was"),
    pytest.mark.filterwarnings("ignore:You defined a `validation_step`"),
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec"),
]

Fit = Callable[[pl.Trainer, pl.LightningModule], object]


def fit(trainer: pl.Trainer, model: pl.LightningModule) -> None:
    trainer.fit(model)


def lr_find(trainer: pl.Trainer, model: pl.LightningModule) -> None:
    Tuner(trainer).lr_find(model, num_training=9, early_stop_threshold=None)


def scale_batch_size(trainer: pl.Trainer, model: pl.LightningModule) -> None:
    Tuner(trainer).scale_batch_size(model, steps_per_trial=5)


class Breaking(Planted):
    """Fails in a place of choice, in training after so many steps."""

    def __init__(self, error: BaseException, place: str, after: int = 2) -> None:
        super().__init__()
        self.error, self.place, self.steps_left = error, place, after
        self.lr, self.batch_size = 0.1, 2

    def at(self, place: str) -> None:
        if place == self.place:
            raise self.error

    def train_dataloader(self) -> Any:
        return DataLoader(Sleepy(64), batch_size=self.batch_size)

    val_dataloader = train_dataloader

    def prepare_data(self) -> None:
        self.at("prepare_data")

    def configure_optimizers(self) -> Any:
        self.at("configure_optimizers")
        return super().configure_optimizers()

    def on_fit_start(self) -> None:
        self.at("on_fit_start")

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.at("validation_step")

    def on_train_end(self) -> None:
        self.at("on_train_end")

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        self.steps_left -= 1
        if self.steps_left < 0:
            self.at("training_step")
        return super().training_step(batch, batch_idx)


class BreakingCallback(pl.Callback):
    def setup(self, trainer: pl.Trainer, pl_module: Any, stage: str) -> None:
        pl_module.at("a callback's setup")

    def teardown(self, trainer: pl.Trainer, pl_module: Any, stage: str) -> None:
        pl_module.at("a callback's teardown")


class BreakingStrategy(SingleDeviceStrategy):
    def setup(self, trainer: pl.Trainer) -> None:
        self.lightning_module.at("strategy.setup")  # type: ignore[union-attr, operator]
        super().setup(trainer)


class RaisesInOnException(pl.Callback):
    """Lightning calls nothing any more then: no callback after it, no teardown."""

    def on_exception(self, *args: Any) -> None:
        raise RuntimeError("worse")


class Left(NamedTuple):
    raised: BaseException | None
    alive: list[str]
    """What outlives its last name."""
    attached: list[str]
    """Attributes of the trainer that it did not have before."""
    threads: list[str]
    descriptors: int
    """More than before."""
    report: Report | None


def left_by(
    folder: Path, error: BaseException, place: str, run: Fit = fit, callbacks: tuple[pl.Callback, ...] = ()
) -> Left:
    profiler = quiet_profiler()
    descriptors = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    attached, refs, raised = _run(folder, error, place, run, [profiler, *callbacks])
    report = profiler.report
    del profiler, callbacks
    gc.collect()
    alive = [name for name, ref in refs.items() if ref() is not None]
    threads = [thread.name for thread in threading.enumerate() if thread.name.startswith("gpuprof")]
    return Left(raised, alive, attached, threads, len(os.listdir("/proc/self/fd")) - descriptors, report)  # noqa: PTH208


def _run(
    folder: Path, error: BaseException, place: str, run: Fit, callbacks: list[Any]
) -> tuple[list[str], dict[str, Any], BaseException | None]:
    """In a frame of its own: it holds the trainer and the model."""
    model = Breaking(error, place)
    strategy = BreakingStrategy(device="cpu")
    trainer = trainer_for(
        folder, [*callbacks, BreakingCallback()], strategy=strategy, num_sanity_val_steps=1, limit_val_batches=1
    )
    owners = {"trainer": trainer, "fit loop": trainer.fit_loop, "epoch loop": trainer.fit_loop.epoch_loop}
    before = {name: {*vars(owner)} for name, owner in owners.items()}
    own = trainer.profiler
    raised: BaseException | None = None
    try:
        run(trainer, model)
    except BaseException as caught:
        raised = caught.with_traceback(None)
        for chained in (raised.__context__, raised.__cause__):
            if chained is not None:
                chained.with_traceback(None)
    attached = [
        f"{name}.{key}"
        for name, owner in owners.items()
        for key, value in vars(owner).items()
        if key not in before[name] and type(value).__module__.startswith("lightning_gpuprof")
    ]
    attached += [] if trainer.profiler is own else ["trainer.profiler"]
    error.with_traceback(None)
    return attached, {"trainer": weakref.ref(trainer), "model": weakref.ref(model)}, raised


SEARCHES: dict[str, tuple[Fit, Callable[[], tuple[pl.Callback, ...]]]] = {
    "no search": (fit, tuple),
    "Tuner.lr_find": (lr_find, tuple),
    "LearningRateFinder": (fit, lambda: (LearningRateFinder(num_training_steps=9, early_stop_threshold=None),)),
    "Tuner.scale_batch_size": (scale_batch_size, tuple),
    "BatchSizeFinder": (fit, lambda: (BatchSizeFinder(steps_per_trial=5),)),
}
PLACES = (
    *("a callback's setup", "configure_optimizers", "strategy.setup", "on_fit_start", "validation_step"),
    *("on_train_end", "a callback's teardown"),
)


@pytest.mark.parametrize(
    ("place", "search", "kind"),
    [
        *(("training_step", search, ValueError) for search in SEARCHES),
        *(("training_step", search, KeyboardInterrupt) for search in ("no search", "Tuner.lr_find")),
        *((place, "no search", ValueError) for place in PLACES),
        *((place, "no search", KeyboardInterrupt) for place in ("strategy.setup", "a callback's teardown")),
    ],
)
def test_an_error_ends_the_measuring_wherever_it_comes_from(
    tmp_path: Path, place: str, search: str, kind: type[BaseException]
) -> None:
    run, callbacks = SEARCHES[search]
    left = left_by(tmp_path, kind("planted"), place, run, callbacks())
    assert isinstance(left.raised, SystemExit if kind is KeyboardInterrupt else ValueError)
    assert left[1:5] == ([], [], [], 0)
    footer = read_journal(tmp_path / "gpuprof" / "rank0.jsonl").footer
    assert footer.status == f"interrupted: {kind.__name__}"
    assert left.report.run["status"] == footer.status


def test_an_error_before_anything_is_measured_leaves_nothing(tmp_path: Path) -> None:
    left = left_by(tmp_path, ValueError("planted"), "prepare_data")
    assert left[1:5] == ([], [], [], 0)
    assert left.report is None
    assert not (tmp_path / "gpuprof").exists()


@pytest.mark.parametrize("place", ["a callback's setup", "training_step"])
def test_a_callback_that_fails_before_ours_hears_of_the_error_does_not_keep_it_open(tmp_path: Path, place: str) -> None:
    """The first of the callbacks: ours is never told of the exception, and the trainer is never torn down."""

    def first(trainer: pl.Trainer, model: pl.LightningModule) -> None:
        trainer.callbacks.insert(0, RaisesInOnException())
        trainer.fit(model)

    left = left_by(tmp_path, ValueError("planted"), place, first)
    assert str(left.raised) == "worse"
    assert left[2:5] == ([], [], 0)  # what is alive, Lightning's own handlers of signals hold
    assert left.report.run["status"] == "interrupted: ValueError"


def test_training_is_measured_after_a_search_for_the_batch_size_that_met_out_of_memory(tmp_path: Path) -> None:
    class Full(Breaking):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            if len(batch) > 4:
                raise RuntimeError("CUDA out of memory. Tried to allocate 20.00 MiB")
            return Planted.training_step(self, batch, batch_idx)

    profiler, model = quiet_profiler(), Full(ValueError(), "nowhere")
    trainer = trainer_for(tmp_path, [BatchSizeFinder(steps_per_trial=2), profiler])
    trainer.fit(model)
    assert model.batch_size == 4
    assert profiler.report.run["status"] == "finished"
    assert profiler.report.steps.count == trainer.global_step == 16
