from __future__ import annotations

import pytest
from device_builder import STEPS, collective, distributed, without_windows

from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.engine import diagnose
from lightning_gpuprof.rules.ranks.ddp_bucket_size import DdpBucketSize
from lightning_gpuprof.rules.ranks.exposed_comm import ExposedComm

RULE = DdpBucketSize()
MIB = 2**20


def small_buckets(
    count: int = 100, *, cap_mb: int | None = 1, ms: float = 0.1, strategy: str = "DDPStrategy"
) -> Metrics:
    run = {"trainer.bucket_cap_mb": cap_mb, "model.parameter_bytes": 100 * MIB, "trainer.strategy": strategy}
    return distributed([collective(ms, count=count * STEPS, mb=1.0)], run=run)


def one_bucket(mb: float = 390.0, *, cap_mb: int = 1000) -> Metrics:
    run = {"trainer.bucket_cap_mb": cap_mb, "model.parameter_bytes": 400 * MIB}
    return distributed([collective(10.0, count=STEPS, mb=mb)], run=run)


def test_many_small_buckets_are_told_with_their_number() -> None:
    finding = RULE.check(small_buckets())
    assert finding is not None
    assert finding.summary.startswith("With gradient buckets of 1 MB, each step makes 100 all-reduces for 100 MiB")
    assert "bucket_cap_mb=25). That makes about 5" in finding.advice
    assert finding.gain is not None
    assert finding.gain.saved_lower_ms_per_step == 0


def test_one_bucket_for_all_comes_after_the_backward() -> None:
    finding = RULE.check(one_bucket())
    assert finding is not None
    assert "one all-reduce holds 390 of 400 MiB" in finding.summary


def test_it_is_quiet_with_the_default_size() -> None:
    assert RULE.check(small_buckets(cap_mb=25)) is None
    assert RULE.check(one_bucket(cap_mb=25)) is None


def test_it_is_quiet_where_several_buckets_are_hidden_or_split() -> None:
    assert RULE.check(one_bucket(mb=100.0)) is None
    assert RULE.check(small_buckets(ms=0.01)) is None


def test_reductions_of_metrics_are_no_buckets() -> None:
    run = {"trainer.bucket_cap_mb": 1, "model.parameter_bytes": 100 * MIB}
    assert RULE.check(distributed([collective(0.1, count=100 * STEPS, mb=0.01)], run=run)) is None


def test_other_strategies_have_no_such_buckets() -> None:
    assert RULE.check(small_buckets(strategy="FSDPStrategy")) is None


@pytest.mark.parametrize(("count", "fires"), [(20, False), (21, True)])
def test_the_boundary_is_four_times_the_buckets_of_the_default(count: int, fires: bool) -> None:
    assert (RULE.check(small_buckets(count, ms=1.0)) is not None) is fires


def test_it_is_not_evaluated_without_its_signals() -> None:
    with pytest.raises(MissingSignal, match="bucket size"):
        RULE.check(small_buckets(cap_mb=None))
    with pytest.raises(MissingSignal, match="no trace window"):
        RULE.check(without_windows(small_buckets()))


def test_it_carries_the_gain_before_the_general_rule() -> None:
    found = diagnose(small_buckets(), (ExposedComm(), RULE)).findings
    assert [(one.rule, one.gain is not None) for one in found] == [("ddp-bucket-size", True), ("exposed-comm", False)]
