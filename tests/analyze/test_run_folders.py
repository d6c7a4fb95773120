"""The folder that a run is named by: its own, or the logger's around it, which is what `baseline=` usually names."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from sample_journals import Ticking, run_steps, writer_to

from lightning_gpuprof.capture.step_clock import StepClock
from lightning_gpuprof.errors import JournalError
from lightning_gpuprof.model.journal import Footer, WindowRecord
from lightning_gpuprof.model.report import Report
from lightning_gpuprof.model.window import WindowFacts
from lightning_gpuprof.pipeline import load_report, load_run, make_report


def save_traced_run(folder: Path) -> None:
    """A journal with one window and the facts of its trace beside it."""
    folder.mkdir(parents=True)
    clock = StepClock(now=Ticking(1000), cpu_now=Ticking(), start_ns=0)
    with (folder / "rank0.jsonl").open("wb") as file:
        writer = writer_to(file, clock)
        run_steps(clock, 40)
        writer.post(WindowRecord(start_step=10, stop_step=11, file="window.pt.trace.json.gz"))
        clock.open_segment(None)
        writer.close([Footer(end_ns=clock._now(), status="finished", overhead={})])
    facts = WindowFacts(start_step=10, stop_step=11, file="window.pt.trace.json.gz", steps_us=(7.0,))
    (folder / "window.facts.json").write_bytes(msgspec.json.encode(facts))


def of_run(path: Path) -> Report:
    return load_run(path).report


@pytest.mark.parametrize("read", [make_report, load_report, of_run])
@pytest.mark.parametrize("named", [".", "gpuprof"])
def test_the_windows_of_a_run_are_found_by_either_folder(
    tmp_path: Path, read: Callable[[Path], Report], named: str
) -> None:
    save_traced_run(tmp_path / "gpuprof")
    (window,) = read(tmp_path / named).windows
    assert (window.problem, window.steps_us) == ("", (7.0,))


@pytest.mark.parametrize("read", [make_report, load_report, of_run])
def test_of_several_runs_none_is_taken_silently(tmp_path: Path, read: Callable[[Path], Report]) -> None:
    for name in ("gpuprof", "gpuprof-test"):
        save_traced_run(tmp_path / name)
    with pytest.raises(JournalError, match=r"contains 2 runs; name one: .*gpuprof, .*gpuprof-test"):
        read(tmp_path)
