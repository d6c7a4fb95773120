from __future__ import annotations

from typing import Any

import pytest
from metrics_builder import build, replace

from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.report import LedgerRow
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import MissingSignal
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


def test_a_loader_without_workers_gets_some() -> None:
    finding = RULE.check(planted())
    assert finding is not None
    assert finding.explains == claims.VALIDATION
    assert finding.severity == "warning"
    assert "Validation waits 4.50 s of its 5.00 s for batches" in finding.summary
    assert "DataLoader(..., num_workers=2, persistent_workers=True). Why 2" in finding.advice
    assert finding.gain is not None
    assert finding.gain.saved_ms_per_step == pytest.approx(4500 / 400)
    assert finding.gain.saved_lower_ms_per_step == pytest.approx((4500 - 80) / 400)


def test_workers_that_are_started_for_each_run_stay() -> None:
    finding = RULE.check(planted(**{"val_loader.num_workers": 2}))
    assert finding is not None
    assert "Keep the 2 validation workers alive" in finding.advice


def test_persistent_workers_need_cheaper_batches() -> None:
    finding = RULE.check(planted(**{"val_loader.num_workers": 2, "val_loader.persistent_workers": True}))
    assert finding is not None
    assert "Make a validation batch cheaper" in finding.advice


@pytest.mark.parametrize(("wait_s", "fires"), [(2.4, False), (2.6, True)])
def test_half_of_validation_decides(wait_s: float, fires: bool) -> None:
    assert (RULE.check(planted(wait_s)) is not None) is fires


@pytest.mark.parametrize(("wait_s", "fires"), [(1.1, False), (1.4, True)])
def test_a_twentieth_of_the_run_decides(wait_s: float, fires: bool) -> None:
    assert (RULE.check(planted(wait_s, 1.5)) is not None) is fires


def test_many_cheap_fetches_are_no_fault() -> None:
    assert RULE.check(planted(**{"val_loader.dataset_length": 36_000})) is None


def test_validation_that_computes_is_left_to_its_own_rule() -> None:
    assert RULE.check(planted(0.5)) is None
    assert RULE.check(build()) is None


def test_what_is_not_known_is_not_judged() -> None:
    with pytest.raises(MissingSignal, match="where the time of validation went"):
        RULE.check(planted(ledger=False))
    with pytest.raises(MissingSignal, match="there are several"):
        RULE.check(planted(**{"val_loader.count": 2}))
    with pytest.raises(MissingSignal, match="length of the validation loader"):
        RULE.check(planted(**{"val_loader.dataset_length": None}))


def test_the_batches_that_lightning_counted_are_a_rank_s_own() -> None:
    finding = RULE.check(planted(**{"val_loader.dataset_length": 36_000, "trainer.num_val_batches": 20}))
    assert finding is not None
    assert finding.gain is not None
    assert finding.gain.saved_lower_ms_per_step == pytest.approx((4500 - 80) / 400)
    finding = RULE.check(planted(**{"val_loader.dataset_length": None, "trainer.num_val_batches": 20}))
    assert finding is not None
    finding = RULE.check(planted(**{"trainer.num_val_batches": float("inf")}))
    assert finding is not None
    assert "56.2 ms per batch" in finding.summary


def test_on_a_device_that_may_work_meanwhile_it_is_at_most_a_warning() -> None:
    assert [
        finding.severity
        for device in ("cpu", "cuda")
        if (finding := RULE.check(planted(9.0, 10.0, **{"device.type": device}))) is not None
    ] == ["critical", "warning"]
