from __future__ import annotations

from typing import Any

import msgspec
import pytest
from feeding_builder import shares_of, starved
from metrics_builder import build, distribution, outliers, replace, share

from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.phases import Phase
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.input.small_batch_loader import SmallBatchLoader

RULE = SmallBatchLoader()
SHORT: dict[Phase, float] = {
    "forward": 0.3,
    "backward": 0.3,
    "optimizer": 0.1,
    "zero_grad": 0.02,
    "h2d": 0.02,
    "callbacks": 0.02,
    "logging": 0.02,
    "loop": 0.22,
}
"""1 ms."""


def planted(wait_ms: float = 0.5, *, batch_size: int | None = 1, **changes: Any) -> Metrics:
    given = {"items_ms": 0.02, "collate_ms": 0.01, "compute_ms": SHORT, "verdict": "transfer", **changes}
    metrics = starved(**given)
    assert metrics.loader is not None
    metrics = replace(
        metrics,
        loader=replace(metrics.loader, batch_size=batch_size),
        steps=msgspec.structs.replace(metrics.steps, period_ms=distribution(1.0 + wait_ms)),
        outliers=outliers(count=0, stall_ms=0.0, phases={}, steps=380, period_ms=1.0 + wait_ms),
    )
    return shares_of(metrics, "data_wait", share(wait_ms, 1.0 + wait_ms))


def test_it_says_what_a_fetch_costs_and_who_shares_it() -> None:
    finding = RULE.check(planted())
    assert finding is not None
    assert finding.severity == "warning"
    assert "batch_size=8)" in finding.advice
    assert "8 samples then share the cost, 0.0625 ms each" in finding.advice
    assert finding.gain is not None
    assert finding.gain.saved_ms_per_step == pytest.approx(0.5 * 7 / 8)


def test_accumulated_gradients_move_into_the_batch() -> None:
    finding = RULE.check(planted(run={"trainer.accumulate_grad_batches": 4}))
    assert finding is not None
    assert "accumulate_grad_batches=1 instead of 4" in finding.advice


def test_without_workers_the_sample_itself_is_not_counted() -> None:
    assert RULE.check(planted(0.5, workers=0, items_ms=0.45, verdict="processing")) is None
    finding = RULE.check(planted(0.5, workers=0, items_ms=0.05, verdict="processing"))
    assert finding is not None
    assert finding.gain is not None
    assert finding.gain.saved_ms_per_step == pytest.approx(0.45 * 7 / 8)


def test_a_dear_sample_is_not_the_price_of_the_fetch() -> None:
    assert RULE.check(planted(2.0, verdict="processing")) is None
    assert RULE.check(planted(3.1)) is None
    assert RULE.check(planted(run={"batch.bytes": 2_000_000})) is None


@pytest.mark.parametrize("batch_size", [2, 32, None])
def test_it_is_quiet_about_other_batches(batch_size: int | None) -> None:
    assert RULE.check(planted(batch_size=batch_size)) is None


@pytest.mark.parametrize(("wait_ms", "fires"), [(0.22, False), (0.24, True)])
def test_a_fifth_of_a_millisecond_decides(wait_ms: float, fires: bool) -> None:
    assert (RULE.check(planted(wait_ms)) is not None) is fires  # seven eighths of it


def test_it_is_quiet_where_steps_are_long() -> None:
    metrics = build()
    assert metrics.loader is not None
    assert RULE.check(replace(metrics, loader=replace(metrics.loader, batch_size=1))) is None


def test_what_was_not_measured_from_inside_is_not_judged() -> None:
    with pytest.raises(MissingSignal, match="not measured from inside"):
        RULE.check(planted(measured=False))
    with pytest.raises(MissingSignal, match="not a torch DataLoader"):
        RULE.check(build(no_loader=True))


def test_on_a_device_only_what_it_idles_counts() -> None:
    assert RULE.check(planted(run={"device.type": "cuda"}, device_idle=-0.4)) is None
    finding = RULE.check(planted(run={"device.type": "cuda"}, device_idle=-0.1))
    assert finding is not None
    assert finding.gain is not None
    # 1.21 ms of work, steps of 1.5 ms
    assert finding.gain.saved_ms_per_step == pytest.approx(0.29)
