"""What the trainer's loggers are given at the end: one that fails keeps nothing from the others."""

import re
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from html import escape
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import sample_journals
import sample_report

from lightning_gpuprof import end_of_run
from lightning_gpuprof.analyze.compare import compare
from lightning_gpuprof.errors import ReportError
from lightning_gpuprof.model.comparison import THIS_RUN, Comparison
from lightning_gpuprof.model.report import Report
from lightning_gpuprof.sinks import loggers
from lightning_gpuprof.sinks.first_screen import first_screen
from lightning_gpuprof.sinks.loggers import final_scalars


class Taking:
    """Notes what it gets, as logger and as its own experiment."""

    log_dir = "runs/version_0"
    run_id = "abc"
    id = "a/b c"

    def __init__(self) -> None:
        self.experiment = self
        self.calls: list[tuple[str, Any]] = []
        self.files: dict[str, str] = {}

    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        self.calls.append(("log_metrics", (dict(metrics), step)))
        metrics.clear()

    def _keep(self, folder: str) -> None:
        self.files = {path.name: path.read_text() for path in Path(folder).iterdir()}


class MLFlowLogger(Taking):
    def log_artifacts(self, run_id: str, folder: str, name: str) -> None:
        self.calls.append(("log_artifacts", (run_id, name)))
        self._keep(folder)


class WandbLogger(Taking):
    def log_artifact(self, folder: str, *, name: str, type: str) -> None:
        self.calls.append(("log_artifact", (name, type)))
        self._keep(folder)


class Other(Taking):
    """A tracker whose method of the same name takes something else."""

    def log_artifact(self, artifact: object) -> None:
        raise AssertionError

    def add_text(self, tag: str, text: str, step: int) -> None:
        self.calls.append(("add_text", (tag, step)))


class Broken(Taking):
    @property
    def experiment(self) -> Any:
        raise ConnectionError("no server")

    @experiment.setter
    def experiment(self, value: object) -> None:
        pass

    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        raise ConnectionError("no server")


class BrokenMLFlow(Broken, MLFlowLogger):
    pass


class HangingMLFlow(MLFlowLogger):
    """Its server does not answer."""

    def __init__(self, *, numbers: bool = False) -> None:
        super().__init__()
        self.answer = threading.Event()
        self.answered = threading.Event()
        self._numbers = numbers

    def _wait(self) -> None:
        self.answer.wait(30)
        self.answered.set()

    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        if self._numbers:
            self._wait()

    def log_artifacts(self, run_id: str, folder: str, name: str) -> None:
        self._wait()
        super().log_artifacts(run_id, folder, name)


class Given:
    """A push to loggers, what was told of them and how often files were written."""

    def __init__(
        self,
        *takers: object,
        report: Report | None = None,
        files: bool = True,
        finished: bool = True,
        full: bool = False,
        comparison: Comparison | None = None,
    ) -> None:
        self.told: list[str] = []
        self.late: list[str] = []
        self._full = full
        self.written = 0
        self.folders: list[Path] = []
        self._files = files
        self.shown_in = loggers.push(
            report or sample_report.full_report(),
            takers,
            41,
            write_files=self._write,
            guard=self._guard,
            late=self.late.append,
            finished=finished,
            folder=Path("runs/digits/version_0/gpuprof"),
            comparison=comparison,
        )

    @contextmanager
    def _guard(self, logger: object) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self.told.append(f"{type(logger).__name__}: {error}")

    def _write(self, folder: Path) -> Mapping[str, str]:
        self.written += 1
        self.folders.append(folder)
        if self._full:
            raise ReportError("the disk is full")
        if not self._files:
            return {}
        (folder / "report.html").write_text("<html>")
        return {"HTML": str(folder / "report.html")}


def test_each_logger_gets_the_final_numbers_for_itself() -> None:
    first, second = Taking(), Taking()
    given = Given(first, second)
    numbers = final_scalars(sample_report.full_report())
    assert first.calls == second.calls == [("log_metrics", (numbers, 41))]
    assert (given.told, given.written, given.shown_in) == ([], 0, "")


def test_files_are_written_once_and_given_to_all_that_keep_some() -> None:
    mlflow, wandb, other = MLFlowLogger(), WandbLogger(), Other()
    given = Given(other, mlflow, wandb)
    assert given.told == []
    assert given.written == 1
    assert not given.folders[0].exists()
    assert mlflow.files == wandb.files == {"report.html": "<html>"}
    assert mlflow.calls[-1] == ("log_artifacts", ("abc", "gpuprof"))
    assert wandb.calls[-1] == ("log_artifact", ("gpuprof-a-b-c", loggers.ARTIFACT_TYPE))
    assert [name for name, _ in other.calls] == ["log_metrics", "add_text"]
    assert given.shown_in == "runs/version_0"


class Html:
    """A panel of Weights & Biases."""

    def __init__(self, data: str, *, inject: bool) -> None:
        self.data, self.inject = data, inject


def test_weights_and_biases_shows_the_comparison_with_the_baseline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(Html=Html))
    report, wandb = sample_report.full_report(), WandbLogger()
    comparison = compare(report, report, before_name="runs/base", after_name=THIS_RUN)
    given = Given(wandb, report=report, comparison=comparison)
    assert given.told == []
    shown = {panel: page for _, (pages, _) in wandb.calls[1:3] for panel, page in pages.items()}
    assert set(shown) == {loggers.PANEL, loggers.COMPARISON_PANEL}
    page = shown[loggers.COMPARISON_PANEL].data
    assert '<strong class="outcome">Within noise.</strong>' in page
    assert "runs/base" in page
    assert len(page) < 100_000


