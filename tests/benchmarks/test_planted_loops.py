"""The comparison of planted and found: what other work took from a run may be in any place, and no more than that."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import msgspec
import psutil
import pytest
from planted_loops.cases import CASES
from planted_loops.check import compare, disagreements
from planted_loops.disturbance import Disturbance
from planted_loops.naps import Naps
from planted_loops.run import Measured, Run

pytestmark = pytest.mark.filterwarnings("ignore")


def pressure(root: Path, waited_us: int, resource: str = "cpu") -> None:
    (root / "pressure").mkdir(exist_ok=True)
    (root / "pressure" / resource).write_text(
        f"some avg10=0.00 avg60=0.00 avg300=0.00 total={waited_us}\n"
        "full avg10=0.00 avg60=0.00 avg300=0.00 total=999999999\n"
    )


@pytest.fixture
def no_steal(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other guest has the CPUs of this machine."""
    monkeypatch.setattr(psutil, "cpu_times", lambda: SimpleNamespace(steal=0.0))


@pytest.mark.usefixtures("no_steal")
def test_lost_is_what_the_kernel_counted_meanwhile(tmp_path: Path) -> None:
    pressure(tmp_path, 5_000_000)
    disturbance = Disturbance(str(tmp_path))
    assert disturbance.lost_s() == 0
    pressure(tmp_path, 7_500_000)
    assert disturbance.lost_s() == pytest.approx(2.5)
    pressure(tmp_path, 1_000_000, "io")
    pressure(tmp_path, 500_000, "memory")
    assert disturbance.lost_s() == pytest.approx(4.0)


@pytest.mark.usefixtures("no_steal")
def test_a_kernel_that_does_not_tell_lost_nothing(tmp_path: Path) -> None:
    assert Disturbance(str(tmp_path)).lost_s() == 0


def test_rivals_on_all_cpus_are_seen() -> None:
    if not Path("/proc/pressure/cpu").exists():
        pytest.skip("this kernel does not tell pressure")
    rivals = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        disturbance = Disturbance()
        end = time.perf_counter() + 60
        while disturbance.lost_s() < 0.5 and time.perf_counter() < end:
            time.sleep(0.05)
        assert disturbance.lost_s() >= 0.5
    finally:
        for rival in rivals:
            rival.kill()
            rival.wait()


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Measured, Measured]:
    """A run and its twin."""
    case = next(case for case in CASES if case.name == "only backward")

    def run(name: str, naps: Naps) -> Measured:
        run = Run(tmp_path_factory.mktemp(name), naps)
        case.do(run)
        return run.measured[0]

    return run("naps", Naps(case.naps)), run("twin", Naps(case.naps, awake=True))


def test_a_nap_that_was_not_taken_is_wrong_unless_the_machine_took_it(measured: tuple[Measured, Measured]) -> None:
    fit, twin = measured
    case = next(case for case in CASES if case.name == "only backward")
    # Seconds, not milliseconds: the loop's own time in a busy twin must not cover them.
    untold = replace(fit, slept_s={name: seconds - 5.0 for name, seconds in fit.slept_s.items()}, lost_s=0.0)
    wrong = {line.where for line in compare("a", untold, twin, case) if not line.ok}
    assert "phase backward" in wrong
    assert [line for line in compare("a", replace(untold, lost_s=10.0), twin, case) if not line.ok] == []
    # What was planted must be found whatever the machine took.
    more = replace(fit, slept_s={name: seconds + 5.0 for name, seconds in fit.slept_s.items()}, lost_s=10.0)
    assert "phase backward" in {line.where for line in compare("a", more, twin, case) if not line.ok}


@pytest.mark.parametrize(("lost_s", "holds"), [(0.0, False), (1.0, True)])
def test_unexplained_time_is_wrong_unless_the_machine_took_it(
    measured: tuple[Measured, Measured], lost_s: float, holds: bool
) -> None:
    fit, _ = measured
    told = told_of(
        fit, lambda parts: {**parts, "train": parts["train"] - 0.1, "unexplained": parts["unexplained"] + 0.1}
    )
    problems = [problem for problem in disagreements(replace(told, lost_s=lost_s)) if "explained" in problem]
    assert bool(problems) is not holds


def told_of(fit: Measured, change: Callable[[dict[str, float]], dict[str, float]]) -> Measured:
    wall = msgspec.structs.replace(fit.report.wall, parts=change(fit.report.wall.parts))
    return replace(fit, report=msgspec.structs.replace(fit.report, wall=wall))
