from typing import Any

import pytest
from findings_builder import fired
from metrics_builder import build, replace

from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.report import OWN_NAME, LedgerRow
from lightning_gpuprof.rules.engine import diagnose
from lightning_gpuprof.rules.loop.val_input_bound import ValInputBound
from lightning_gpuprof.rules.loop.validation_stall import ValidationStall

TINY = {"forward": 0.2, "backward": 0.2, "optimizer": 0.1, "data_wait": 0.1, "zero_grad": 0.05, "loop": 0.1}


def test_validation_that_is_most_of_the_run_needs_no_number_of_steps() -> None:
    metrics = build(steps=8, steady=0, epochs=1, validation=(1, 5.0), checkpoint=(0, 0.0))
    finding = fired(ValidationStall(), metrics)
    assert finding.severity == "warning"
    assert diagnose(metrics).findings[0].rule == "validation-stall"
    assert diagnose(metrics).verdict.kind == "outside-steps"


def test_half_a_second_of_validation_beside_few_steps_is_not_enough_data() -> None:
    metrics = build(steps=8, steady=0, epochs=1, validation=(1, 0.8), checkpoint=(0, 0.0))
    assert diagnose(metrics).verdict.kind == "not-enough-data"
    assert diagnose(metrics).findings == ()


def test_a_setting_of_the_run_is_replaced_not_set_a_second_time() -> None:
    """In a YAML, of two equal keys the last one would win."""
    metrics = build(
        validation=(16, 25.0), run={"trainer.val_check_interval": 0.25, "trainer.check_val_every_n_epoch": 1}
    )
    change = fired(ValidationStall(), metrics).change
    assert change.arguments["val_check_interval"] == 1.0
    assert change.before == {"val_check_interval": 0.25}


@pytest.mark.parametrize(
    ("hook", "total_s", "named", "limits"),
    [
        ("on_validation_epoch_end", 12.0, True, False),
        ("on_validation_batch_end", 12.0, True, True),
        ("on_validation_epoch_end > coco", 12.0, True, False),
        ("on_validation_epoch_end", 6.0, False, True),
    ],
)
def test_the_hook_that_takes_most_of_validation_is_named(hook: str, total_s: float, named: bool, limits: bool) -> None:
    """Fewer batches save nothing of what happens once at the end."""
    own = LedgerRow(part="validation", phase="callbacks", name="M", hook=hook, total_s=total_s, share=0.3, count=4)
    ours = replace(own, name=OWN_NAME, total_s=13.0)
    metrics = replace(build(validation=(4, 14.0), run={"trainer.num_val_batches": 100}), ledger=(own, ours))
    hook = hook.partition(" > ")[0]
    finding = fired(ValidationStall(), metrics)
    assert (f"M.{hook} takes {total_s:.1f} s of it" in finding.summary) is named
    assert ("limit_val_batches" in finding.advice) is limits
    assert (f"make M.{hook} cheaper" in finding.advice) is not limits


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
    assert (ValInputBound().check(planted(wait_s)) is not None) is fires


@pytest.mark.parametrize(("wait_s", "fires"), [(1.1, False), (1.4, True)])
def test_a_twentieth_of_the_run_decides(wait_s: float, fires: bool) -> None:
    assert (ValInputBound().check(planted(wait_s, 1.5)) is not None) is fires


def test_the_batches_that_lightning_counted_are_a_rank_s_own() -> None:
    finding = fired(ValInputBound(), planted(**{"val_loader.dataset_length": 36_000, "trainer.num_val_batches": 20}))
    assert finding.gain.saved_lower_ms_per_step == pytest.approx((4500 - 80) / 400)
    finding = fired(ValInputBound(), planted(**{"val_loader.dataset_length": None, "trainer.num_val_batches": 20}))
    assert "56.2 ms per batch" in fired(ValInputBound(), planted(**{"trainer.num_val_batches": float("inf")})).summary


def test_on_a_device_that_may_work_meanwhile_it_is_at_most_a_warning() -> None:
    assert [
        finding.severity
        for device in ("cpu", "cuda")
        if (finding := ValInputBound().check(planted(9.0, 10.0, **{"device.type": device}))) is not None
    ] == ["critical", "warning"]
