"""Exceptions, Ctrl-C and kills: they do what they do without the profiler, and what was measured is kept."""

import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
from forked_scripts import ForkedScripts
from planted_runs import Failing, Planted, loader, quiet_profiler, trainer_for

from lightning_gpuprof.analyze.journal import read_journal
from lightning_gpuprof.pipeline import load_report
from lightning_gpuprof.sinks.status_line import StatusLine

pytestmark = pytest.mark.filterwarnings("ignore:You defined a `validation_step`")


@pytest.mark.parametrize("window", [(2, 30), (6, 30), []], ids=["in the window", "in its warm-up", "without"])
def test_an_exception_comes_through_and_what_was_measured_is_there(tmp_path: Path, window: Any) -> None:
    error = ValueError("planted")
    profiler = quiet_profiler(windows=window, reports=["json", "html"])
    trainer = trainer_for(tmp_path, [profiler])
    own = trainer.profiler
    with pytest.raises(ValueError, match="planted") as caught:
        trainer.fit(Failing(5, error), loader())
    assert caught.value is error
    assert trainer.profiler is own
    assert (profiler.report.steps.count, profiler.report.steps.optimizer_steps) == (5, 5)  # the one that failed is none
    assert profiler.report.run["status"] == "interrupted: ValueError"
    said = next(caveat for caveat in profiler.report.validity.caveats if "interrupted" in caveat)
    assert said.startswith("the run was interrupted: ValueError at ")
    assert "planted_runs.py:" in said
    assert (profiler.folder / "report.html").is_file()
    traces = list(profiler.folder.glob("*.pt.trace.json.gz"))
    assert len(traces) == (1 if window == (2, 30) else 0)
    assert not list(profiler.folder.glob("*.plain.json"))
    # The same profiler and process are good for another fit.
    trainer = trainer_for(tmp_path / "second", [profiler])
    trainer.fit(Planted(), loader())
    assert profiler.report.steps.count == 20


def test_ctrl_c_ends_the_run_as_without_us(tmp_path: Path) -> None:
    profiler = quiet_profiler(windows=(2, 30))
    with pytest.raises(SystemExit) as with_us:
        trainer_for(tmp_path, [profiler]).fit(Failing(5, KeyboardInterrupt()), loader())
    with pytest.raises(SystemExit) as without:
        trainer_for(tmp_path, []).fit(Failing(5, KeyboardInterrupt()), loader())
    assert with_us.value.code == without.value.code
    assert profiler.report.run["status"] == "interrupted: KeyboardInterrupt"
    assert profiler.folder is not None
    assert read_journal(profiler.folder / "rank0.jsonl").footer is not None


def samplers() -> set[str]:
    writing = ("gpuprof-journal", "gpuprof-disk")
    names = {thread.name for thread in threading.enumerate() if thread.name.startswith("gpuprof-")}
    return {name for name in names if not name.startswith(writing)}


def comes_true(condition: Callable[[], object], within_s: float = 30) -> bool:
    until = time.monotonic() + within_s
    while not condition() and time.monotonic() < until:
        time.sleep(0.01)
    return bool(condition())


class NotingLine:
    """In the place of the terminal's line."""

    def __init__(self) -> None:
        self.cleared = threading.Event()

    def show(self, text: str) -> None:
        pass

    def clear(self) -> None:
        self.cleared.set()


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch) -> NotingLine:
    noting = NotingLine()
    monkeypatch.setenv("GPUPROF_LIVE", "1")
    monkeypatch.setattr(StatusLine, "on_terminal", classmethod(lambda cls: noting))
    return noting


def test_nothing_of_ours_goes_on_where_another_callback_keeps_us_from_hearing_of_the_end(
    tmp_path: Path, line: NotingLine
) -> None:
    class Looks(pl.Callback):
        seen: frozenset[str] = frozenset()

        def on_train_batch_end(self, *args: Any) -> None:
            self.seen |= samplers()

        def on_exception(self, *args: Any) -> None:
            raise RuntimeError("worse")

    assert comes_true(lambda: not samplers()), samplers()  # those of earlier tests
    looks, profiler = Looks(), quiet_profiler(host=True)
    trainer = trainer_for(tmp_path, [looks, profiler])
    own = trainer.profiler
    with pytest.raises(RuntimeError, match="worse"):
        trainer.fit(Failing(5, ValueError("planted")), loader())
    assert trainer.profiler is own
    assert "advance" not in vars(trainer.fit_loop.epoch_loop)
    assert "gpuprof-live line" in looks.seen
    assert comes_true(lambda: not samplers()), samplers()
    assert line.cleared.is_set()
    journal = tmp_path / "gpuprof" / "rank0.jsonl"
    assert comes_true(lambda: '"interrupted: ValueError"' in journal.read_text(errors="replace"))
    trainer_for(tmp_path / "next", [profiler]).fit(Planted(), loader())
    assert profiler.report.steps.count == 20


def test_the_live_line_goes_when_steps_are_not_measured_any_more(tmp_path: Path, line: NotingLine) -> None:
    class Breaks(pl.Callback):
        cleared = False

        def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            if batch_idx == 3:
                assert not line.cleared.is_set()
                profiler._session._steps_failed(RuntimeError("planted"))
                self.cleared = line.cleared.wait(30)

    breaks, profiler = Breaks(), quiet_profiler()
    with pytest.warns(RuntimeWarning, match="gpuprof: steps: switched off"):
        trainer_for(tmp_path, [breaks, profiler]).fit(Planted(), loader())
    assert breaks.cleared


@pytest.mark.slow
def test_a_killed_run_leaves_a_journal_that_can_be_reported(forked_scripts: ForkedScripts, tmp_path: Path) -> None:
    script = textwrap.dedent(
        f"""
        import os, signal
        from planted_runs import *
        class Kill(pl.Callback):
            def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
                if batch_idx == 300:
                    os.kill(os.getpid(), signal.SIGKILL)
        model = Planted({{"training_step": 0.005}})
        trainer_for({str(tmp_path)!r}, [GpuProfiler(nvml=False), Kill()]).fit(model, DataLoader(Sleepy(4000)))
        """
    )
    forked_scripts.run(tmp_path, script, code=-9)
    report = load_report(tmp_path / "gpuprof")
    assert 20 < report.steps.count <= 300
    assert report.run["status"] == "unfinished"
    assert report.verdict.kind != "not-enough-data"
