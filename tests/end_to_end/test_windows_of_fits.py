"""Windows of real fits: on slow steps, as planned, with caps, and where they cannot be reached."""

import gzip
import json
import re
import warnings
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from planted_runs import Failing, Naps, Planted, ProfilesItself, Sleepy, fit, quiet_profiler, single_rows, trainer_for
from torch.utils.data import DataLoader

from lightning_gpuprof import TraceConfig
from lightning_gpuprof.analyze.journal import read_journal
from lightning_gpuprof.capture import slow_steps
from lightning_gpuprof.capture.trace_jobs import TraceJobs
from lightning_gpuprof.capture.window_recording import WindowRecording
from lightning_gpuprof.errors import ArgumentError
from lightning_gpuprof.model.journal import DISTURBED, PROFILED

PLUGIN_WORKER = re.compile(r"^(.*?)(\.\d+)?\.pt\.trace\.json(?:\.gz)?$")
"""How TensorBoard's profiler tab takes the worker from a file's name (torch_tb_profiler 0.4.3, consts.py)."""


class TurnsSlow(Sleepy):
    """Items of 4 ms, and of 0.3 s from one on."""

    def __getitem__(self, index: int) -> torch.Tensor:
        Naps.take(0.3 if index >= 130 else 0.004)
        return super().__getitem__(index)


def test_a_slowdown_that_goes_on_is_traced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Where a busy machine had a window opened before, this slowdown is to have one as well.
    monkeypatch.setattr(slow_steps, "COOLDOWN_STEPS", 5)
    monkeypatch.setattr(slow_steps, "COOLDOWN_NS", 1)
    monkeypatch.setattr(WindowRecording, "_is_disturbed", lambda recording: False)
    profiler = quiet_profiler(trace=TraceConfig(on_slow_step=True, max_windows=100))
    report = fit(tmp_path, loader=DataLoader(TurnsSlow(150), batch_size=1), profiler=profiler)
    windows = [window for window in report.windows if window.start_step >= 135]  # three slow steps, two of warm-up
    assert windows
    window = windows[0]
    assert re.match(r"slow step: \d+(\.\d+)? ms against \d+(\.\d+)? ms", window.reason)
    assert window.problem == ""
    assert window.stop_step == window.start_step + 2
    assert profiler.folder is not None
    assert (profiler.folder / window.file).is_file()
    assert window.events > 10
    assert window.inflation_ratio is not None
    assert window.inflation_ratio < 10  # not held against the fast steps, which took a fiftieth


class Short(Sleepy):
    """Items of 3 ms."""

    def __getitem__(self, index: int) -> torch.Tensor:
        Naps.take(0.003)
        return super().__getitem__(index)


def test_a_fit_of_short_steps_gets_a_window_once_two_seconds_are_over(tmp_path: Path) -> None:
    report = fit(tmp_path, loader=DataLoader(Short(1000), batch_size=1), profiler=quiet_profiler(windows=None))
    found = [(window.reason, window.problem, 20 <= window.start_step <= 900) for window in report.windows]
    assert found == [("steady", "", True)]


def test_code_starts_and_stops_a_window_and_looks_at_the_run_meanwhile(tmp_path: Path) -> None:
    profiler = quiet_profiler(windows=[], trace=TraceConfig(active=20, warmup=1))
    seen: list[int] = []

    class Asks(Planted):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            Naps.take(0.02)
            if batch_idx == 50:
                profiler.start()
            elif batch_idx == 60:
                profiler.stop()
            elif batch_idx == 140:
                seen.append(profiler.analyse().steps.count)
            return super().training_step(batch, batch_idx)

    profiler.start()  # outside of a run
    profiler.stop()
    report = fit(tmp_path, Asks({}), single_rows(150), profiler=profiler)
    (window,) = report.windows
    assert window.reason == "requested by start()"
    assert window.problem == ""
    assert 50 < window.start_step <= window.stop_step == 60
    assert 0 < seen[0] <= 140
    assert profiler.analyse() is report


@pytest.mark.parametrize(("steps", "said"), [(30, 1), (400, 0)])
def test_a_run_too_short_to_tell_slow_steps_says_so_in_its_report(tmp_path: Path, steps: int, said: int) -> None:
    profiler = quiet_profiler(trace=TraceConfig(on_slow_step=True))
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "gpuprof", RuntimeWarning)
        report = fit(tmp_path, loader=single_rows(steps), profiler=profiler)
    told = [text for text in report.validity.caveats if "slow" in text]
    assert told == said * ["trace.on_slow_step: too few ordinary steps to recognise slow ones"]


def test_a_window_longer_than_allowed_is_refused_when_the_profiler_is_made() -> None:
    with pytest.raises(ArgumentError, match="at most trace"):
        quiet_profiler(windows=(100, 400))
    quiet_profiler(windows=(100, 400), trace=TraceConfig(max_steps=301))


def only_starts() -> Failing:
    """Gives up in its third batch: whatever is told was told at the start."""
    return Failing(2, ValueError("planted"))


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
        trainer_for(tmp_path, [profiler], **options).fit(only_starts(), single_rows())
    assert sum("will not be reached" in str(w.message) for w in told) == 1


