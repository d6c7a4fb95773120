"""Functions that are timed line by line: what is wrapped, what comes of it, what is left as it was."""

import csv
import hashlib
import importlib
import inspect
import io
import itertools
import re
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import pytest
from planted_runs import Planted, fit, quiet_profiler, single_rows

from lightning_gpuprof.analyze.data_tables import report_tables
from lightning_gpuprof.capture.call_sites import CallSiteSampler, UserCode
from lightning_gpuprof.capture.line_timer import LineTimer, check_names
from lightning_gpuprof.capture.thread_state import ThreadSources
from lightning_gpuprof.cli.main import main
from lightning_gpuprof.errors import ArgumentError
from lightning_gpuprof.model.line_times import LEAST_LOOKS
from lightning_gpuprof.pipeline import make_report
from lightning_gpuprof.sinks import json_report, terminal
from lightning_gpuprof.sinks.csv_tables import write_csv
from lightning_gpuprof.sinks.first_screen import first_screen
from lightning_gpuprof.sinks.html import render_html
from lightning_gpuprof.sinks.line_tables import timed_tables
from lightning_gpuprof.sinks.views import first

line_profiler = pytest.importorskip("line_profiler")
SOURCE = """
import functools
import time


def traced(function):
    @functools.wraps(function)
    def around(*arguments):
        return function(*arguments)

    return around


@traced
def decorated():
    return 7


def slow(count):
    total = 0
    for number in range(count):
        total += number
    time.sleep(0.02)
    return total


class Net:
    def step(self, token="secret"):
        return slow(3)

    @staticmethod
    def fixed():
        return 5

    @classmethod
    def made(cls):
        return cls()


class Child(Net):
    pass
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    (tmp_path / "timed_module.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "timed_module", raising=False)
    return importlib.import_module("timed_module")


def test_hits_and_times_of_each_line(module: ModuleType) -> None:
    said: list[str] = []
    timer = LineTimer(("timed_module:slow", "timed_module:Net.step"), said.append)
    timer.begin()
    assert module.Net().step() == 3
    found = {one.name.rpartition(".")[2]: one for one in timer.times()}
    timer.end()
    hits = {line.code: line.hits for line in found["slow"].lines}
    assert hits["total += number"] == 3
    assert hits["time.sleep(0.02)"] == 1
    slowest = max(found["slow"].lines, key=lambda line: line.total_s)
    assert slowest.code == "time.sleep(0.02)"
    assert 0.02 <= slowest.total_s <= found["step"].total_s
    assert said == []


def test_a_decorated_function_that_ran_was_called(module: ModuleType) -> None:
    timer = LineTimer(("timed_module:decorated", "timed_module:Net.step"), lambda said: None)
    timer.begin()
    assert module.decorated() == 7
    assert timer.never_called() == ["timed_module:Net.step"]
    timer.end()


DECORATED = """
import functools

import torch

from lightning_gpuprof import annotate


def traced(function):
    @functools.wraps(function)
    def around(*arguments):
        kept = function(*arguments)
        return kept

    return around


@annotate("f")
@traced
def annotated():
    return 7


@torch.no_grad()
def without_gradients():
    return 7


class Net:
    @traced
    def method(self):
        return 7

    @staticmethod
    @annotate("f")
    def fixed():
        return 7

    @classmethod
    @torch.no_grad()
    def made(cls):
        return 7


@annotate("f")
def yielded():
    yield 7


@torch.no_grad()
def yielded_without_gradients():
    yield 7


@traced
def later():
    yield 7


@traced
def sleeping(sleep):
    sleep()
