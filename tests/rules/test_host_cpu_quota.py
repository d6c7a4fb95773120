import pytest
from example_runs import example_run

from lightning_gpuprof.rules.engine import diagnose
from lightning_gpuprof.rules.input.host_cpu_quota import HostCpuQuota
from lightning_gpuprof.rules.steps.cpu_contention import CpuContention


def test_the_time_that_it_is_held_back_is_gained_once() -> None:
    metrics, rules = example_run(quota={}, run_delay_ms=20.0, run={"cpu.count": 4}), [HostCpuQuota(), CpuContention()]
    found = diagnose(metrics, rules).findings
    assert len(found) == 2
    alone_ms = [f.gain.saved_ms_per_step for rule in rules if (f := rule.check(metrics)) and f.gain]
    assert sum(f.gain.saved_ms_per_step for f in found if f.gain) == pytest.approx(max(alone_ms))
