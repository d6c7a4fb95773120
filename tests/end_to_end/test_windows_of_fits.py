"""Windows of real fits: on slow steps, on request from outside, with caps, and where they cannot be reached."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from planted_runs import Naps, Planted, Sleepy, fit, quiet_profiler, trainer_for
from torch.utils.data import DataLoader

from lightning_gpuprof import TraceConfig
from lightning_gpuprof.analyze.journal import read_journal
from lightning_gpuprof.cli.main import main
from lightning_gpuprof.errors import ArgumentError
from lightning_gpuprof.model.journal import DISTURBED, PROFILED
from lightning_gpuprof.pipeline import load_report

PLUGIN_WORKER = re.compile(r"^(.*?)(\.\d+)?\.pt\.trace\.json(?:\.gz)?$")
"""How TensorBoard's profiler tab takes the worker from a file's name (torch_tb_profiler 0.4.3, consts.py)."""


def loader(items: int = 40) -> DataLoader[torch.Tensor]:
    return DataLoader(Sleepy(items), batch_size=1)


class TurnsSlow(Sleepy):
    """Items of 4 ms, and of 60 ms from one on."""

    def __getitem__(self, index: int) -> torch.Tensor:
        Naps.take(0.06 if index >= 100 else 0.004)
        return super().__getitem__(index)


def test_a_slowdown_that_goes_on_is_traced(tmp_path: Path) -> None:
    profiler = quiet_profiler(trace=TraceConfig(on_slow_step=True))
    report = fit(tmp_path, loader=DataLoader(TurnsSlow(150), batch_size=1), profiler=profiler)
    assert len(report.windows) == 1
    window = report.windows[0]
    assert re.fullmatch(r"slow step: period \d+(\.\d+)? ms against \d+(\.\d+)? ms", window.reason)
    assert window.problem == ""
    assert 102 < window.start_step < 148
    assert window.stop_step == window.start_step + 2
    assert profiler.folder is not None
    assert (profiler.folder / window.file).is_file()
    assert window.events > 10
    assert window.inflation_ratio is not None
    assert window.inflation_ratio < 3  # not held against the fast steps, which took a tenth


def test_a_run_that_stays_as_it_is_gets_no_window_for_slow_steps(tmp_path: Path) -> None:
    class Uneven(Planted):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            Naps.take(0.04 if batch_idx % 10 == 0 else 0.004)
            return super().training_step(batch, batch_idx)

    profiler = quiet_profiler(trace=TraceConfig(on_slow_step=True))
    report = fit(
        tmp_path,
        Uneven({"validation_step": 0.05}),
        loader(150),
        profiler=profiler,
        val_loader=loader(2),
        limit_val_batches=2,
        val_check_interval=30,
    )
    assert report.windows == ()


@pytest.mark.parametrize(("steps", "said"), [(30, 1), (400, 0)])
def test_a_run_too_short_to_tell_slow_steps_says_so_in_its_report(tmp_path: Path, steps: int, said: int) -> None:
    profiler = quiet_profiler(trace=TraceConfig(on_slow_step=True))
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "gpuprof", RuntimeWarning)
        report = fit(tmp_path, loader=loader(steps), profiler=profiler)
    told = [text for text in report.validity.caveats if "slow" in text]
    assert told == said * ["trace.on_slow_step: too few ordinary steps to tell slow ones"]


WAITS = """
    import os, signal, sys
    sys.path.insert(0, {here!r})
    from test_windows_of_fits import *

    class Waits(pl.Callback):
        \"\"\"Says when training goes on, and goes on until a window was recorded.\"\"\"

        def on_train_batch_end(self, trainer, *args):
            if trainer.global_step == 5:
                print("RUNNING", os.getpid(), flush=True)
            seen = list(Path({folder!r}).rglob("*.plain.json")) + list(Path({folder!r}).rglob("*.trace.json.gz"))
            trainer.should_stop = bool(seen) or trainer.global_step > 4000

    if __name__ == "__main__":
        profiler = quiet_profiler()
        trainer = trainer_for({folder!r}, [profiler, Waits()], max_epochs=-1, {trainer})
        trainer.fit(Planted({{"training_step": 0.01}}), {loaders})
        print("REASONS", [w.reason for w in profiler.report.windows], [w.problem for w in profiler.report.windows])
        print("HANDLER", signal.getsignal(signal.SIGUSR2))