@pytest.mark.parametrize(("error", "told"), [(ReportError("no report"), []), (TypeError("ours"), ["baseline: ours"])])
def test_a_baseline_that_cannot_be_compared_costs_its_panel_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, told: list[str]
) -> None:
    """A logger that shows it is not switched off; what is wrong with the baseline itself is said at the end."""

    def compared(*_: object) -> Comparison:
        raise error

    monkeypatch.setattr(end_of_run, "_with_baseline", compared)
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(Html=Html))
    first, second, other, failed = WandbLogger(), WandbLogger(), Other(), list[str]()

    @contextmanager
    def fence(part: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            failed.append(f"{part}: {error}")

    sample_journals.write_journal(tmp_path / "rank0.jsonl", 60)
    end_of_run.push_to_loggers(
        tmp_path,
        kinds=[],
        notices=(),
        trainer_loggers=[first, other, second],
        step=41,
        fence=fence,
        late=failed.append,
        finished=True,
        baseline="base",
    )
    assert failed == told
    for wandb in (first, second):
        assert [panel for name, (page, _) in wandb.calls[1:2] for panel in page] == [loggers.PANEL]
    assert [name for name, _ in other.calls] == ["log_metrics", "add_text"]


@pytest.mark.parametrize("finished", [True, False])
def test_weights_and_biases_shows_the_first_screen(monkeypatch: pytest.MonkeyPatch, *, finished: bool) -> None:
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(Html=Html))
    wandb, other = WandbLogger(), Other()
    report = sample_report.full_report()
    given = Given(wandb, other, report=report, finished=finished)
    assert given.told == []
    shown, step = next(value for name, value in wandb.calls[1:] if name == "log_metrics")
    assert step == 41
    page = shown[loggers.PANEL].data
    assert "gpuprof compare runs/digits/version_0 runs/digits/version_1" in page
    assert escape(first_screen(report).headline) in re.sub("</?(span|bdi)[^>]*>", "", page)
    assert not shown[loggers.PANEL].inject
    assert len(page) < 100_000
    assert [name for name, _ in other.calls] == ["log_metrics", "add_text"]


def test_nothing_is_attached_where_no_file_is_made() -> None:
    mlflow = MLFlowLogger()
    Given(mlflow, files=False)
    assert [name for name, _ in mlflow.calls] == ["log_metrics"]


def test_another_stage_is_attached_beside_the_fit() -> None:
    report = sample_report.full_report()
    mlflow = MLFlowLogger()
    Given(mlflow, report=msgspec.structs.replace(report, run={**report.run, "stage": "test"}))
    assert mlflow.calls[-1] == ("log_artifacts", ("abc", "gpuprof-test"))


def test_a_logger_that_fails_keeps_nothing_from_the_others() -> None:
    before, after = WandbLogger(), MLFlowLogger()
    given = Given(Broken(), before, BrokenMLFlow(), after)
    assert before.files == after.files == {"report.html": "<html>"}
    assert set(given.told) == {"Broken: no server", "BrokenMLFlow: no server"}


def test_an_interrupted_run_gives_numbers_and_text_and_no_files() -> None:
    mlflow, other = MLFlowLogger(), Other()
    given = Given(mlflow, other, finished=False)
    assert [name for name, _ in mlflow.calls] == ["log_metrics"]
    assert [name for name, _ in other.calls] == ["log_metrics", "add_text"]
    assert (given.written, given.told, given.late, given.shown_in) == (0, [], [], "runs/version_0")


@pytest.mark.parametrize("finished", [True, False])
def test_nobody_waits_for_a_tracker_that_hangs(monkeypatch: pytest.MonkeyPatch, finished: bool) -> None:
    for limit in ("ATTACH_TIMEOUT_S", "INTERRUPTED_TIMEOUT_S"):
        monkeypatch.setattr(loggers, limit, 0.1)
    before, hanging = Other(), HangingMLFlow(numbers=not finished)
    given = Given(before, hanging, finished=finished)
    waited_for = hanging.answered.is_set()
    hanging.answer.set()
    assert hanging.answered.wait(30)
    assert not waited_for
    assert len(given.late) == 1
    assert "within 0.1 s" in given.late[0]
    assert given.told == []
    assert given.shown_in == "runs/version_0"


def test_files_that_cannot_be_written_take_nothing_from_what_was_shown() -> None:
    mlflow, other = MLFlowLogger(), Other()
    given = Given(other, mlflow, full=True)
    assert given.shown_in == "runs/version_0"
    assert given.told == ["MLFlowLogger: the disk is full"]
    assert [name for name, _ in mlflow.calls] == ["log_metrics"]


@pytest.mark.parametrize("run_id", ["x", "äöü ∑", "a" * 500, "../../etc"])
def test_artifact_names_have_only_characters_that_are_allowed(run_id: str) -> None:
    name = loggers.artifact_name("gpuprof", run_id)
    assert name.replace("-", "").replace("_", "").replace(".", "").isascii()
    assert 0 < len(name) <= 128
    assert not set(name) & set("/ \\:")
