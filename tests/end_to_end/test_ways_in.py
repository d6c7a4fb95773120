"""The ways to switch the profiler on: in a script, by environment variable, in YAML; both packages; two ranks."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from lightning_gpuprof.analyze.journal import read_journal
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


def run_script(
    folder: Path, *, package: str = "lightning.pytorch", extra: str = "pass", arguments: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    script = folder / "train.py"
    script.write_text(textwrap.dedent(SCRIPT.format(package=package, extra=extra, arguments=arguments)))
    return subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, **environment},
        timeout=240,
        check=False,
    )


@pytest.mark.parametrize("package", ["lightning.pytorch", "pytorch_lightning"])
def test_one_environment_variable_profiles_any_script(tmp_path: Path, package: str) -> None:
    done = run_script(tmp_path, package=package, GPUPROF="1")
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Verdict" in done.stdout
    assert load_report(tmp_path / "gpuprof").steps.count == 60


@pytest.mark.slow
@pytest.mark.parametrize("value", ["", "0", "off"])
def test_without_it_nothing_happens(tmp_path: Path, value: str) -> None:
    done = run_script(tmp_path, GPUPROF=value)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "GpuProfiler" not in done.stdout
    assert not (tmp_path / "gpuprof").exists()


@pytest.mark.parametrize("package", ["lightning.pytorch", "pytorch_lightning"])
def test_one_line_in_the_script_works_for_both_packages(tmp_path: Path, package: str) -> None:
    done = run_script(
        tmp_path,
        package=package,
        extra="from lightning_gpuprof import GpuProfiler",
        arguments="callbacks=[GpuProfiler(windows=(20, 22))]",
    )
    assert done.returncode == 0, done.stderr[-2000:]
    report = load_report(tmp_path / "gpuprof")
    assert report.steps.count == 60
    assert report.windows[0].problem == ""
    assert {row.phase for row in report.phases if row.total_s > 0} >= {"data_wait", "forward", "backward", "optimizer"}


def test_a_profiler_of_the_script_and_one_of_the_environment_measure_once(tmp_path: Path) -> None:
    done = run_script(
        tmp_path,
        extra="from lightning_gpuprof import GpuProfiler",
        arguments="callbacks=[GpuProfiler(windows=[])]",
        GPUPROF="1",
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_dir()) == ["gpuprof"]
    assert not load_report(tmp_path / "gpuprof").windows


@pytest.mark.slow
def test_two_ranks_write_a_journal_each_and_name_their_synchronisation(tmp_path: Path) -> None:
    done = run_script(
        tmp_path,
        extra="from lightning_gpuprof import GpuProfiler",
        arguments="callbacks=[GpuProfiler(windows=(5, 6))], strategy='ddp', devices=2",
    )
    assert done.returncode == 0, done.stderr[-3000:]
    folder = tmp_path / "gpuprof"
    assert sorted(p.name for p in folder.glob("*.jsonl")) == ["rank0.jsonl", "rank1.jsonl"]
    report = load_report(folder)
    assert report.run["world_size"] == 2
    assert next(row.total_s for row in report.phases if row.phase == "sync") > 0
    other = read_journal(folder / "rank1.jsonl")
    assert len(other.steps) == report.steps.count == 30
    assert not other.windows  # only rank 0 traces


CLI = """
from lightning.pytorch.cli import LightningCLI
from lightning.pytorch.demos.boring_classes import BoringModel
if __name__ == "__main__":
    LightningCLI(BoringModel, save_config_callback=None)
"""

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


def cli(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "cli.py").write_text(CLI)
    (folder / "config.yaml").write_text(CONFIG)
    return subprocess.run(
        [sys.executable, "cli.py", "fit", "--config", "config.yaml", *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "RUN_FOLDER": str(folder)},
        timeout=240,
        check=False,
    )


@pytest.mark.slow
def test_yaml_switches_everything(tmp_path: Path) -> None:
    done = cli(tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    report = load_report(tmp_path / "out")
    assert [(w.start_step, w.stop_step) for w in report.windows] == [(3, 4), (10, 12)]
    assert not any("NVML" in caveat for caveat in report.validity.caveats)


@pytest.mark.slow
def test_a_printed_configuration_can_be_read_again(tmp_path: Path) -> None:
    printed = cli(tmp_path, "--print_config")
    assert printed.returncode == 0, printed.stderr[-3000:]
    (tmp_path / "again.yaml").write_text(printed.stdout)
    again = subprocess.run(
        [sys.executable, "cli.py", "fit", "--config", "again.yaml", "--print_config"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=240,
        check=False,
    )
    assert again.returncode == 0, again.stderr[-3000:]
    assert again.stdout == printed.stdout


@pytest.mark.slow
def test_a_wrong_option_in_yaml_is_told_in_words(tmp_path: Path) -> None:
    done = cli(tmp_path, "--trainer.callbacks.trace.active=0")
    assert done.returncode != 0
    assert "trace.active must be an integer of at least 1, got 0" in done.stderr


def test_importing_the_package_imports_neither_torch_nor_lightning() -> None:
    code = "import sys, lightning_gpuprof.pipeline; print([m for m in ('torch', 'lightning') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
