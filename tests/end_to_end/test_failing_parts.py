"""A part that fails - folder, disk, logger, NVML - costs that part and one warning."""

import textwrap
import warnings
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
from planted_runs import fit, loader, quiet_profiler
from python_process import run_python

from lightning_gpuprof import GpuProfiler
from lightning_gpuprof.analyze.journal import read_journal

pytestmark = pytest.mark.filterwarnings("ignore:You defined a `validation_step`")


def test_warnings_that_are_errors_do_not_reach_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    profiler = quiet_profiler(dirpath=str(tmp_path / "file" / "below"))
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        report = fit(tmp_path, loader=loader(), profiler=profiler)
    assert report.steps.count == 20
    assert "cannot be written" in capsys.readouterr().err


def test_a_folder_in_the_way_moves_the_run_and_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    profiler = quiet_profiler(dirpath=str(tmp_path / "file" / "below"))
    with pytest.warns(RuntimeWarning, match="cannot be written") as told:
        report = fit(tmp_path, profiler=profiler)
    assert len([w for w in told if "gpuprof" in str(w.message)]) == 1
    assert report.steps.count == 20
    assert any("cannot be written" in caveat for caveat in report.validity.caveats)


@pytest.mark.slow
def test_a_full_disk_in_mid_run_does_not_stop_training(tmp_path: Path) -> None:
    """A real limit on file size, in a process of its own."""
    script = textwrap.dedent(
        f"""
        import resource, sys
        from planted_runs import *
        sys.dont_write_bytecode = True  # it would be cut off at the limit, for all others who import the module
        resource.setrlimit(resource.RLIMIT_FSIZE, (12_000, 12_000))
        profiler = GpuProfiler(nvml=False, windows=[(600, 601)], dirpath={str(tmp_path / "out")!r})
        trainer_for({str(tmp_path)!r}, [profiler], max_epochs=1).fit(Planted(), DataLoader(Sleepy(1600), batch_size=1))
        print("TRAINED", profiler.report.steps.count, "|".join(profiler.report.validity.caveats))
        """
    )
    done = run_python("-c", script)
    trained = next(line for line in done.stdout.splitlines() if line.startswith("TRAINED"))
    assert "journal: writing failed" in trained
    assert done.stderr.count("gpuprof: journal") == 1


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
    assert "20 steps" in printed
    assert "GPU" not in printed  # a device that was not measured has no row of zeros
    assert report.validity.caveats.count("GPUs: not measured") <= 1


def test_a_logger_that_fails_on_our_numbers_costs_only_the_scalars(tmp_path: Path) -> None:
    class Picky(pl.loggers.CSVLogger):
        def log_metrics(self, metrics: Any, step: int | None = None) -> None:
            if any(name.startswith("gpuprof/") for name in metrics):
                raise RuntimeError("no such key")
            super().log_metrics(metrics, step)

    with pytest.warns(RuntimeWarning, match="logger Picky: switched off after RuntimeError: no such key"):
        report = fit(tmp_path, loader=loader(), logger=Picky(tmp_path), log_every_n_steps=5)
    assert report.steps.count == 20
