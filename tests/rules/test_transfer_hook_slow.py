from __future__ import annotations

import math

import msgspec
import pytest
from copying import PAGEABLE, copying
from metrics_builder import build, replace, share
from trace_metrics import metrics_of

from lightning_gpuprof.model.metrics import HookShare, Metrics
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.engine import diagnose, settle
from lightning_gpuprof.rules.steps.blocked_in_step import BlockedInStep
from lightning_gpuprof.rules.transfers.h2d_pageable import H2dPageable
from lightning_gpuprof.rules.transfers.transfer_hook_slow import TransferHookSlow

RULE = TransferHookSlow()
SITE = "train.py:41 on_after_batch_transfer"


def hooked(
    ms: float,
    hook: str = "on_after_batch_transfer",
    *,
    device: str = "cpu",
    blocked_ms: float = 0.0,
    idle_ratio: float | None = None,
) -> Metrics:
    """Steps of 50 ms and the hook, which may only wait."""
    found = build(
        times_ms={"h2d": ms + 0.1},
        run={"device.type": device},
        blocked_ms={"h2d": blocked_ms},
        sites={"h2d": [(SITE, 9)]},
        idle_ratio=idle_ratio,
    )
    assert found.period_ms is not None
    quick = HookShare(owner="Data", hook="on_before_batch_transfer", share=share(0.05, found.period_ms))
    slow = HookShare(owner="Net", hook=hook, share=share(ms, found.period_ms), site=SITE)
    return replace(found, transfer_hooks=(slow, quick))


def test_the_hook_is_named_with_its_share_and_line() -> None:
    finding = RULE.check(hooked(50.0))
    assert finding is not None
    assert (finding.severity, finding.subject) == ("critical", "Net.on_after_batch_transfer")
    assert f"takes 50 % (at least 49 %) of the step: 50.0 ms of 100 ms, mostly at {SITE}" in finding.summary
    assert finding.gain is not None
    assert finding.gain.saved_ms_per_step == pytest.approx(50)


@pytest.mark.parametrize(
    ("hook", "device", "advice"),
    [
        ("on_before_batch_transfer", "cpu", "Move the work of on_before_batch_transfer"),
        ("on_after_batch_transfer", "cpu", "into the Dataset or collate_fn"),
        ("on_after_batch_transfer", "cuda", "no loop over samples, no .item()"),
        ("transfer_batch_to_device", "cpu", "return super().transfer_batch_to_device(batch, device, dataloader_idx)"),
    ],
)
def test_each_hook_has_its_own_advice(hook: str, device: str, advice: str) -> None:
    finding = RULE.check(hooked(50.0, hook, device=device))
    assert finding is not None
    assert advice in finding.advice


def test_it_is_quiet_where_no_hook_is_slow() -> None:
    assert RULE.check(build()) is None
    assert RULE.check(hooked(0.5)) is None


@pytest.mark.parametrize(("ms", "fires"), [(2.6, False), (2.8, True)])
def test_a_twentieth_of_the_step_decides(ms: float, fires: bool) -> None:
    assert (RULE.check(hooked(ms)) is not None) is fires


def test_a_hook_that_waits_is_gained_once_and_named_first() -> None:
    found = diagnose(hooked(50.0, blocked_ms=50.0), [RULE, BlockedInStep()]).findings
    assert [f.rule for f in found] == ["transfer-hook-slow", "blocked-in-step"]
    assert [f.gain is None for f in found] == [False, True]


def test_a_hook_that_works_in_every_third_step_is_told_with_its_part_of_all_steps() -> None:
    metrics = hooked(0.001)
    slow, quick = metrics.transfer_hooks
    slow = replace(slow, share=replace(slow.share, total_ratio=0.3))
    finding = RULE.check(replace(metrics, transfer_hooks=(quick, slow)))
    assert finding is not None
    assert finding.subject == "Net.on_after_batch_transfer"
    assert "takes 30 % (at least 30 %) of the step: 15.0 ms of 50.0 ms" in finding.summary
    assert finding.evidence[0].value == pytest.approx(0.3)
    assert finding.evidence[1].value == pytest.approx(15.0, rel=0.01)


def test_a_hook_that_copies_to_a_device_and_pageable_memory_are_gained_once() -> None:
    run = metrics_of(copying(PAGEABLE, us=10_000.0, nbytes=40_000_000, after_us=5000.0), pin_memory=False)
    assert run.period_ms is not None
    own = HookShare(owner="Net", hook="transfer_batch_to_device", share=share(0.3 * run.period_ms, run.period_ms))
    found = {f.rule: f for f in diagnose(replace(run, transfer_hooks=(own,)), [RULE, H2dPageable()]).findings}
    assert found.keys() == {"transfer-hook-slow", "h2d-pageable"}
    assert "the same time as transfer-hook-slow" in found["h2d-pageable"].summary


def test_it_and_other_idle_time_gain_no_more_than_the_device_idles() -> None:
    metrics = hooked(10.0, device="cuda", idle_ratio=0.1)
    hook = RULE.check(metrics)
    assert hook is not None
    late = msgspec.structs.replace(hook, rule="late", explains=claims.LATE_LAUNCHES)
    gains = [f.gain.saved_ms_per_step for f in settle([hook, late], metrics, {}) if f.gain is not None]
    assert metrics.period_ms is not None
    assert sum(gains) == pytest.approx(0.1 * metrics.period_ms, rel=0.01)


def test_a_hook_beside_a_busy_device_is_free() -> None:
    assert RULE.check(hooked(50.0, device="cuda", idle_ratio=0.0)) is None


def test_on_a_device_that_no_window_saw_it_is_information_without_a_lower_bound() -> None:
    finding = RULE.check(hooked(50.0, device="cuda"))
    assert finding is not None
    assert finding.severity == "info"
    assert finding.gain is not None
    assert finding.gain.saved_lower_ms_per_step == 0


def test_numbers_that_cannot_be_are_not_believed() -> None:
    metrics = hooked(50.0)
    broken = replace(metrics.transfer_hooks[0], share=share(math.nan, 100.0))
    assert RULE.check(replace(metrics, transfer_hooks=(broken,))) is None


def test_without_steady_steps_it_is_not_evaluated() -> None:
    with pytest.raises(MissingSignal):
        RULE.check(build(steady=5))
