"""What arrives in each logger of a real fit: TensorBoard, CSV, Weights & Biases (offline) and MLflow (a folder)."""

import importlib.util
import json
import socket
import threading
import warnings
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import msgspec
import pytest
from logger_files import Points, csv_points, events_in
from planted_runs import Failing, Planted, fit, quiet_profiler, single_rows
from python_process import run_python
from wandb_file import WandbFile

from lightning_gpuprof.model.report import Report
from lightning_gpuprof.sinks import loggers

FITS = """
import collections, json, os, sys
reached = []
def listen(event, details):
    if event == "socket.getaddrinfo" or (event == "socket.connect" and isinstance(details[1], tuple)):
        reached.append(str(details[0] if event == "socket.getaddrinfo" else details[1][0]))
sys.addaudithook(listen)
from planted_runs import *

folder = Path({folder!r})
writes = collections.Counter()

def counted(logger):
    log_metrics = logger.log_metrics
    def counting(metrics, step=None):
        own = {{"gpuprof/final/wall_s": "final", "gpuprof/report": "panel"}}
        ours = next((word for name, word in own.items() if name in metrics), "ours")
        whose = ours if any(name.startswith("gpuprof/") for name in metrics) else "trainer's"
        writes[type(logger).__name__ + " " + whose] += 1
        log_metrics(metrics, step)
    logger.log_metrics = counting
    return logger

def mlflow(name):
    return counted(pl.loggers.MLFlowLogger(name, save_dir=str(folder / "mlruns")))

every = [
    counted(pl.loggers.CSVLogger(folder, name="csv", version=0)),
    counted(pl.loggers.TensorBoardLogger(folder, name="tb", version=0)),
    counted(pl.loggers.WandbLogger(save_dir=folder, offline=True, project="gpuprof-test")),
    mlflow("whole"),
]
fit(folder, loader=single_rows(55), logger=every, log_every_n_steps=10,
    profiler=quiet_profiler(host=True, reports=["json", "html", "tensorboard"]))
broken = mlflow("interrupted")
try:
    fit(folder / "second", Failing(12, ValueError("planted")), single_rows(), logger=broken, log_every_n_steps=5,
        profiler=quiet_profiler(reports=["json", "tensorboard"]))
except ValueError as error:
    assert str(error) == "planted"
(folder / "told.json").write_text(json.dumps(
    {{"writes": writes, "reached": reached, "run": every[3].run_id, "interrupted": broken.run_id}}
))
"""

AWAY_FROM_HOME = {
    "WANDB_MODE": "offline",
    "WANDB_SILENT": "true",
    "WANDB_CONSOLE": "off",
    "WANDB_DISABLE_GIT": "true",
    "WANDB_ERROR_REPORTING": "false",
    "MLFLOW_ALLOW_FILE_STORE": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
}
"""Nothing is sent anywhere, and MLflow keeps its runs in a folder, which mlflow 3.17 only does when asked."""

LOGGED_STEPS = [9, 19, 29, 39, 49]
LAST_STEP = 54


