"""The run with the profiler is the run without it: results, loops, copies."""

import copy
import pickle
import sys
import time
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.profilers import PassThroughProfiler
from planted_runs import Planted, Sleepy, fit, loader, quiet_profiler, trainer_for
from torch.utils.data import DataLoader

import lightning_gpuprof
from lightning_gpuprof import GpuProfiler

pytestmark = pytest.mark.filterwarnings("ignore:You defined a `validation_step`")


def test_the_trainer_is_left_as_it_was_found(tmp_path: Path) -> None:
    profiler = quiet_profiler()
    trainer = trainer_for(tmp_path, [profiler])
    own, loops = trainer.profiler, [trainer.fit_loop, trainer.fit_loop.epoch_loop, trainer.fit_loop.epoch_loop.val_loop]
    before = [{name for name, value in vars(loop).items() if callable(value)} for loop in loops]
    trainer.fit(Planted(), loader())
    assert trainer.profiler is own
    assert [{name for name, value in vars(loop).items() if callable(value)} for loop in loops] == before


def weights(callbacks: list[pl.Callback], folder: Path) -> list[torch.Tensor]:
    pl.seed_everything(7)
    model = Planted()
    model.configure_optimizers = lambda: torch.optim.Adam(model.parameters(), lr=0.01)  # type: ignore[method-assign]
    trainer_for(folder, callbacks, max_epochs=2).fit(model, DataLoader(Sleepy(60), batch_size=3, shuffle=True))
    return [p.detach().clone() for p in model.parameters()] + [torch.rand(3)]


@pytest.fixture(scope="module")
def without(tmp_path_factory: pytest.TempPathFactory) -> list[torch.Tensor]:
    return weights([], tmp_path_factory.mktemp("without"))


@pytest.mark.parametrize("options", [{}, {"windows": [(3, 6)]}, {"windows": None, "host": True}])
def test_weights_and_random_state_are_bit_identical(
    tmp_path: Path, without: list[torch.Tensor], options: dict[str, Any]
) -> None:
    with_us = weights([quiet_profiler(**options)], tmp_path)
    assert all(torch.equal(a, b) for a, b in zip(without, with_us, strict=True))


class CopiesEverything(pl.Callback):
    """Does with the trainer what averaging callbacks and launchers do."""

    def on_train_batch_end(self, trainer: Any, *args: Any) -> None:
        if trainer.global_step == 5:
            self.copied = copy.deepcopy(trainer)
            pickle.loads(pickle.dumps(trainer.profiler))


def test_a_trainer_in_its_run_can_be_copied_and_the_copy_is_free_of_us(tmp_path: Path) -> None:
    callback = CopiesEverything()
    report = fit(tmp_path, loader=loader(), callbacks=[callback])
    assert report.steps.count == 20
    copied = callback.copied
    assert type(copied.profiler) is PassThroughProfiler
    assert copied.fit_loop.epoch_loop.advance.__self__ is copied.fit_loop.epoch_loop


def test_what_others_put_on_the_loops_is_put_back(tmp_path: Path) -> None:
    seen = []

    def before(trainer: Any) -> None:
        loop = trainer.fit_loop.epoch_loop
        advance = loop.advance
        loop.advance = lambda fetcher: (seen.append(1), advance(fetcher))
        loop.theirs = loop.advance
        kept.append(loop)

    kept: list[Any] = []
    fit(tmp_path, loader=loader(), before=before)
    assert kept[0].advance is kept[0].theirs
    assert len(seen) == 20


def test_a_profiler_that_is_not_enabled_does_nothing(tmp_path: Path) -> None:
    profiler = GpuProfiler(enabled=False)
    trainer_for(tmp_path, [profiler]).fit(Planted(), loader())
    assert profiler.report is None
    assert not list(tmp_path.rglob("gpuprof"))


def test_a_clock_that_a_program_puts_in_the_place_of_perf_counter_ticks_for_the_program_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def ticking() -> float:
        asked.append(sys._getframe(1).f_code.co_filename)
        return float(len(asked))

    profiler = quiet_profiler(host=True)
    with monkeypatch.context() as patch:
        patch.setattr(time, "perf_counter", ticking)
        trainer_for(tmp_path, [profiler], max_steps=2).fit(Planted(), loader())
    assert profiler.report is not None
    package = Path(lightning_gpuprof.__file__).parent
    assert [file for file in asked if Path(file).is_relative_to(package)] == []


class Own(GpuProfiler):
    """Does something of its own as well."""

    def on_train_batch_end(self, *args: Any, **kwargs: Any) -> None:
        super().on_train_batch_end(*args, **kwargs)
        self.ended = getattr(self, "ended", 0) + 1


class Group(pl.Callback):
    """Hands on what it is told to callbacks that Lightning does not know."""

    def __init__(self, *held: pl.Callback) -> None:
        self.held = held

    def setup(self, *args: Any, **kwargs: Any) -> None:
        for one in self.held:
            one.setup(*args, **kwargs)

    def on_train_batch_start(self, *args: Any, **kwargs: Any) -> None:
        for one in self.held:
            one.on_train_batch_start(*args, **kwargs)

    def teardown(self, *args: Any, **kwargs: Any) -> None:
        for one in self.held:
            one.teardown(*args, **kwargs)


def test_a_subclass_may_call_our_hooks_and_so_may_a_callback_that_holds_us(tmp_path: Path) -> None:
    own, held = Own(reports=["json"]), GpuProfiler(reports=["json"])
    trainer_for(tmp_path / "own", [own]).fit(Planted(), loader())
    assert own.ended == own.report.steps.count == 20
    trainer_for(tmp_path / "held", [Group(held)]).fit(Planted(), loader())
    own.on_train_batch_start(None, None, None, 0)
