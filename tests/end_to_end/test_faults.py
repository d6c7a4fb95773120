"""Whatever goes wrong, training's result is that of a run without the profiler, and what was measured is kept."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.profilers import PassThroughProfiler, PyTorchProfiler, SimpleProfiler
from planted_runs import Planted, Sleepy, fit, quiet_profiler, trainer_for
from torch.utils.data import DataLoader

from lightning_gpuprof import GpuProfError, GpuProfiler, NvmlConfig, TraceConfig
from lightning_gpuprof.analyze.journal import read_journal
from lightning_gpuprof.pipeline import load_report

pytestmark = pytest.mark.filterwarnings("ignore:You defined a `validation_step`")


def loader(size: int = 40) -> DataLoader[torch.Tensor]:
    return DataLoader(Sleepy(size), batch_size=2)


class Failing(Planted):
    """Raises in a batch of choice."""

    def __init__(self, at_batch: int, error: BaseException) -> None:
        super().__init__()
        self.at_batch = at_batch
        self.error = error

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        if batch_idx == self.at_batch:
            raise self.error
        return super().training_step(batch, batch_idx)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"trace": "yes"}, "trace must be a bool or a TraceConfig, got 'yes'"),
        ({"nvml": 3}, "nvml must be a bool or a NvmlConfig, got 3"),
        ({"log_every_n_steps": 0}, "log_every_n_steps must be at least 1"),
        ({"reports": ["pdf"]}, "reports must hold only terminal, tensorboard, html, json, got 'pdf'"),
        ({"baseline": "/nowhere/at/all"}, "baseline must name an existing run folder"),
        ({"windows": (9, 3)}, "windows must have a stop not before its start"),
        ({"dirpath": 3}, "dirpath must be a path"),
    ],
)
def test_wrong_arguments_are_named_before_training(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(GpuProfError, match=words):
        GpuProfiler(**arguments)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: TraceConfig(active=0), "trace.active must be an integer of at least 1, got 0"),
        (lambda: TraceConfig(warmup=-1), "trace.warmup must be an integer of at least 0, got -1"),
        (lambda: TraceConfig(every_n_steps=5), "trace.every_n_steps must be an integer of at least 6, got 5"),
        (lambda: NvmlConfig(interval_s=0), "nvml.interval_s must be a number of seconds"),
    ],
)
def test_wrong_group_arguments_are_named(make: Any, words: str) -> None:
    with pytest.raises(GpuProfError, match=words):
        make()


@pytest.mark.parametrize("window", [(2, 30), (6, 30), []], ids=["in the window", "in its warm-up", "without"])
def test_an_exception_comes_through_and_what_was_measured_is_there(tmp_path: Path, window: Any) -> None:
    error = ValueError("planted")
    profiler = quiet_profiler(windows=window, reports=["json", "html"])
    trainer = trainer_for(tmp_path, [profiler])
    own = trainer.profiler
    with pytest.raises(ValueError, match="planted") as caught:
        trainer.fit(Failing(5, error), loader())
    assert caught.value is error
    assert trainer.profiler is own
    assert profiler.report is not None
    assert profiler.report.steps.count == 5  # the one that failed is none
    assert profiler.report.run["status"] == "interrupted: ValueError"
    assert any("interrupted" in caveat for caveat in profiler.report.validity.caveats)
    assert profiler.folder is not None
    assert (profiler.folder / "report.html").is_file()
    traces = list(profiler.folder.glob("*.pt.trace.json.gz"))
    assert len(traces) == (1 if window == (2, 30) else 0)
    assert not list(profiler.folder.glob("*.plain.json"))
    # The same profiler and process are good for another fit.
    trainer = trainer_for(tmp_path / "second", [profiler])
    trainer.fit(Planted(), loader())
    assert profiler.report.steps.count == 20


def test_ctrl_c_ends_the_run_as_without_us(tmp_path: Path) -> None:
    profiler = quiet_profiler(windows=(2, 30))
    with pytest.raises(SystemExit) as with_us:
        trainer_for(tmp_path, [profiler]).fit(Failing(5, KeyboardInterrupt()), loader())
    with pytest.raises(SystemExit) as without:
        trainer_for(tmp_path, []).fit(Failing(5, KeyboardInterrupt()), loader())
    assert with_us.value.code == without.value.code
    assert profiler.report is not None
    assert profiler.report.run["status"] == "interrupted: KeyboardInterrupt"
    assert profiler.folder is not None
    assert read_journal(profiler.folder / "rank0.jsonl").footer is not None


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


@pytest.mark.parametrize("options", [{}, {"windows": [(3, 6)]}, {"windows": None, "host": True}])
def test_weights_and_random_state_are_bit_identical(tmp_path: Path, options: dict[str, Any]) -> None:
    without = weights([], tmp_path / "a")
    with_us = weights([quiet_profiler(**options)], tmp_path / "b")
    assert all(torch.equal(a, b) for a, b in zip(without, with_us, strict=True))


def test_a_window_beside_the_users_pytorch_profiler_is_not_opened(tmp_path: Path) -> None:
    own = PyTorchProfiler(dirpath=str(tmp_path / "own"), filename="own")
    profiler = quiet_profiler(windows=(3, 5))
    with pytest.warns(RuntimeWarning, match="PyTorchProfiler is in use"):
        report = fit(tmp_path, loader=loader(), profiler=profiler, before=lambda t: setattr(t, "profiler", own))
    assert report.steps.count == 20
    assert not report.windows
    assert any("PyTorchProfiler" in caveat for caveat in report.validity.caveats)
    assert list((tmp_path / "own").iterdir())


class ProfilesItself(Planted):
    """Starts torch.profiler in a step of choice."""

    at_batch = 0
    events = 0

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        if batch_idx != self.at_batch:
            return super().training_step(batch, batch_idx)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as own:
            loss = super().training_step(batch, batch_idx)
        self.events = len(own.events())
        return loss


@pytest.mark.parametrize("at_batch", [5, 9, 11, 14], ids=["before", "in the warm-up", "in the window", "after"])
def test_code_that_starts_the_torch_profiler_gets_it_whatever_our_window_does(tmp_path: Path, at_batch: int) -> None:
    """In a process of its own: two sessions at once have crashed it."""
    script = textwrap.dedent(
        f"""
        import sys, warnings
        warnings.simplefilter("ignore")
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from test_faults import *
        model = ProfilesItself()
        model.at_batch = {at_batch}
        profiler = quiet_profiler(windows=[(10, 12), 18])
        trainer_for({str(tmp_path)!r}, [profiler]).fit(model, loader(60))
        print("EVENTS", model.events, profiler.report.steps.count, [w.problem for w in profiler.report.windows])
        print("CAVEATS", profiler.report.validity.caveats)
        """
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    _, events, steps, *_ = next(x for x in done.stdout.splitlines() if x.startswith("EVENTS")).split()
    assert int(events) > 10
    assert int(steps) == 30
    assert "starts torch.profiler itself" in done.stdout


def test_warnings_that_are_errors_do_not_reach_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    profiler = quiet_profiler(dirpath=str(tmp_path / "file" / "below"))
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        report = fit(tmp_path, loader=loader(), profiler=profiler)
    assert report.steps.count == 20
    assert "cannot be written" in capsys.readouterr().err


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


class RaisesInOnException(pl.Callback):
    """Keeps the callbacks after it from hearing of the exception."""

    def on_exception(self, *args: Any) -> None:
        raise RuntimeError("worse")


def test_a_callback_that_fails_before_ours_hears_of_it_does_not_leave_us_attached(tmp_path: Path) -> None:
    profiler = quiet_profiler()
    trainer = trainer_for(tmp_path, [RaisesInOnException(), profiler])
    own = trainer.profiler
    with pytest.raises(RuntimeError, match="worse"):
        trainer.fit(Failing(5, ValueError("planted")), loader())
    assert trainer.profiler is own
    assert "advance" not in vars(trainer.fit_loop.epoch_loop)
    trainer_for(tmp_path / "next", [profiler]).fit(Planted(), loader())
    assert profiler.report is not None
    assert profiler.report.steps.count == 20


def test_the_users_own_profiler_sees_what_it_sees_without_us(tmp_path: Path) -> None:
    seen = []
    for callbacks in ([], [quiet_profiler()]):
        own = SimpleProfiler()
        trainer = trainer_for(tmp_path, list(callbacks), logger=False)
        trainer.profiler = own  # type: ignore[attr-defined]
        trainer.fit(Planted(), loader())
        seen.append({name: len(times) for name, times in own.recorded_durations.items() if "GpuProfiler" not in name})
    assert seen[0] == seen[1]


class LooksAtProfiler(pl.Callback):
    """Asks what user code may ask."""

    def on_train_batch_start(self, trainer: Any, *args: Any) -> None:
        self.is_pass_through = isinstance(trainer.profiler, PassThroughProfiler)
        self.local_rank = trainer.profiler.local_rank
        with trainer.profiler.profile("my region"):
            pass


def test_user_code_that_uses_the_profiler_goes_on_working(tmp_path: Path) -> None:
    callback = LooksAtProfiler()
    fit(tmp_path, callbacks=[callback])
    assert callback.is_pass_through
    assert callback.local_rank == 0


def test_a_folder_in_the_way_moves_the_run_and_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    profiler = quiet_profiler(dirpath=str(tmp_path / "file" / "below"))
    with pytest.warns(RuntimeWarning, match="cannot be written") as told:
        report = fit(tmp_path, profiler=profiler)
    assert len([w for w in told if "gpuprof" in str(w.message)]) == 1
    assert report.steps.count == 20
    assert any("cannot be written" in caveat for caveat in report.validity.caveats)


def test_a_full_disk_in_mid_run_does_not_stop_training(tmp_path: Path) -> None:
    """A real limit on file size, in a process of its own."""
    script = textwrap.dedent(
        f"""
        import resource, sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from planted_runs import *
        resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))
        profiler = GpuProfiler(nvml=False, windows=[(1500, 1501)], dirpath={str(tmp_path / "out")!r})
        trainer_for({str(tmp_path)!r}, [profiler], max_epochs=1).fit(Planted(), DataLoader(Sleepy(4000), batch_size=1))
        print("TRAINED", profiler.report.steps.count, "|".join(profiler.report.validity.caveats))
        """
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    trained = next(line for line in done.stdout.splitlines() if line.startswith("TRAINED"))
    assert "journal: writing failed" in trained
    assert done.stderr.count("gpuprof: journal") == 1


def test_two_profilers_in_one_trainer_measure_once(tmp_path: Path) -> None:
    first, second = quiet_profiler(), quiet_profiler()
    trainer = trainer_for(tmp_path, [first, second])
    trainer.fit(Planted(), loader())
    assert first.report is not None
    assert second.report is None


def test_a_profiler_that_is_not_enabled_does_nothing(tmp_path: Path) -> None:
    profiler = GpuProfiler(enabled=False)
    trainer_for(tmp_path, [profiler]).fit(Planted(), loader())
    assert profiler.report is None
    assert not list(tmp_path.rglob("gpuprof"))


def test_without_a_logger_and_without_nvml_there_is_one_line_and_no_zero(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profiler = GpuProfiler(windows=[], reports=["json", "terminal"])
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        report = fit(tmp_path, profiler=profiler)
    assert report.devices == ()
    assert profiler.folder is not None
    notices = read_journal(profiler.folder / "rank0.jsonl").notices
    assert [n.part for n in notices] == ["nvml"]
    assert "not measured" in notices[0].message
    printed = capsys.readouterr().out
    assert printed.count("GPUs: not measured") == 1


def test_a_learning_rate_finder_before_the_training_is_set_up_and_no_step(tmp_path: Path) -> None:
    class Tunable(Planted):
        lr = 1e-3

    profiler = quiet_profiler(windows=(3, 4))
    finder = pl.callbacks.LearningRateFinder(num_training_steps=12)
    report = fit(tmp_path, Tunable(), loader(), profiler=profiler, callbacks=[finder])
    assert report.steps.count == 20
    assert (report.windows[0].start_step, report.windows[0].problem) == (3, "")
    assert profiler.folder is not None
    assert list(read_journal(profiler.folder / "rank0.jsonl").steps.batch) == list(range(20))


def test_a_tuner_of_its_own_leaves_the_run_that_follows_alone(tmp_path: Path) -> None:
    class Tunable(Planted):
        lr = 1e-3

    profiler = quiet_profiler(reports=["terminal"])
    trainer = trainer_for(tmp_path, [profiler])
    model = Tunable()
    pl.tuner.Tuner(trainer).lr_find(model, loader(), num_training=10)
    trainer.fit(model, loader())
    assert profiler.report is not None
    assert profiler.report.steps.count == 20


def test_two_trainers_may_share_a_profiler(tmp_path: Path) -> None:
    profiler = quiet_profiler()
    for name in ("a", "b"):
        trainer_for(tmp_path / name, [profiler]).fit(Planted(), loader())
        assert profiler.report is not None
        assert profiler.report.steps.count == 20
    assert (tmp_path / "a" / "gpuprof").is_dir()
    assert (tmp_path / "b" / "gpuprof").is_dir()


def test_a_logger_that_fails_on_our_numbers_costs_only_the_scalars(tmp_path: Path) -> None:
    class Picky(pl.loggers.CSVLogger):
        def log_metrics(self, metrics: Any, step: int | None = None) -> None:
            if any(name.startswith("gpuprof/") for name in metrics):
                raise RuntimeError("no such key")
            super().log_metrics(metrics, step)

    with pytest.warns(RuntimeWarning, match="scalars: switched off after RuntimeError: no such key"):
        report = fit(tmp_path, loader=loader(), logger=Picky(tmp_path), log_every_n_steps=5)
    assert report.steps.count == 20


def test_a_killed_run_leaves_a_journal_that_can_be_reported(tmp_path: Path) -> None:
    script = textwrap.dedent(
        f"""
        import os, signal, sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from planted_runs import *
        class Kill(pl.Callback):
            def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
                if batch_idx == 300:
                    os.kill(os.getpid(), signal.SIGKILL)
        model = Planted({{"training_step": 0.005}})
        trainer_for({str(tmp_path)!r}, [GpuProfiler(nvml=False), Kill()]).fit(model, DataLoader(Sleepy(4000)))
        """
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == -9
    report = load_report(tmp_path / "gpuprof")
    assert 100 < report.steps.count <= 300
    assert report.run["status"] == "unfinished"
    assert report.verdict.kind != "not-enough-data"