class Fits:
    """A whole fit of 55 steps with four loggers at once, and one that is interrupted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        places = {f"WANDB_{place}_DIR": str(folder / place.lower()) for place in ("DATA", "CACHE", "CONFIG")}
        done = run_python("-c", FITS.format(folder=str(folder)), **AWAY_FROM_HOME, **places)
        self.told: dict[str, Any] = json.loads((folder / "told.json").read_text())
        self.warnings = [line for line in done.stderr.splitlines() if "gpuprof:" in line]
        self.wandb = WandbFile(folder)

    def mlflow_run(self, which: str) -> Path:
        """Folder of a run of MLflow's."""
        (found,) = (self.folder / "mlruns").glob(f"*/{self.told[which]}")
        return found

    def points(self) -> dict[str, Points]:
        """Logger → name → step and value of each point, for our names and the trainer's own ``loss``."""
        found = {
            "csv": csv_points(self.folder / "csv" / "version_0" / "metrics.csv"),
            "tensorboard": self._tensorboard(),
            "wandb": self._wandb(),
            "mlflow": self._mlflow(),
        }
        return {
            logger: {name: points for name, points in names.items() if name == "loss" or name.startswith("gpuprof/")}
            for logger, names in found.items()
        }

    def _tensorboard(self) -> Points:
        events = events_in(self.folder / "tb" / "version_0")
        return {name: [(e.step, e.value) for e in events.Scalars(name)] for name in events.Tags()["scalars"]}

    def _wandb(self) -> Points:
        found: Points = {}
        for row in self.wandb.history:
            for name, value in row.items():
                if isinstance(value, int | float) and not name.startswith("gpuprof/report."):  # the panel's file
                    found.setdefault(name, []).append((row["trainer/global_step"], float(value)))
        return found

    def _mlflow(self) -> Points:
        metrics = self.mlflow_run("run") / "metrics"
        found: Points = {}
        for file in metrics.rglob("*"):
            if file.is_file():
                rows = [line.split() for line in file.read_text().splitlines()]
                found[file.relative_to(metrics).as_posix()] = [(int(step), float(value)) for _, value, step, *_ in rows]
        return found


