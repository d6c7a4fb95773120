"""Other ways to run Python: without asserts or docstrings, with warnings as errors, any hash seed, in a notebook."""

import importlib.util
import textwrap
from pathlib import Path

import pytest
from python_process import run_python

from lightning_gpuprof.pipeline import load_report

SCRIPT = """
import warnings
from pathlib import Path
warnings.filterwarnings("ignore", module=r"(lightning|torch|tensorboard|IPython|ipykernel)\\b")
from unusual_loops import Silent, fitted, loader
from lightning_gpuprof import GpuProfiler
import patience
patience.begin()
profiler = GpuProfiler(windows=5, nvml=False, dirpath={out!r})
_, model = fitted(Path({out!r}), [profiler], model=Silent, logger=True, val=loader)
"""


def script(folder: Path) -> str:
    return SCRIPT.format(out=str(folder / "out"))


def is_whole(folder: Path) -> None:
    report = load_report(folder / "out" / "report.json")
    assert (report.steps.count, report.run["status"]) == (40, "finished")
    assert [window.problem for window in report.windows] == [""]
    assert not any("switched off" in caveat for caveat in report.validity.caveats)


@pytest.mark.slow
def test_a_fit_under_other_flags_is_measured_as_always(tmp_path: Path) -> None:
    """One fit for all: torch takes half a minute to be compiled for each way of leaving something out."""
    done = run_python("-OO", "-W", "error", "-c", script(tmp_path), PYTHONHASHSEED="0")
    assert "gpuprof" not in done.stderr
    assert "gpuprof report " in done.stdout
    is_whole(tmp_path)
    # A report says the same in the same order, whatever the hash seed.
    report = ("-m", "lightning_gpuprof", "report", tmp_path / "out")
    assert run_python(*report, PYTHONHASHSEED="1").stdout == run_python(*report, PYTHONHASHSEED="2").stdout


def test_where_docstrings_are_left_out_a_rules_page_says_so() -> None:
    page = run_python("-OO", "-m", "lightning_gpuprof", "explain", "input-bound")
    assert "python -OO leaves those out" in page.stdout
    assert "## Thresholds" in page.stdout


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("nbclient") is None, reason="Jupyter is not installed")
def test_a_fit_in_a_notebook_shows_its_report_in_the_cell(tmp_path: Path) -> None:
    code = f"""
    import nbformat
    from nbclient import NotebookClient
    book = nbformat.v4.new_notebook()
    book.cells = [nbformat.v4.new_code_cell({script(tmp_path)!r}), nbformat.v4.new_code_cell("profiler.report")]
    NotebookClient(book, timeout=240).execute()
    print("gpuprof report " in str(book.cells[0].outputs), "text/html" in book.cells[1].outputs[0]["data"])
    """
    assert run_python("-c", textwrap.dedent(code)).stdout.strip() == "True True"
    is_whole(tmp_path)
