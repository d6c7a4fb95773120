"""Loops as people write them: each trains as without us, adds up, has a sensible verdict, and leaves nothing behind."""

import dataclasses
import threading
import warnings
from collections.abc import Sequence
from pathlib import Path

import lightning.pytorch as pl
import pytest
import torch
from checked_screen import checked
from left_behind import files_of_ours, what_is_left
from planted_loops.check import disagreements
from planted_loops.disturbance import Disturbance
from planted_loops.run import Measured
from unusual_loops import BATCHES, LOOPS, Loop, Model, combined, fitted, loader

from lightning_gpuprof import GpuProfiler
from lightning_gpuprof.analyze.journal import read_journal
from lightning_gpuprof.analyze.journal_columns import Journal
from lightning_gpuprof.model.report import Report
from lightning_gpuprof.pipeline import load_report


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """What came out of a loop."""

    global_step: int
    trained: int
    weights: dict[str, torch.Tensor]
    told: set[str]
    lost_s: float


def profiler_in(folder: Path) -> GpuProfiler:
    return GpuProfiler(windows=[], nvml=False, reports=["json"], dirpath=str(folder / "gpuprof"))


def run(loop: Loop, folder: Path, callbacks: Sequence[pl.Callback] = ()) -> Run:
    pl.seed_everything(1, verbose=False)
    disturbance = Disturbance()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer, model = loop.start(folder, callbacks)
    model = getattr(model, "_orig_mod", model)
    assert what_is_left(trainer, model) == []
    return Run(
        global_step=trainer.global_step,
        trained=model.trained,
        weights={name: value.clone() for name, value in model.state_dict().items()},
        told={str(w.message) for w in caught},
        lost_s=disturbance.lost_s(),
    )


def measured_in(folder: Path) -> tuple[Report, Journal]:
    """Of the last fit: the report, and the journal that it was made from."""
    journals = {file: read_journal(file) for file in folder.glob("gpuprof*/rank0.jsonl")}
    fits = {file: journal for file, journal in journals.items() if journal.header.stage == "fit"}
    last = max(fits, key=lambda file: fits[file].header.epoch_ns)
    return checked(load_report(last.parent / "report.json")), fits[last]


def problems_of(loop: Loop, report: Report, journal: Journal, *, trained: int, lost_s: float) -> list[str]:
    """What does not hold, though it has to in any report."""
    measured = Measured(report=report, slept_s={}, steps=None, optimizer_steps=None, lost_s=lost_s)
    of_the_machine = "speed levels", "steadily: "
    problems = [one for one in disagreements(measured) if not any(words in one for words in of_the_machine)]
    disturbed = lost_s > 0.05 * report.wall.total_s
    if disturbed:  # which the report is to say
        problems = [problem for problem in problems if "has a caveat" not in problem]
    elif report.verdict.kind not in loop.verdicts:
        problems.append(f"the verdict is {report.verdict.kind}: {report.verdict.summary}")
    if (report.steps.count, trained) != (loop.steps, loop.steps):
        problems.append(f"{loop.steps} steps were expected, {trained} trained, {report.steps.count} found")
    if len(set(journal.steps.batch)) != loop.steps or journal.dropped_lines or journal.lost_slots:
        problems.append("the journal is not whole")
    if report.run["status"] != "finished":
        problems.append(f"the run is {report.run['status']}")
    if not report.validity.ok and not report.validity.caveats:
        problems.append("the measurement is not valid, and nothing says why")
    return problems + gains_beyond_the_run(report)


def gains_beyond_the_run(report: Report) -> list[str]:
    """Findings that promise more time than there is."""
    there_ms = report.wall.total_s * 1e3 / max(1, report.steps.count)
    if report.combined is not None:  # not of a measurement that is not valid, as on a machine that slows down
        there_ms = report.combined.run_ms_per_step
    return [
        f"{finding.rule} promises {finding.gain.saved_ms_per_step:.2f} of {there_ms:.2f} ms"
        for finding in report.findings
        if finding.gain is not None and finding.gain.saved_ms_per_step > there_ms
    ]


@pytest.mark.parametrize(
    "loop", [pytest.param(loop, id=loop.name, marks=[pytest.mark.slow] if loop.slow else []) for loop in LOOPS]
)
def test_a_loop_trains_as_without_us_and_its_report_is_right(loop: Loop, tmp_path: Path) -> None:
    without = run(loop, tmp_path / "without")
    files = files_of_ours()
    profiler = profiler_in(tmp_path)
    ours = run(loop, tmp_path / "with", [profiler])
    assert (ours.global_step, ours.trained) == (without.global_step, without.trained)
    assert ours.weights.keys() == without.weights.keys()
    assert all(torch.equal(ours.weights[name], without.weights[name]) for name in ours.weights)
    assert ours.told - without.told == set()
    assert files_of_ours() == files
    report, journal = measured_in(tmp_path)
    assert problems_of(loop, report, journal, trained=ours.trained, lost_s=ours.lost_s) == []


def test_two_trainers_in_two_threads_are_measured_each_by_itself(tmp_path: Path) -> None:
    loop = Loop(name="in a thread", start=fitted, verdicts=frozenset({"compute-bound", "host-bound", "mixed"}))
    problems: list[object] = []

    def fit(folder: Path) -> None:
        try:
            trainer, model = fitted(folder, [profiler_in(folder)])
            problems.extend(what_is_left(trainer, model))
            problems.extend(problems_of(loop, *measured_in(folder), trained=model.trained, lost_s=float("inf")))
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=fit, args=(tmp_path / name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []


def test_a_mode_of_combined_loaders_that_training_does_not_have_is_refused_as_without_us(tmp_path: Path) -> None:
    files, profiler = files_of_ours(), profiler_in(tmp_path)
    with pytest.raises(ValueError, match="sequential"):
        fitted(tmp_path, [profiler], data=lambda: combined("sequential"))
    assert (profiler._session, files_of_ours()) == (None, files)


def test_an_error_after_the_trainer_went_to_another_stage_comes_through(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    class Fails(pl.Callback):
        def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
            trainer.validate(pl_module, loader(4), verbose=False)
            raise ValueError("on purpose")

    profiler = profiler_in(tmp_path)
    with pytest.raises(ValueError, match="on purpose"):
        fitted(tmp_path, [profiler], own=lambda: [Fails()])
    assert [str(w.message) for w in recwarn if "gpuprof" in str(w.message)] == []
    assert (profiler._session, files_of_ours()) == (None, set())
    assert measured_in(tmp_path)[0].steps.count == BATCHES


def test_fast_dev_run_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    profiler = GpuProfiler()
    trainer = pl.Trainer(
        accelerator="cpu",
        fast_dev_run=True,
        callbacks=[profiler],
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Model(), loader(4))
    assert profiler.report is None
    assert list(tmp_path.iterdir()) == []