@pytest.fixture(scope="module")
def fits(tmp_path_factory: pytest.TempPathFactory) -> Fits:
    for package in ("wandb", "mlflow"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    return Fits(tmp_path_factory.mktemp("loggers"))


@pytest.mark.slow
def test_every_logger_gets_the_same_names_values_and_steps(fits: Fits) -> None:
    points = fits.points()
    expected = points["csv"]
    live = {name for name in expected if name.startswith("gpuprof/") and not name.startswith("gpuprof/final/")}
    assert {"gpuprof/step_ms", "gpuprof/forward_ms", "gpuprof/samples_per_s"} <= live
    assert [step for step, _ in expected["loss"]] == [step for step, _ in expected["gpuprof/step_ms"]] == LOGGED_STEPS
    assert all({step for step, _ in expected[name]} <= set(LOGGED_STEPS) for name in live)
    for logger, names in points.items():
        assert names.keys() == expected.keys(), logger
        for name, values in expected.items():
            assert names[name] == [(step, pytest.approx(value, rel=1e-5)) for step, value in values], (logger, name)


@pytest.mark.slow
def test_the_final_numbers_stand_once_at_the_last_step_of_the_trainers_own_axis(fits: Fits) -> None:
    for logger, names in fits.points().items():
        final = {name: points for name, points in names.items() if name.startswith("gpuprof/final/")}
        assert {"gpuprof/final/wall_s", "gpuprof/final/step_time_median_ms"} <= final.keys(), logger
        assert all([step for step, _ in points] == [LAST_STEP] for points in final.values()), logger


@pytest.mark.slow
def test_each_logger_is_written_to_once_per_interval(fits: Fits) -> None:
    writes = fits.told["writes"]
    for logger in ("CSVLogger", "TensorBoardLogger", "WandbLogger"):
        assert writes[f"{logger} ours"] == writes[f"{logger} trainer's"] == len(LOGGED_STEPS)
        assert writes[f"{logger} final"] == 1
    assert writes["MLFlowLogger ours"] == writes["MLFlowLogger trainer's"] == len(LOGGED_STEPS) + 2  # and the other fit
    # A row of its own for each write: nothing is added to a row that the trainer has written.
    assert len(fits.wandb.history) == 2 * len(LOGGED_STEPS) + 2  # the final numbers, the panel
    assert sum("gpuprof/report.size" in row for row in fits.wandb.history) == 1


@pytest.mark.slow
def test_weights_and_biases_draws_our_names_over_the_trainers_steps(fits: Fits) -> None:
    assert all("trainer/global_step" in row for row in fits.wandb.history)
    ((step_metric,),) = ({m.step_metric for m in fits.wandb.metrics if m.glob_name == "*"},)
    assert step_metric == "trainer/global_step"


@pytest.mark.slow
def test_the_report_is_attached_where_a_logger_keeps_files(fits: Fits) -> None:
    kept = fits.mlflow_run("run") / "artifacts" / "gpuprof"
    report = msgspec.json.decode((kept / "report.json").read_bytes(), type=Report)
    assert report.steps.count == 55
    assert report.verdict.kind in (kept / "report.html").read_text()
    (artifact,) = fits.wandb.artifacts
    assert (artifact.type, artifact.finalize) == ("gpuprof-report", True)
    assert artifact.name == f"gpuprof-{artifact.run_id}"
    assert {entry.path: entry.size for entry in artifact.manifest.contents} == {
        name: (kept / name).stat().st_size for name in ("report.json", "report.html")
    }


@pytest.mark.slow
def test_an_interrupted_run_gives_its_final_numbers_and_uploads_nothing(fits: Fits) -> None:
    run = fits.mlflow_run("interrupted")
    assert (run / "metrics" / "gpuprof" / "final" / "wall_s").is_file()
    assert not (run / "artifacts" / "gpuprof").exists()
    assert fits.told["writes"]["MLFlowLogger final"] == 2
    assert (fits.folder / "second" / "gpuprof" / "report.json").is_file()


@pytest.mark.slow
def test_a_run_is_not_recorded_among_mlflows_experiments(fits: Fits) -> None:
    """MLflow would warn of a malformed experiment at every look at them; Lightning gives that folder as ``log_dir``."""
    assert (fits.folder / "second" / "gpuprof" / "rank0.jsonl").is_file()
    experiments = [path for path in (fits.folder / "mlruns").iterdir() if not path.name.startswith(".")]
    assert experiments
    assert [path.name for path in experiments if not (path / "meta.yaml").is_file()] == []


@pytest.mark.slow
def test_nothing_is_sent_anywhere_and_nobody_is_warned(fits: Fits) -> None:
    assert set(fits.told["reached"]) <= {"127.0.0.1", "::1", "localhost", socket.gethostname()}
    assert fits.warnings == []


class Breaks(pl.loggers.CSVLogger):
    """Takes the trainer's metrics and the first of ours, and nothing after that."""

    calls = 0

    def log_metrics(self, metrics: Any, step: int | None = None) -> None:
        if any(name.startswith("gpuprof/") for name in metrics):
            self.calls += 1
            if self.calls > 1:
                raise ConnectionError("the server is gone")
        super().log_metrics(metrics, step)


class Hangs(pl.loggers.CSVLogger):
    """Its server does not answer to the final numbers before the fit is over."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, name="hangs", version=0)
        self.fit_is_over, self.answered = threading.Event(), threading.Event()

    def log_metrics(self, metrics: Any, step: int | None = None) -> None:
        if "gpuprof/final/wall_s" in metrics:
            self.fit_is_over.wait(60)
            self.answered.set()


def test_an_interrupted_run_does_not_wait_for_a_tracker_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loggers, "INTERRUPTED_TIMEOUT_S", 0.1)
    hangs = Hangs(tmp_path)
    profiler = quiet_profiler(reports=["json", "tensorboard"])
    with (
        pytest.warns(
            RuntimeWarning, match=r"gpuprof: loggers: the loggers did not accept the final numbers within 0\.1 s"
        ),
        pytest.raises(ValueError, match="planted"),
    ):
        fit(tmp_path, Failing(5, ValueError("planted")), profiler=profiler, logger=hangs)
    waited_for = hangs.answered.is_set()
    hangs.fit_is_over.set()
    assert hangs.answered.wait(60)
    assert not waited_for
    assert profiler.report.steps.count == 5


def steps_of(file: Path, name: str) -> list[int]:
    return [step for step, _ in csv_points(file)[name]]


def test_a_logger_that_breaks_in_the_middle_costs_one_warning_and_itself(tmp_path: Path) -> None:
    breaks = Breaks(tmp_path, name="breaks", version=0)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        report = fit(
            tmp_path,
            loader=single_rows(55),
            logger=[breaks, pl.loggers.TensorBoardLogger(tmp_path, name="tb", version=0)],
            profiler=quiet_profiler(reports=["json", "tensorboard"]),
            log_every_n_steps=10,
        )
    assert report.steps.count == 55
    assert [str(w.message) for w in told if "gpuprof" in str(w.message)] == [
        "gpuprof: logger Breaks: switched off after ConnectionError: the server is gone"
    ]
    assert breaks.calls == 3  # the second of ours, and the final numbers
    broken = tmp_path / "breaks" / "version_0" / "metrics.csv"
    assert steps_of(broken, "loss") == LOGGED_STEPS
    assert steps_of(broken, "gpuprof/step_ms") == LOGGED_STEPS[:1]
    events = events_in(tmp_path / "tb" / "version_0")
    assert [e.step for e in events.Scalars("gpuprof/step_ms")] == LOGGED_STEPS
    assert [e.step for e in events.Scalars("gpuprof/final/wall_s")] == [LAST_STEP]


class Noting(pl.loggers.logger.DummyLogger):
    def __init__(self) -> None:
        super().__init__()
        self.steps: list[object] = []


class OtherOrder(Noting):
    def log_metrics(self, step: Any, metrics: Any) -> None:  # type: ignore[override]
        self.steps.append(step)


class OnlyByKeyword(Noting):
    def log_metrics(self, *, metrics: Any, step: Any = None) -> None:  # type: ignore[override]
        self.steps.append(step)


def test_loggers_are_called_by_keyword_as_lightning_does(tmp_path: Path) -> None:
    both = [OtherOrder(), OnlyByKeyword()]
    profiler = quiet_profiler(reports=["tensorboard"])
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        fit(tmp_path, loader=single_rows(4), logger=both, profiler=profiler, log_every_n_steps=2)
    # The trainer's own twice, and each time ours; the final numbers.
    assert [logger.steps for logger in both] == [[1, 1, 3, 3, 3]] * 2


def test_with_several_optimizers_the_final_numbers_stay_on_the_trainers_axis(tmp_path: Path) -> None:
    class Manual(Planted):
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False

        def training_step(self, batch: Any, batch_idx: int) -> None:
            for optimizer in (self.optimizers(), self.optimizers()):
                optimizer.zero_grad()
                loss = self.layer(batch).square().mean()
                self.manual_backward(loss)
                optimizer.step()
            self.log("loss", loss)

    fit(
        tmp_path,
        Manual(),
        single_rows(20),
        profiler=quiet_profiler(reports=["json", "tensorboard"]),
        logger=pl.loggers.CSVLogger(tmp_path, name="csv", version=0),
        log_every_n_steps=10,
    )
    metrics = tmp_path / "csv" / "version_0" / "metrics.csv"
    assert steps_of(metrics, "loss") == steps_of(metrics, "gpuprof/step_ms") == [9, 19]
    assert steps_of(metrics, "gpuprof/final/wall_s") == [19]  # trainer.global_step is 40


@pytest.mark.parametrize("options", [{"logger": False}, {"logger": True, "fast_dev_run": 5}], ids=["none", "dummy"])
def test_without_a_logger_there_is_a_report_and_no_word_of_tensorboard(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: dict[str, Any]
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        profiler = quiet_profiler(reports=["json", "tensorboard", "terminal"], dirpath=tmp_path / "profile")
        report = fit(tmp_path, profiler=profiler, **options)
    assert report.steps.count in (5, 20)
    printed = capsys.readouterr().out
    assert "gpuprof report" in printed
    assert "tensorboard --logdir" not in printed
