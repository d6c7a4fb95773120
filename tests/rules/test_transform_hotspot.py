import pytest
from feeding_builder import starved
from findings_builder import fired

from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.input.transform_hotspot import TransformHotspot


def test_the_bound_of_the_gain_is_the_part_of_the_waits_own() -> None:
    finding = fired(TransformHotspot(), starved(transforms={"Blur": 0.72, "Crop": 0.28}, worker_cpus=1.9))
    assert finding.gain.saved_lower_ms_per_step == pytest.approx(0.98 * (40 / 2 - 10.0) * 0.72 * 39 / 40)


def test_bursts_are_steps_that_stand_out() -> None:
    finding = fired(TransformHotspot(), starved(transforms={"Blur": 0.72}, worker_cpus=1.9, burst=0.4))
    assert finding.explains == claims.OUTLIERS
