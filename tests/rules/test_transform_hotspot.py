from __future__ import annotations

import pytest
from feeding_builder import part, starved
from metrics_builder import build

from lightning_gpuprof.model.input_pipeline import InputPart
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.input.transform_hotspot import TransformHotspot

RULE = TransformHotspot()
BLUR = (part("Blur", 0.72, mean_ms=3.5), part("Crop", 0.2), part("Flip", 0.08))


def planted(*parts: InputPart, **changes: object) -> Metrics:
    return starved(parts=parts or BLUR, **{"worker_cpus": 1.9, **changes})  # type: ignore[arg-type]


def test_it_names_the_transform_and_what_is_left_without_it() -> None:
    finding = RULE.check(planted())
    assert finding is not None
    assert finding.subject == "Blur"
    assert finding.severity == "critical"
    assert (
        "Blur takes 70 % of the 40.0 ms in which a batch is made (3.50 ms a call, 28.1 ms a batch)" in finding.summary
    )
    assert "Without it 2 workers deliver a batch every 5.96 ms, the step needs 10.0 ms." in finding.advice
    assert "for the whole batch of 32 at once in LightningModule.on_after_batch_transfer" in finding.advice


def test_the_gain_is_its_time_over_the_workers_and_no_more_than_the_wait() -> None:
    one_third = (part("Blur", 0.72), part("Crop", 0.28))
    alone = RULE.check(planted(*one_third, workers=0))
    several = RULE.check(planted(*one_third))
    assert alone is not None
    assert several is not None
    assert alone.gain is not None
    assert several.gain is not None
    assert alone.gain.saved_ms_per_step == pytest.approx(0.72 * 39)
    assert several.gain.saved_ms_per_step == pytest.approx(40 / 2 - 10.0)  # the wait: less than 28.1 / 2
    assert several.gain.saved_lower_ms_per_step == pytest.approx(0.98 * (40 / 2 - 10.0) * 0.72 * 39 / 40)


def test_of_parts_that_lie_in_each_other_the_inner_one_is_named() -> None:
    finding = RULE.check(planted(part("augment", 0.95, kind="region"), part("Blur", 0.8), part("Crop", 0.1)))
    assert finding is not None
    assert finding.subject == "Blur"
    assert "Blur, inside of augment, takes 78 %" in finding.summary


@pytest.mark.parametrize(("share", "fires"), [(0.51, False), (0.513, True)])
def test_half_of_the_making_with_collation_decides(share: float, fires: bool) -> None:
    assert (RULE.check(planted(part("Blur", share), part("Crop", 1 - share))) is not None) is fires


def test_bursts_are_explained_where_the_median_step_does_not_wait() -> None:
    finding = RULE.check(planted(burst=0.4))
    assert finding is not None
    assert finding.explains == claims.OUTLIERS
    assert "come in bursts" in finding.summary


def test_it_is_quiet_where_steps_do_not_wait() -> None:
    assert RULE.check(planted(items_ms=12.0)) is None
    assert RULE.check(build()) is None


def test_it_is_quiet_where_batches_are_ready_but_come_late() -> None:
    assert RULE.check(planted(verdict="transfer")) is None


def test_it_is_quiet_where_the_wait_may_be_the_price_of_a_fetch() -> None:
    assert RULE.check(planted(items_ms=24.0)) is None  # 2.4 ms


def test_it_is_quiet_where_several_parts_share_the_time() -> None:
    assert RULE.check(planted(part("Blur", 0.4), part("Crop", 0.35), part("Flip", 0.25))) is None


def test_on_a_gpu_that_has_work_meanwhile_the_wait_is_free() -> None:
    assert RULE.check(planted(run={"device.type": "cuda"}, device_idle=0.02)) is None
    assert RULE.check(planted(run={"device.type": "cuda"}, device_idle=0.5)) is not None


def test_a_transform_that_waits_gets_another_advice() -> None:
    finding = RULE.check(planted(worker_cpus=0.02))
    assert finding is not None
    assert "mostly waits rather than computes" in finding.advice


def test_a_dataset_without_named_parts_is_not_judged() -> None:
    with pytest.raises(MissingSignal, match="annotate"):
        RULE.check(starved())


def test_what_was_not_measured_from_inside_is_not_judged() -> None:
    with pytest.raises(MissingSignal, match="not measured from inside"):
        RULE.check(planted(measured=False))
    with pytest.raises(MissingSignal, match="3 batches were measured"):
        RULE.check(planted(verdict="not-enough-data"))


def test_no_more_is_gained_than_the_device_idles() -> None:
    metrics = planted(run={"device.type": "cuda"}, device_idle=0.1)
    finding = RULE.check(metrics)
    assert finding is not None
    assert finding.gain is not None
    assert metrics.period_ms is not None
    assert finding.gain.saved_ms_per_step == pytest.approx(0.1 * metrics.period_ms)
    unseen = RULE.check(planted(run={"device.type": "cuda"}))
    assert unseen is not None
    assert unseen.severity == "warning"
