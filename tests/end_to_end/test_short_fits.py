"""Fits of a few steps: what is made of them, at once and later."""

import contextlib
import io
from dataclasses import dataclass
from pathlib import Path

import pytest
from planted_runs import Planted, loader, trainer_for

from lightning_gpuprof import GpuProfiler
from lightning_gpuprof.cli.main import main
from lightning_gpuprof.model.report import Report

pytestmark = pytest.mark.filterwarnings("ignore:You defined a `validation_step`")


@dataclass
class Short:
    report: Report
    folder: Path
    printed: str


def short_fit(folder: Path, profiler: GpuProfiler) -> Short:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        trainer_for(folder, [profiler], max_steps=4).fit(Planted(), loader())
    assert profiler.report is not None
    assert profiler.folder is not None
    return Short(report=profiler.report, folder=profiler.folder, printed=printed.getvalue())


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Short:
    return short_fit(tmp_path_factory.mktemp("short"), GpuProfiler())


def test_a_run_too_short_to_judge_has_its_numbers_and_one_line_but_no_page(short: Short) -> None:
    assert short.report.verdict.kind == "not-enough-data"
    assert {path.name for path in short.folder.iterdir() if path.name[0] != "."} == {"rank0.jsonl", "report.json"}
    (line,) = short.printed.splitlines()
    assert line.startswith("gpuprof: Too short to judge (4 steps in ")
    assert line.endswith(f"gpuprof report {short.folder} --all")


def test_the_page_is_made_when_it_is_asked_for_later(short: Short, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert main(["report", str(short.folder), "--html", str(page)]) == 0
    assert "not-enough-data" in page.read_text()
    assert " TOO SHORT " in printed.getvalue()


def test_reports_that_were_named_are_made_of_every_run(tmp_path: Path) -> None:
    asked = short_fit(tmp_path, GpuProfiler(reports=["terminal", "html"]))
    assert (asked.folder / "report.html").is_file()
    assert " TOO SHORT " in asked.printed
