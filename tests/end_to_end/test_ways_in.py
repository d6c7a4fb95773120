"""The ways to switch the profiler on: in a script, by environment variable, in YAML; both packages; two ranks."""

import runpy
import sys
import textwrap
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from lightning.fabric import Fabric
from lightning.pytorch.cli import LightningCLI
from lightning.pytorch.demos.boring_classes import BoringModel
from python_process import run_python

from lightning_gpuprof import GpuProfiler
from lightning_gpuprof.analyze.journal import read_journal
from lightning_gpuprof.capture.fence import warn_of_fabric
from lightning_gpuprof.cli.main import main
from lightning_gpuprof.pipeline import load_report

SCRIPT = """
import torch
from {package} import LightningModule, Trainer
from torch.utils.data import DataLoader, TensorDataset

class Model(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)
    def training_step(self, batch, batch_idx):
        return self.layer(batch[0]).square().mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

if __name__ == "__main__":
    {extra}
    trainer = Trainer(max_epochs=2, accelerator="cpu", logger=False, enable_progress_bar=False,
                      enable_checkpointing=False, enable_model_summary=False, {arguments})
    trainer.fit(Model(), DataLoader(TensorDataset(torch.randn(60, 8)), batch_size=2))
    print("DONE", [type(c).__name__ for c in trainer.callbacks])
"""


@dataclass(frozen=True)
class Done:
    """A program that ended well."""

    stdout: str


def written(folder: Path, *, package: str, extra: str = "pass", arguments: str = "") -> Path:
    """The script of a user."""
    script = folder / "train.py"
    script.write_text(textwrap.dedent(SCRIPT.format(package=package, extra=extra, arguments=arguments)))
    return script


def run_process(folder: Path, *command: str) -> Done:
    """In a process of its own, as users run it."""
    return Done(run_python(*command, cwd=folder).stdout)


@pytest.fixture
def run_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Done]:
    """The script in this process, which has imported torch already."""

    def run(**options: str) -> Done:
        monkeypatch.chdir(tmp_path)
        runpy.run_path(str(written(tmp_path, package="lightning.pytorch", **options)), run_name="__main__")
        return Done(capsys.readouterr().out)

    return run


def profiled_by_the_environment(done: Done, folder: Path) -> None:
    assert "gpuprof report " in done.stdout
    assert load_report(folder / "gpuprof").steps.count == 60


