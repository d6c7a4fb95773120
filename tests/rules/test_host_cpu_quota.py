from __future__ import annotations

from typing import Any

import pytest
from metrics_builder import build, replace, share

from lightning_gpuprof.model.host import GroupUse, HostUse
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.engine import diagnose
from lightning_gpuprof.rules.input.host_cpu_quota import HostCpuQuota
from lightning_gpuprof.rules.steps.cpu_contention import CpuContention

RULE = HostCpuQuota()


def planted(
    ratio: float | None = 0.6, held: float | None = 0.5, *, quota: float | None = 2.0, **changes: Any
) -> Metrics:
    group = GroupUse(
        quota_cpus=quota, periods_count=changes.pop("periods", 480.0), throttled_ratio=ratio, throttled_cpus=held
    )
    run = {"cpu.count": 4, **changes.pop("run", {})}
    return build(host=HostUse(samples=48, cgroup=group), run=run, **changes)


def test_it_says_how_much_is_missing() -> None:
    finding = RULE.check(planted())
    assert finding is not None
    assert "The quota of 2 CPUs was used up in 60 % of 480 periods" in finding.summary
    assert "Raise the quota by 0.5 CPUs to 2.5 CPUs" in finding.advice
    assert finding.gain is not None
    assert finding.gain.saved_ms_per_step == pytest.approx(25.0)


@pytest.mark.parametrize(("ratio", "fires"), [(0.09, False), (0.1, True)])
def test_a_tenth_of_the_periods_decides(ratio: float, fires: bool) -> None:
    assert (RULE.check(planted(ratio)) is not None) is fires


def test_many_periods_that_cost_little_are_no_matter() -> None:
    assert RULE.check(planted(0.6, 0.02)) is None


def test_it_is_quiet_without_a_quota() -> None:
    assert RULE.check(planted(quota=None)) is None
    assert RULE.check(build(host=HostUse(samples=48))) is None


def test_it_is_quiet_where_the_quota_is_not_used_up() -> None:
    assert RULE.check(planted(0.0, 0.0)) is None


def test_what_was_not_measured_is_not_judged() -> None:
    with pytest.raises(MissingSignal, match="was not sampled"):
        RULE.check(replace(build(), host=HostUse()))
    with pytest.raises(MissingSignal, match="counters"):
        RULE.check(planted(None))
    with pytest.raises(MissingSignal, match="49 periods of the quota, 50 are needed"):
        RULE.check(planted(periods=49.0))


@pytest.mark.parametrize(
    ("count", "severity", "lower_ms"), [(2, "critical", 12.5), (8, "info", 3.125), (None, "info", 0)]
)
def test_only_what_is_lost_on_all_cpus_is_certain(count: int | None, severity: str, lower_ms: float) -> None:
    finding = RULE.check(planted(run={"cpu.count": count}))
    assert finding is not None
    assert finding.severity == severity
    assert finding.gain is not None
    assert finding.gain.saved_lower_ms_per_step == pytest.approx(lower_ms)


def test_the_time_that_it_is_held_back_is_gained_once() -> None:
    metrics = planted()
    cpu = replace(metrics.cpu, run_delay_ratio=0.4, run_delay=share(20.0, 50.0), run_delay_samples=40)
    metrics = replace(metrics, cpu=cpu)
    found = diagnose(metrics, [RULE, CpuContention()]).findings
    assert len(found) == 2
    alone_ms = [f.gain.saved_ms_per_step for rule in (RULE, CpuContention()) if (f := rule.check(metrics)) and f.gain]
    assert sum(f.gain.saved_ms_per_step for f in found if f.gain) == pytest.approx(max(alone_ms))


@pytest.mark.parametrize(
    ("device", "workers", "advice"),
    [
        ("cpu", 2, ": torch.set_num_threads(6) ("),
        ("cpu", 9, ": DataLoader(..., num_workers=7) and torch.set_num_threads(1) ("),
        ("cuda", 2, ": torch.set_num_threads(1) ("),
        ("cuda", 12, ": DataLoader(..., num_workers=7) and torch.set_num_threads(1) ("),
    ],
)
def test_a_model_on_a_cpu_keeps_its_threads(device: str, workers: int, advice: str) -> None:
    finding = RULE.check(planted(quota=8.0, num_workers=workers, run={"device.type": device, "torch.num_threads": 8}))
    assert finding is not None
    assert advice in finding.advice


def test_what_is_set_already_is_not_advised() -> None:
    finding = RULE.check(planted(quota=8.0, num_workers=2, run={"device.type": "cuda", "torch.num_threads": 1}))
    assert finding is not None
    assert (
        finding.advice == "Raise the quota by 0.5 CPUs to 8.5 CPUs (Kubernetes: resources.limits.cpu; Docker: --cpus)."
    )