@pytest.mark.parametrize(
    "options", [{"max_epochs": 3}, {"max_epochs": -1}, {"limit_train_batches": 1.0, "max_epochs": 3}]
)
def test_a_window_that_can_be_reached_is_not_warned_of(tmp_path: Path, options: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        with pytest.raises(ValueError, match="planted"):
            trainer_for(tmp_path, [quiet_profiler(windows=[(80, 81)])], **options).fit(only_starts(), single_rows())


def test_windows_passed_before_a_resume_are_noted_without_a_warning(tmp_path: Path) -> None:
    trainer = trainer_for(tmp_path, [])
    trainer.fit(Planted(), single_rows())
    trainer.save_checkpoint(tmp_path / "at40.ckpt")
    profiler = quiet_profiler(windows=[(10, 12), (50, 51)])
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        resumed = trainer_for(tmp_path, [profiler], max_epochs=2)
        resumed.fit(Planted(), single_rows(), ckpt_path=str(tmp_path / "at40.ckpt"))
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
    report = fit(tmp_path, TwoOptimizers(), single_rows(), profiler=profiler)
    assert [(w.start_step, w.stop_step, w.reason, w.problem) for w in report.windows] == [
        (20, 22, "planned", ""),
        (32, 32, "every_n_steps", ""),
        (62, 64, "every_n_steps", ""),
    ]
    assert [len(w.steps_us) for w in report.windows] == [2, 1, 2]


def test_planned_windows_and_multiples_with_accumulation_and_an_early_end(tmp_path: Path) -> None:
    profiler = quiet_profiler(windows=[(5, 6), (25, 40)], trace=TraceConfig(every_n_steps=10, active=1))
    report = fit(tmp_path, loader=single_rows(120), profiler=profiler, accumulate_grad_batches=4)
    assert [(w.start_step, w.stop_step, w.problem) for w in report.windows] == [
        (5, 6, ""),
        (10, 10, ""),
        (20, 20, ""),
        (25, 29, "closed: the epoch ended"),
    ]
    assert [len(w.steps_us) for w in report.windows] == [8, 4, 4, 20]
    marked = next(found.marks for found in report.marks if found.kind == "window")
    assert [mark.to_batch for mark in marked] == [27, 43, 83, 119]  # four batches are an optimizer step
    assert all(m.to_batch - m.from_batch + 1 >= len(w.steps_us) for m, w in zip(marked, report.windows, strict=True))
    names = [PLUGIN_WORKER.match(w.file) for w in report.windows]
    assert {name.group(1) for name in names if name} == {"rank0"}
    assert len({name.group(2) for name in names if name}) == 4


def test_a_window_is_closed_at_its_caps_and_says_so(tmp_path: Path) -> None:
    profiler = quiet_profiler(windows=[(5, 9)], trace=TraceConfig(max_steps=6))
    report = fit(tmp_path, loader=single_rows(), profiler=profiler, accumulate_grad_batches=2)
    assert [(w.stop_step, w.problem) for w in report.windows] == [(7, "closed after 6 batches (trace.max_steps)")]
    assert len(report.windows[0].steps_us) == 6
    profiler = quiet_profiler(windows=[(5, 30)], trace=TraceConfig(max_s=0.2))
    report = fit(tmp_path, Planted({"training_step": 0.03}), single_rows(), profiler=profiler)
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
    val_loader = single_rows(30) if options else None
    report = fit(tmp_path, model, single_rows(10), profiler=profiler, val_loader=val_loader, max_epochs=2, **options)
    (found,) = report.windows
    assert (found.start_step, found.stop_step, found.problem) == span
    assert len(found.steps_us) == span[1] - span[0] + 1
    assert profiler.folder is not None
    events = events_of(profiler.folder, found.file)
    assert model.validations >= 60 if options else model.validations == 0
    assert events.count("aten::erfinv") == events.count("aten::lgamma") == 0
    assert events.count("aten::square") == len(found.steps_us)  # the loss of each training step


def test_steps_beside_the_analysis_are_marked_and_otherwise_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And those after it are ordinary again."""
    answers: list[bool] = []
    is_disturbing = TraceJobs.is_disturbing
    monkeypatch.setattr(TraceJobs, "is_disturbing", lambda jobs: answers.append(is_disturbing(jobs)) or answers[-1])

    class UntilSettled(pl.Callback):
        settled_at = 0

        def on_train_batch_end(self, trainer: Any, *args: Any) -> None:
            if not self.settled_at and True in answers and not answers[-1]:
                self.settled_at = trainer.global_step
            trainer.should_stop = bool(self.settled_at) and trainer.global_step > self.settled_at + 10

    profiler = quiet_profiler(windows=[(5, 6)])
    fit(
        tmp_path,
        Planted({"training_step": 0.005}),
        single_rows(4000),
        profiler=profiler,
        callbacks=[UntilSettled()],
        max_epochs=-1,
    )
    assert profiler.folder is not None
    journal = read_journal(profiler.folder / "rank0.jsonl")
    flags = journal.steps.flags
    beside = (flags & (PROFILED | DISTURBED)) == DISTURBED
    assert beside.any()
    assert not beside[-5:].any()
    own = next(slot.id for slot in journal.slots if slot.callback == "GpuProfiler")
    touched = journal.steps.charged[own] > 0
    # the boundary after the trace was written, that at which the marks end, and that at which gradients are counted
    assert (touched & beside).sum() <= 3


def test_code_that_uses_the_torch_profiler_is_no_news_where_no_window_is_planned(tmp_path: Path) -> None:
    model = ProfilesItself()
    model.at_batch = 5
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        report = fit(tmp_path, model, single_rows())
    assert not any("windows" in caveat for caveat in report.validity.caveats)