"""


def start(
    tmp_path: Path, *, script: str = WAITS, trainer: str = "", loaders: str = "loader(5000)"
) -> subprocess.Popen[str]:
    """A fit in a process group of its own, which ends when it has recorded a window."""
    file = tmp_path / "script.py"
    here = str(Path(__file__).parent)
    file.write_text(textwrap.dedent(script.format(here=here, folder=str(tmp_path), trainer=trainer, loaders=loaders)))
    return subprocess.Popen(
        [sys.executable, str(file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def until_running(process: subprocess.Popen[str]) -> int:
    """Wait until it trains; gives its process id."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("RUNNING"):
            return int(line.split()[1])
    raise AssertionError(process.stderr.read() if process.stderr else "")


def ended(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err[-3000:]
    return out


def test_gpuprof_trigger_opens_a_window_in_a_run_that_goes_on(tmp_path: Path) -> None:
    process = start(tmp_path)
    until_running(process)
    assert main(["trigger", str(tmp_path)]) == 0
    out = ended(process)
    assert "REASONS ['requested by file'] ['']" in out
    assert main(["trigger", str(tmp_path)]) == 2  # it has ended
    assert len(list(tmp_path.rglob("rank0.*.pt.trace.json.gz"))) == 1


def test_a_signal_to_the_whole_group_opens_a_window_and_spares_the_workers(tmp_path: Path) -> None:
    """Workers of both loaders, also those that the sanity check leaves running."""
    workers = "DataLoader(Sleepy(5000), num_workers=1, persistent_workers=True)"
    process = start(
        tmp_path,
        trainer="num_sanity_val_steps=1, limit_val_batches=1, reload_dataloaders_every_n_epochs=0",
        loaders=f"{workers}, {workers}",
    )
    until_running(process)
    os.killpg(process.pid, signal.SIGUSR2)
    out = ended(process)
    assert "REASONS ['requested by SIGUSR2'] ['']" in out
    assert f"HANDLER {signal.SIG_DFL}" in out


@pytest.fixture
def own_handler() -> Iterator[list[int]]:
    """A handler as a training script may have one."""
    heard: list[int] = []
    before = signal.signal(signal.SIGUSR2, lambda number, frame: heard.append(number))
    yield heard
    signal.signal(signal.SIGUSR2, before)


class Signals(pl.Callback):
    """Sends the signal to its own process in a step, and looks at the handler."""

    seen: object = None

    def on_train_batch_end(self, trainer: Any, *args: Any) -> None:
        if trainer.global_step == 5:
            self.seen = signal.getsignal(signal.SIGUSR2)
            os.kill(os.getpid(), signal.SIGUSR2)


def test_a_handler_of_the_users_own_is_untouched(tmp_path: Path, own_handler: list[int]) -> None:
    own = signal.getsignal(signal.SIGUSR2)
    callback = Signals()
    profiler = quiet_profiler()
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        report = fit(tmp_path, loader=loader(), profiler=profiler, callbacks=[callback])
    assert callback.seen is own
    assert signal.getsignal(signal.SIGUSR2) is own
    assert own_handler == [signal.SIGUSR2]
    assert report.windows == ()
    assert profiler.folder is not None
    told = [n.message for n in read_journal(profiler.folder / "rank0.jsonl").notices if "SIGUSR2" in n.message]
    assert len(told) == 1


def test_the_signal_is_answered_at_once_and_given_back(tmp_path: Path) -> None:
    callback = Signals()
    report = fit(tmp_path, loader=loader(), callbacks=[callback])
    assert callable(callback.seen)
    assert signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL
    assert [(w.start_step, w.stop_step, w.reason, w.problem) for w in report.windows] == [
        (7, 9, "requested by SIGUSR2", "")
    ]


class SignalsLate(pl.Callback):
    """Sends the signal where training is over already and others still work."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    def send(self, hook: str) -> None:
        if signal.getsignal(signal.SIGUSR2) is not signal.SIG_DFL:  # which would be the end of the tests
            os.kill(os.getpid(), signal.SIGUSR2)
            self.sent.append(hook)

    def on_train_end(self, *args: Any) -> None:
        self.send("on_train_end")

    def on_fit_end(self, *args: Any) -> None:
        self.send("on_fit_end")

    def teardown(self, *args: Any, **kwargs: Any) -> None:
        self.send("teardown")


def test_a_signal_after_the_last_step_does_not_end_the_process(tmp_path: Path) -> None:
    late = SignalsLate()
    report = fit(tmp_path, loader=loader(4), callbacks=[late])
    assert late.sent == ["on_train_end", "on_fit_end", "teardown"]
    assert report.windows == ()
    assert signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL


def test_the_signal_is_given_back_when_training_raises(tmp_path: Path) -> None:
    class Raises(Planted):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            if batch_idx == 3:
                raise ValueError("planted")
            return super().training_step(batch, batch_idx)

    with pytest.raises(ValueError, match="planted"):
        trainer_for(tmp_path, [quiet_profiler()]).fit(Raises(), loader())
    assert signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL


def test_lightning_finds_its_signals_as_without_us(tmp_path: Path) -> None:
    """A learning rate finder runs the training loop before Lightning sets handlers; it leaves out what is taken."""

    class Tunable(Planted):
        lr = 1e-3

    class Looks(pl.Callback):
        seen: object = None

        def on_train_batch_start(self, *args: Any) -> None:
            self.seen = self.seen or signal.getsignal(signal.SIGUSR2)

    looks = Looks()
    finder = pl.callbacks.LearningRateFinder(num_training_steps=12)
    profiler = quiet_profiler()
    before: list[object] = []

    def look_at_registration(trainer: Any) -> None:
        register = trainer._signal_connector.register_signal_handlers
        trainer._signal_connector.register_signal_handlers = lambda: (
            before.append(signal.getsignal(signal.SIGUSR2)),
            register(),
        )

    fit(tmp_path, Tunable(), loader(), profiler=profiler, callbacks=[finder, looks], before=look_at_registration)
    assert before == [signal.SIG_DFL]
    assert callable(looks.seen)
    assert signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL


def test_a_window_longer_than_allowed_is_refused_when_the_profiler_is_made() -> None:
    with pytest.raises(ArgumentError, match="at most trace"):
        quiet_profiler(windows=(100, 400))
    quiet_profiler(windows=(100, 400), trace=TraceConfig(max_steps=301))


def test_without_tracing_no_signal_is_touched(tmp_path: Path, own_handler: list[int]) -> None:
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    callback = Signals()
    report = fit(tmp_path, loader=loader(), profiler=quiet_profiler(trace=False), callbacks=[callback])
    assert callback.seen is signal.SIG_IGN
    assert (report.windows, own_handler) == ((), [])


class OnlyStarts(Planted):
    """Gives up in its third batch: whatever is told was told at the start."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        if batch_idx == 2:
            raise ValueError("planted")
        return super().training_step(batch, batch_idx)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_steps": 30, "max_epochs": None}, r"ends at optimizer step 30 \(max_steps=30\)"),
        ({"max_epochs": 2}, r"ends at optimizer step 80 \(max_epochs=2 with 40 steps each\)"),
        ({"max_epochs": 2, "accumulate_grad_batches": 3}, r"optimizer step 28 \(max_epochs=2 with 14 steps each\)"),
    ],
)
def test_a_window_that_cannot_be_reached_is_told_at_the_start(
    tmp_path: Path, options: dict[str, Any], words: str
) -> None:
    profiler = quiet_profiler(windows=[(1, 2), (80, 81)])
    with (
        pytest.warns(RuntimeWarning, match="window 80: will not be reached: training .*" + words) as told,
        pytest.raises(ValueError, match="planted"),
    ):
        trainer_for(tmp_path, [profiler], **options).fit(OnlyStarts(), loader())
    assert sum("will not be reached" in str(w.message) for w in told) == 1


