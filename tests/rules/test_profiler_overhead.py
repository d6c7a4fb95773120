from __future__ import annotations

import msgspec
import pytest
from metrics_builder import build, replace

from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.loop.profiler_overhead import ProfilerOverhead

RULE = ProfilerOverhead()


def costing(step: float | None = 0.001, background: float | None = 0.002, windows_s: float | None = 0.0) -> Metrics:
    overhead = {"share_of_step_ratio": step, "background_cpu_ratio": background, "windows_s": windows_s}
    return replace(build(), overhead=overhead)


def test_windows_that_take_long_are_told() -> None:
    finding = RULE.check(costing(windows_s=4.0))
    assert finding is not None
    assert finding.severity == "info"
    assert finding.subject == "GpuProfiler"
    assert "trace windows took 4.00 s of 21.2 s" in finding.summary
    assert finding.advice.startswith("Record fewer or shorter windows")


def test_timing_and_sampling_are_told_together() -> None:
    finding = RULE.check(costing(0.03, 0.05))
    assert finding is not None
    assert "timing takes 3.0 % of the step and sampling takes 5.0 % of a CPU" in finding.summary


@pytest.mark.parametrize(("step", "fires"), [(0.0099, False), (0.0101, True)])
def test_a_hundredth_of_the_step_decides(step: float, fires: bool) -> None:
    assert (RULE.check(costing(step)) is not None) is fires


def test_it_is_quiet_where_it_costs_little() -> None:
    assert RULE.check(costing()) is None
    assert RULE.check(costing(background=None, windows_s=None)) is None


def test_an_unknown_cost_is_not_judged() -> None:
    with pytest.raises(MissingSignal, match="own cost"):
        RULE.check(costing(None))


def test_what_a_short_run_spends_at_its_start_is_no_finding() -> None:
    wall = msgspec.structs.replace(build().wall, total_s=12.0)
    assert RULE.check(replace(costing(0.001, 0.05, 4.0), wall=wall)) is None
    assert RULE.check(replace(costing(0.2), wall=wall)) is None