"""


@pytest.fixture
def decorated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    (tmp_path / "decorated_module.py").write_text(DECORATED)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "decorated_module", raising=False)
    return importlib.import_module("decorated_module")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("annotated", "return 7"),
        ("without_gradients", "return 7"),
        ("Net.method", "return 7"),
        ("Net.fixed", "return 7"),
        ("Net.made", "return 7"),
        ("yielded", "yield 7"),
        ("yielded_without_gradients", "yield 7"),
    ],
)
def test_of_a_decorated_function_its_own_lines_are_timed(decorated: ModuleType, path: str, line: str) -> None:
    said: list[str] = []
    timer = LineTimer((f"decorated_module:{path}",), said.append)
    timer.begin()
    owner, _, name = path.rpartition(".")
    given = getattr(decorated.Net() if owner else decorated, name)()
    assert given == 7 or list(given) == [7]
    assert (timer.never_called(), said) == ([], [])
    timer.end()
    (timed,) = timer.times()
    assert timed.file == decorated.__file__
    assert [(one.code, one.hits) for one in timed.lines] == [(line, 1)]


def test_lines_of_a_decorated_function_are_looked_at(decorated: ModuleType) -> None:
    timer = LineTimer(("decorated_module:sleeping",), print)
    timer.begin()
    decorated.sleeping(lambda: [timer.look(sys._getframe(), is_off_cpu=True) for _ in range(LEAST_LOOKS)])
    timer.end()
    (timed,) = timer.times()
    assert [(one.code, one.blocked_ratio) for one in timed.lines] == [("sleep()", 1.0)]


def test_a_generator_that_runs_after_its_decorator_is_not_timed_and_said(decorated: ModuleType) -> None:
    said: list[str] = []
    timer = LineTimer(("decorated_module:later",), said.append)
    timer.begin()
    assert list(decorated.later()) == [7]
    timer.end()
    assert said == ["decorated_module:later is not timed: later runs after its decorator has returned"]
    assert timer.times() == ()


def test_all_is_as_it_was(module: ModuleType) -> None:
    before = {name: vars(module.Net)[name] for name in ("step", "fixed", "made")}
    timer = LineTimer(("timed_module:Net.step", "timed_module:Net.fixed", "timed_module:Net.made"), print)
    timer.begin()
    assert module.Net.fixed() == 5
    assert isinstance(module.Child.made(), module.Child)
    timer.end()
    timer.end()
    assert {name: vars(module.Net)[name] for name in before} == before
    assert len(timer.times()) == 2


def test_what_another_put_in_its_place_stays(module: ModuleType) -> None:
    timer = LineTimer(("timed_module:slow",), print)
    timer.begin()
    module.slow = len
    timer.end()
    assert module.slow is len


def test_the_script_itself_is_found_by_its_name_and_a_class_is_no_function(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "timed_module")
    monkeypatch.setitem(sys.modules, "__main__", module)
    said: list[str] = []
    timer = LineTimer(("timed_module:slow", "timed_module:Net", "__main__:time"), said.append)
    timer.begin()
    module.slow(2)
    timer.end()
    assert len(timer.times()) == 1
    assert said == [
        "timed_module:Net is not timed: Net is a class: name one of its methods; "
        "__main__:time is not timed: time is no Python function"
    ]


def test_functions_that_are_not_there_are_said_and_cost_no_other(module: ModuleType) -> None:
    said: list[str] = []
    names = "nowhere:f", "timed_module:quick", "timed_module:Child.step", "timed_module:slow"
    timer = LineTimer(names, said.append)
    timer.begin()
    module.slow(1)
    timer.end()
    assert [one.name.rpartition(".")[2] for one in timer.times()] == ["slow"]
    assert said == [
        "nowhere:f is not timed: nowhere is not imported in this process; "
        "timed_module:quick is not timed: timed_module has no quick; "
        "timed_module:Child.step is not timed: Child inherits step: name timed_module:Net.step"
    ]


@pytest.mark.parametrize("lines", ["train:f", 3, ["train"], [3], ["train:"], ["a b:f"]])
def test_names_that_cannot_work(lines: object) -> None:
    with pytest.raises(ArgumentError, match="lines must"):
        check_names(lines)
    assert check_names(["train:f", "a.b:C.d"]) == ("train:f", "a.b:C.d")


def test_lines_are_looked_at_where_they_are_timed_and_a_few_looks_say_nothing(module: ModuleType) -> None:
    timer = LineTimer(("timed_module:slow", "timed_module:Net.step"), print)
    timer.begin()
    sleeping = module.time.sleep

    def looked(seconds: float) -> None:
        for number in range(LEAST_LOOKS):
            timer.look(sys._getframe(1), is_off_cpu=number > 0)
        sleeping(seconds)

    module.time.sleep = looked
    try:
        module.Net().step()
        timer.look(sys._getframe(), is_off_cpu=True)
    finally:
        module.time.sleep = sleeping
    timer.end()
    found = {line.code: line.blocked_ratio for function in timer.times() for line in function.lines}
    assert found == {
        "total = 0": None,
        "for number in range(count):": None,
        "total += number": None,
        "time.sleep(0.02)": 1 - 1 / LEAST_LOOKS,
        "return total": None,
        "return slow(3)": 1 - 1 / LEAST_LOOKS,  # with all that it calls
    }


needs_thread_states = pytest.mark.skipif(
    ThreadSources.of(threading.get_ident()) is None, reason="this system does not say what a thread does"
)
DATA = bytes(16_000_000)
PATIENCE_S = 60


def worked(wait: Callable[[], object], loop: Callable[[], object], digest: Callable[[], object]) -> None:
    wait()
    loop()
    digest()


@needs_thread_states
def test_a_line_that_waits_is_blocked_and_one_that_computes_is_not(tmp_path: Path) -> None:
    timer = LineTimer((f"{__name__}:worked",), print)
    timer.begin()
    waited, looped, digested = overs = threading.Event(), threading.Event(), threading.Event()

    def loop() -> None:
        while not looped.is_set():
            sum(number * number for number in range(10_000))

    def digest() -> None:
        while not digested.is_set():
            hashlib.sha256(DATA).digest()

    looks: Counter[int] = Counter()

    def look(innermost: FrameType, is_off_cpu: bool) -> None:
        timer.look(innermost, is_off_cpu)
        looks.update(line for frame, line in traceback.walk_stack(innermost) if frame.f_code.co_name == "worked")

    thread = threading.Thread(target=worked, args=(waited.wait, loop, digest))
    thread.start()
    code = UserCode(cwd=str(tmp_path), library_roots=[])
    sampler = CallSiteSampler(thread.ident or 0, lambda: -1, user_code=code, on_look=look)
    sampler.open()
    until = time.monotonic() + PATIENCE_S
    second = itertools.count(step=20)  # after the first ones it asks for the interpreter less often
    for line, over in enumerate(overs, inspect.unwrap(worked).__code__.co_firstlineno + 1):
        while looks[line] < 2 * LEAST_LOOKS and time.monotonic() < until:
            sampler.sample(next(second) * 1_000_000_000)
        over.set()
    sampler.close()
    thread.join(PATIENCE_S)
    timer.end()
    (timed,) = timer.times()
    waits, loops, digests = timed.lines
    assert (waits.blocked_ratio or 0.0) > 0.8
    for row in loops, digests:
        assert row.blocked_ratio is not None
        assert row.blocked_ratio < 0.2


class Waiting(Planted):
    """Waits in one line until it has been looked at often enough."""

    looked = threading.Event()

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        self.looked.wait(PATIENCE_S)
        return super().training_step(batch, batch_idx)


@needs_thread_states
def test_a_fit_says_how_long_a_line_was_blocked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    looked_at = LineTimer.look

    def look(timer: LineTimer, innermost: FrameType, is_off_cpu: bool) -> None:
        nonlocal looks
        looked_at(timer, innermost, is_off_cpu)
        at = [frame.f_code for frame, _ in traceback.walk_stack(innermost)]
        looks += at[0].co_name == "wait" and any(code.co_filename == __file__ for code in at[1:3])
        if looks >= LEAST_LOOKS:
            Waiting.looked.set()

    monkeypatch.setattr(LineTimer, "look", look)
    monkeypatch.setattr(Waiting, "looked", threading.Event())
    profiler = quiet_profiler(lines=[f"{__name__}:Waiting.training_step"])
    report = fit(tmp_path, Waiting(), single_rows(10), profiler=profiler)
    (timed,) = report.line_times
    waits, _ = timed.lines
    assert waits.code == "self.looked.wait(PATIENCE_S)"
    assert waits.blocked_ratio is not None
    assert waits.blocked_ratio > 0.8

    blocked = waits.blocked_ratio * waits.total_s * 1e3
    (table,) = timed_tables(report.line_times, report.lines)
    at = [column.title for column in table.columns].index("blocked")
    assert float(table.rows[0][at].text.replace(",", "")) == pytest.approx(blocked, rel=0.01)
    stream = io.StringIO()
    terminal.print_report(report, stream)
    page = render_html(report)
    for shown in (stream.getvalue(), page):
        assert "blocked" in shown.partition("Lines of ")[2].partition("looked.wait")[0]
    assert "the main thread was asleep, or waited for a file" in page
    (of_table,) = write_csv([table], tmp_path)
    assert "blocked (ms)" in next(csv.reader(of_table.read_text().splitlines()))
    (exported,) = (table for table in report_tables(report) if table.name == "line_times")
    assert exported.columns["blocked_ratio"][0] == waits.blocked_ratio
    assert f'"blocked_ratio": {waits.blocked_ratio}'[:20] in json_report.encode(report).decode()


def test_a_fit_has_its_lines_in_the_report_and_a_profile_of_kernprof_beside_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = vars(Planted)["training_step"]
    names = ["planted_runs:Planted.training_step", "planted_runs:nothing", "planted_runs:named"]
    profiler = quiet_profiler(lines=names)
    with pytest.warns(RuntimeWarning, match="planted_runs:nothing is not timed"):
        report = fit(tmp_path, Planted({"training_step": 0.01}), single_rows(40), profiler=profiler)
    assert vars(Planted)["training_step"] is before
    (timed,) = report.line_times
    assert timed.name.endswith("training_step")
    assert {line.hits for line in timed.lines} == {40}
    assert 0.2 <= timed.total_s <= report.wall.total_s
    assert any("planted_runs has no nothing" in text for text in report.validity.caveats)
    assert "lines: planted_runs:named was never called by this name in the training process" in (
        report.validity.caveats
    )
    assert not any("training_step was never called" in text for text in report.validity.caveats)
    screen = first_screen(report)
    assert screen.reliability.words.startswith("less reliable: lines= slows")
    slowest = r'planted_runs\.py:\d+ takes \d+ % of Planted\.training_step \(lines=\): self\.nap\("training_step"\)'
    assert re.fullmatch(slowest, screen.timed)
    assert "Planted.training_step</code> (lines=)" in first.render(screen).replace("<wbr>", "")
    assert profiler.folder is not None
    again = make_report(profiler.folder)  # from the journal alone
    assert again.line_times == report.line_times

    def work() -> int:
        return sum(range(1000))

    other = line_profiler.LineProfiler()
    other(work)()
    other.dump_stats(str(tmp_path / "other.lprof"))
    assert main(["report", str(profiler.folder), "--lines", str(tmp_path / "other.lprof")]) == 0
    shown = capsys.readouterr().out
    assert "by line_profiler" in shown
    assert main(["report", str(profiler.folder)]) == 0
    assert "% of Planted.training_step (lines=)" in capsys.readouterr().out
    assert "per hit" in shown
    assert main(["report", str(profiler.folder), "--all"]) == 0
    assert "training_step in planted_runs.py, by line_profiler" in capsys.readouterr().out