@pytest.mark.parametrize(
    "options", [{"max_epochs": 3}, {"max_epochs": -1}, {"limit_train_batches": 1.0, "max_epochs": 3}]
)
def test_a_window_that_can_be_reached_is_not_warned_of(tmp_path: Path, options: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        with pytest.raises(ValueError, match="planted"):
            trainer_for(tmp_path, [quiet_profiler(windows=[(80, 81)])], **options).fit(OnlyStarts(), loader())


def test_windows_passed_before_a_resume_are_noted_without_a_warning(tmp_path: Path) -> None:
    trainer = trainer_for(tmp_path, [])
    trainer.fit(Planted(), loader())
    trainer.save_checkpoint(tmp_path / "at40.ckpt")
    profiler = quiet_profiler(windows=[(10, 12), (50, 51)])
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        resumed = trainer_for(tmp_path, [profiler], max_epochs=2)
        resumed.fit(Planted(), loader(), ckpt_path=str(tmp_path / "at40.ckpt"))
    assert profiler.report is not None
    assert [(w.start_step, w.stop_step, w.problem) for w in profiler.report.windows] == [
        (10, 12, "passed before this run began, at optimizer step 40"),
        (50, 51, ""),
    ]


class TwoOptimizers(pl.LightningModule):
    """Both step in each batch: ``global_step`` rises by two."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.layers = torch.nn.ModuleList([torch.nn.Linear(8, 1), torch.nn.Linear(8, 1)])

    def training_step(self, batch: Any, batch_idx: int) -> None:
        for layer, optimizer in zip(self.layers, self.optimizers(), strict=True):  # type: ignore[arg-type]
            optimizer.zero_grad()
            self.manual_backward(layer(batch).square().mean())
            optimizer.step()

    def configure_optimizers(self) -> Any:
        return [torch.optim.SGD(layer.parameters(), lr=1e-9) for layer in self.layers]


def test_windows_are_where_two_optimizers_are_stepped_by_hand(tmp_path: Path) -> None:
    profiler = quiet_profiler(windows=[(20, 23)], trace=TraceConfig(every_n_steps=31))
    report = fit(tmp_path, TwoOptimizers(), loader(), profiler=profiler)
    assert [(w.start_step, w.stop_step, w.reason, w.problem) for w in report.windows] == [
        (20, 22, "planned", ""),
        (32, 32, "every_n_steps", ""),
        (62, 64, "every_n_steps", ""),
    ]
    assert [len(w.steps_us) for w in report.windows] == [2, 1, 2]


def test_planned_windows_and_multiples_with_accumulation_and_an_early_end(tmp_path: Path) -> None:
    profiler = quiet_profiler(windows=[(5, 6), (25, 40)], trace=TraceConfig(every_n_steps=10, active=1))
    report = fit(tmp_path, loader=loader(120), profiler=profiler, accumulate_grad_batches=4)
    assert [(w.start_step, w.stop_step, w.problem) for w in report.windows] == [
        (5, 6, ""),
        (10, 10, ""),
        (20, 20, ""),
        (25, 29, "closed: the epoch ended"),
    ]
    assert [len(w.steps_us) for w in report.windows] == [8, 4, 4, 20]
    names = [PLUGIN_WORKER.match(w.file) for w in report.windows]
    assert {name.group(1) for name in names if name} == {"rank0"}
    assert len({name.group(2) for name in names if name}) == 4


def test_a_window_is_closed_at_its_caps_and_says_so(tmp_path: Path) -> None:
    profiler = quiet_profiler(windows=[(5, 9)], trace=TraceConfig(max_steps=6))
    report = fit(tmp_path, loader=loader(), profiler=profiler, accumulate_grad_batches=2)
    assert [(w.stop_step, w.problem) for w in report.windows] == [(7, "closed after 6 batches (trace.max_steps)")]
    assert len(report.windows[0].steps_us) == 6
    profiler = quiet_profiler(windows=[(5, 30)], trace=TraceConfig(max_s=0.2))
    report = fit(tmp_path, Planted({"training_step": 0.03}), loader(), profiler=profiler)
    assert report.windows[0].problem == "closed after 0.2 s (trace.max_s)"
    assert report.windows[0].stop_step < 20


class ValidatesOtherwise(Planted):
    """Its validation runs an operator of its own, so that it is known in a trace."""

    validations = 0

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.validations += 1
        torch.erfinv(torch.full((4,), 0.5))

    def on_train_epoch_end(self) -> None:
        torch.lgamma(torch.full((4,), 0.5))


def events_of(folder: Path, file: str) -> list[str]:
    with gzip.open(folder / file, "rt", encoding="utf-8") as trace:
        return [event.get("name", "") for event in json.load(trace)["traceEvents"]]


@pytest.mark.parametrize(
    ("window", "options", "span"),
    [
        ((8, 14), {}, (8, 9, "closed: the epoch ended")),
        ((8, 14), {"limit_val_batches": 30}, (8, 9, "closed: validation began")),
        ((8, 9), {"limit_val_batches": 30}, (8, 9, "")),
        ((3, 6), {"limit_val_batches": 30, "val_check_interval": 5}, (3, 4, "closed: validation began")),
        ((11, 12), {"limit_val_batches": 30}, (11, 12, "")),
        ((6, 7), {"limit_val_batches": 30, "val_check_interval": 6}, (6, 7, "")),
    ],
)
def test_what_lies_between_steps_is_in_no_trace(
    tmp_path: Path, window: tuple[int, int], options: dict[str, Any], span: tuple[int, int, str]
) -> None:
    model = ValidatesOtherwise()
    profiler = quiet_profiler(windows=[window])
    val_loader = loader(30) if options else None
    report = fit(tmp_path, model, loader(10), profiler=profiler, val_loader=val_loader, max_epochs=2, **options)
    (found,) = report.windows
    assert (found.start_step, found.stop_step, found.problem) == span
    assert len(found.steps_us) == span[1] - span[0] + 1
    assert profiler.folder is not None
    events = events_of(profiler.folder, found.file)
    assert model.validations >= 60 if options else model.validations == 0
    assert events.count("aten::erfinv") == events.count("aten::lgamma") == 0
    assert events.count("aten::square") == len(found.steps_us)  # the loss of each training step


def test_a_rank_outside_of_the_run_is_told(tmp_path: Path) -> None:
    profiler = quiet_profiler(windows=[(5, 6)], trace=TraceConfig(ranks=[0, 3]))
    with pytest.warns(RuntimeWarning, match=r"trace.ranks: rank 3 is not in this run, which has rank 0 only"):
        report = fit(tmp_path, loader=loader(), profiler=profiler)
    assert [w.problem for w in report.windows] == [""]


def test_steps_beside_the_analysis_are_marked_and_otherwise_left_alone(tmp_path: Path) -> None:
    """And those after it are ordinary again."""

    class UntilSettled(pl.Callback):
        settled_at = 0

        def on_train_batch_end(self, trainer: Any, *args: Any) -> None:
            if not self.settled_at and list(tmp_path.rglob("*.facts.json")):
                self.settled_at = trainer.global_step
                time.sleep(0.2)
            trainer.should_stop = bool(self.settled_at) and trainer.global_step > self.settled_at + 10

    profiler = quiet_profiler(windows=[(5, 6)])
    fit(
        tmp_path,
        Planted({"training_step": 0.005}),
        loader(4000),
        profiler=profiler,
        callbacks=[UntilSettled()],
        max_epochs=-1,
    )
    assert profiler.folder is not None
    journal = read_journal(profiler.folder / "rank0.jsonl")
    flags = journal.steps.flags
    beside = (flags & (PROFILED | DISTURBED)) == DISTURBED
    assert beside.sum() > 5
    assert not beside[-5:].any()
    own = next(slot.id for slot in journal.slots if slot.callback == "GpuProfiler")
    touched = journal.steps.charged[own] > 0
    assert (touched & beside).sum() <= 2  # the boundary after the trace was written, and that at which the marks end


def test_a_request_beside_another_profiler_is_told_why_not(tmp_path: Path) -> None:
    profiler = quiet_profiler()
    own = pl.profilers.PyTorchProfiler(dirpath=str(tmp_path / "own"), filename="own")
    with pytest.warns(RuntimeWarning, match="requested by SIGUSR2, but the trainer's PyTorchProfiler is in use"):
        report = fit(
            tmp_path,
            Planted({"training_step": 0.03}),
            loader(),
            profiler=profiler,
            callbacks=[Signals()],
            before=lambda t: setattr(t, "profiler", own),
        )
    assert report.windows == ()


def test_code_that_uses_the_torch_profiler_is_no_news_where_no_window_is_planned(tmp_path: Path) -> None:
    class ProfilesItself(Planted):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            if batch_idx != 5:
                return super().training_step(batch, batch_idx)
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
                return super().training_step(batch, batch_idx)

    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        report = fit(tmp_path, ProfilesItself(), loader())
    assert not any("windows" in caveat for caveat in report.validity.caveats)


def test_a_killed_runs_trigger_file_does_not_trigger_the_next(tmp_path: Path) -> None:
    (tmp_path / "gpuprof").mkdir()
    (tmp_path / "gpuprof" / "trigger").touch()
    report = fit(tmp_path, Planted({"training_step": 0.03}), loader())
    assert report.windows == ()
    assert load_report(tmp_path / "gpuprof").windows == ()


RANKS = """
    import sys
    sys.path.insert(0, {here!r})
    from test_windows_of_fits import *

    class Says(pl.Callback):
        def on_train_batch_end(self, trainer, *args):
            if trainer.global_step == 20 and trainer.is_global_zero:
                print("RUNNING", os.getpid(), flush=True)

    if __name__ == "__main__":
        profiler = quiet_profiler(trace=TraceConfig(ranks=[0, 1]))
        trainer = trainer_for({folder!r}, [profiler, Says()], max_steps=200, strategy="ddp", devices=2, max_epochs=-1)
        trainer.fit(Planted({{"training_step": 0.02}}), loader())
"""


@pytest.mark.slow
def test_each_traced_rank_answers_one_touch(tmp_path: Path) -> None:
    process = start(tmp_path, script=RANKS)
    until_running(process)
    assert main(["trigger", str(tmp_path)]) == 0
    ended(process)
    for rank in (0, 1):
        windows = read_journal(tmp_path / "gpuprof" / f"rank{rank}.jsonl").windows
        assert [w.reason for w in windows] == ["requested by file"]
        assert windows[0].problem in ("", "closed: the epoch ended")  # where the touch falls is a matter of chance
        assert windows[0].file.startswith(f"rank{rank}.")