def test_one_environment_variable_profiles_any_script(
    run_here: Callable[..., Done], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUPROF", "1")
    profiled_by_the_environment(run_here(), tmp_path)


@pytest.mark.parametrize("value", ["", "0", "off"])
def test_without_it_nothing_happens(
    run_here: Callable[..., Done], tmp_path: Path, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUPROF", value)
    assert "GpuProfiler" not in run_here().stdout
    assert not (tmp_path / "gpuprof").exists()


ONE_LINE = {
    "extra": "from lightning_gpuprof import GpuProfiler",
    "arguments": "callbacks=[GpuProfiler(windows=(20, 22))]",
}


def profiled_by_one_line(folder: Path) -> None:
    report = load_report(folder / "gpuprof")
    assert report.steps.count == 60
    assert report.windows[0].start_step == 20
    assert {row.phase for row in report.phases if row.total_s > 0} >= {"data_wait", "forward", "backward", "optimizer"}


def test_one_line_in_the_script_works(run_here: Callable[..., Done], tmp_path: Path) -> None:
    run_here(**ONE_LINE)
    profiled_by_one_line(tmp_path)
    assert load_report(tmp_path / "gpuprof").windows[0].problem == ""


BOTH = """
import os, runpy, sys
for folder, given in ((sys.argv[1], "1"), (sys.argv[2], "")):
    os.environ["GPUPROF"] = given
    os.chdir(folder)
    runpy.run_path("train.py", run_name="__main__")
    print("NEXT")
"""


@pytest.mark.slow
def test_the_variable_and_the_line_work_in_a_process_with_the_other_package(tmp_path: Path) -> None:
    variable, line = tmp_path / "variable", tmp_path / "line"
    for folder, options in ((variable, {}), (line, ONE_LINE)):
        folder.mkdir()
        written(folder, package="pytorch_lightning", **options)
    done = run_process(tmp_path, "-c", BOTH, str(variable), str(line))
    profiled_by_the_environment(Done(done.stdout.partition("NEXT")[0]), variable)
    profiled_by_one_line(line)


def test_a_profiler_of_the_script_and_one_of_the_environment_measure_once(
    run_here: Callable[..., Done], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUPROF", "1")
    run_here(extra=ONE_LINE["extra"], arguments="callbacks=[GpuProfiler(windows=[])]")
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_dir()) == ["gpuprof"]
    assert not load_report(tmp_path / "gpuprof").windows


@pytest.mark.slow
def test_two_ranks_write_a_journal_each_and_name_their_synchronisation(tmp_path: Path) -> None:
    arguments = "callbacks=[GpuProfiler(windows=(5, 6))], strategy='ddp', devices=2"
    script = written(tmp_path, package="lightning.pytorch", extra=ONE_LINE["extra"], arguments=arguments)
    run_process(tmp_path, str(script))
    folder = tmp_path / "gpuprof"
    assert sorted(p.name for p in folder.glob("*.jsonl")) == ["rank0.jsonl", "rank1.jsonl"]
    report = load_report(folder)
    assert report.run["world_size"] == 2
    assert next(row.total_s for row in report.phases if row.phase == "sync") > 0
    other = read_journal(folder / "rank1.jsonl")
    assert len(other.steps) == report.steps.count == 30
    assert not other.windows  # only rank 0 traces


CONFIG = """
trainer:
  max_epochs: 1
  limit_train_batches: 30
  limit_val_batches: 0
  accelerator: cpu
  logger: false
  enable_checkpointing: false
  callbacks:
    - class_path: lightning_gpuprof.GpuProfiler
      init_args:
        windows: [3, [10, 12]]
        trace: {active: 2, warmup: 1}
        nvml: false
        host: {interval_s: 0.5}
        dirpath: $RUN_FOLDER/out
"""


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A program of LightningCLI."""

    def fit(config: str, *arguments: str) -> None:
        (tmp_path / "config.yaml").write_text(config)
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("RUN_FOLDER", str(tmp_path))
        monkeypatch.setattr(sys, "argv", ["cli.py", "fit", "--config", "config.yaml", *arguments])
        LightningCLI(BoringModel, save_config_callback=None)

    return fit


def test_yaml_switches_everything(cli: Callable[..., None], tmp_path: Path) -> None:
    cli(CONFIG)
    report = load_report(tmp_path / "out")
    assert [(w.start_step, w.stop_step) for w in report.windows] == [(3, 4), (10, 12)]
    assert not any("NVML" in caveat for caveat in report.validity.caveats)


def test_a_printed_configuration_can_be_read_again(
    cli: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    printed = [CONFIG]
    for _ in range(2):
        with pytest.raises(SystemExit) as ended:
            cli(printed[-1], "--print_config")
        assert ended.value.code == 0
        printed.append(capsys.readouterr().out)
    assert "GpuProfiler" in printed[1]
    assert printed[2] == printed[1]


def test_a_wrong_option_in_yaml_is_told_in_words(cli: Callable[..., None]) -> None:
    with pytest.raises(ValueError, match=r"trace\.active must be an integer of at least 1, got 0"):
        cli(CONFIG, "--trainer.callbacks.trace.active=0")


@pytest.mark.parametrize("module", ["end_of_run", "factory", "trial.program"])
def test_importing_the_package_imports_neither_torch_nor_lightning(module: str) -> None:
    code = f"import sys, lightning_gpuprof.{module}; print([m for m in ('torch', 'lightning') if m in sys.modules])"
    assert run_python("-c", code).stdout.strip() == "[]"


def two_models_of_fabric(profiler: GpuProfiler) -> None:
    fabric = Fabric(accelerator="cpu", callbacks=[profiler])
    for _ in range(2):
        model = torch.nn.Linear(8, 1)
        model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.1))
        fabric.backward(model(torch.ones(2, 8)).sum())
        optimizer.step()


def test_fabric_is_told_once_that_nothing_is_measured(tmp_path: Path) -> None:
    with pytest.warns(RuntimeWarning, match="GpuProfiler needs Lightning's Trainer, and this is Fabric") as told:
        two_models_of_fabric(GpuProfiler(dirpath=str(tmp_path / "profile")))
    assert len([one for one in told if "gpuprof" in str(one.message)]) == 1
    assert not (tmp_path / "profile").exists()


def test_what_fabric_is_told_to_do_instead_makes_a_trace_that_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.warns(RuntimeWarning) as told:
        warn_of_fabric()
    _, opening, after = str(told[0].message).split("`")
    assert "call p.step() after each batch" in after
    step = "torch.ones(8, 8).matmul(torch.ones(8, 8))"
    exec(f"{opening}\n for _ in range(20):\n  {step}\n  p.step()\n", {"torch": torch})
    assert main(after.rpartition("gpuprof ")[2].split()) == 0
    assert "3 steps" in capsys.readouterr().out


def test_a_script_of_fabric_is_told_that_the_environment_variable_does_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    point = '[lightning.fabric.callbacks_factory]\ngpuprof = "lightning_gpuprof.factory:fabric_callbacks"\n'
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert point.replace("[", '[project.entry-points."').replace("]", '"]') in project
    installed = tmp_path / "fabric_ways-1.dist-info"  # as pip writes it
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: fabric-ways\nVersion: 1\n")
    (installed / "entry_points.txt").write_text(point.replace('"', ""))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("GPUPROF", "1")
    with pytest.warns(RuntimeWarning, match="GpuProfiler needs Lightning's Trainer, and this is Fabric"):
        Fabric(accelerator="cpu")
    monkeypatch.setenv("GPUPROF", "0")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Fabric(accelerator="cpu")
