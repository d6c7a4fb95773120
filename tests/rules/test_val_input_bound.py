from __future__ import annotations

from typing import Any

import pytest
from findings_builder import fired
from metrics_builder import build, replace

from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.report import LedgerRow
from lightning_gpuprof.rules.loop.val_input_bound import ValInputBound

RULE = ValInputBound()
LOADER = {
    "val_loader.count": 1,
    "val_loader.num_workers": 0,
    "val_loader.batch_size": 8,
    "val_loader.dataset_length": 160,
    "val_loader.dataset": "Digits",
    "val_loader.persistent_workers": False,
}


def row(total_s: float, phase: Any = "data_wait") -> LedgerRow:
    return LedgerRow(part="validation", phase=phase, name="fetch", hook="", total_s=total_s, share=0.1, count=4)


def planted(wait_s: float = 4.5, validation_s: float = 5.0, *, ledger: bool = True, **run: Any) -> Metrics:
    """Four runs of 20 batches beside 20 s of training."""
    metrics = build(validation=(4, validation_s), run={**LOADER, **run}, num_workers=2)
    rows = (row(wait_s), row(validation_s - wait_s, "forward")) if ledger else ()
    return replace(metrics, ledger=rows)


@pytest.mark.parametrize(("wait_s", "fires"), [(2.4, False), (2.6, True)])
def test_half_of_validation_decides(wait_s: float, fires: bool) -> None:
    assert (RULE.check(planted(wait_s)) is not None) is fires


@pytest.mark.parametrize(("wait_s", "fires"), [(1.1, False), (1.4, True)])
def test_a_twentieth_of_the_run_decides(wait_s: float, fires: bool) -> None:
    assert (RULE.check(planted(wait_s, 1.5)) is not None) is fires


def test_the_batches_that_lightning_counted_are_a_rank_s_own() -> None:
    finding = fired(RULE, planted(**{"val_loader.dataset_length": 36_000, "trainer.num_val_batches": 20}))
    assert finding.gain.saved_lower_ms_per_step == pytest.approx((4500 - 80) / 400)
    finding = fired(RULE, planted(**{"val_loader.dataset_length": None, "trainer.num_val_batches": 20}))
    assert "56.2 ms per batch" in fired(RULE, planted(**{"trainer.num_val_batches": float("inf")})).summary


def test_on_a_device_that_may_work_meanwhile_it_is_at_most_a_warning() -> None:
    assert [
        finding.severity
        for device in ("cpu", "cuda")
        if (finding := RULE.check(planted(9.0, 10.0, **{"device.type": device}))) is not None
    ] == ["critical", "warning"]
